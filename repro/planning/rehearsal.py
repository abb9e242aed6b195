"""Plans a rehearsal: every published training at its full world size and length, with tiny widths, on processors."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace

from repro.models.programs import PUBLISHED, TUNED
from repro.models.registry import spec_of
from repro.planning.derived import shrink, shrunk_case, with_port
from repro.planning.plan import PARITY_ITERATIONS, of_length
from repro.planning.program_data import standin_of
from repro.planning.programs import DEFAULT_PROGRAMS, in_programs
from repro.planning.trainer_config import config_of
from repro.published.cases import Case, Layout
from repro.published.census import parameter_tensors
from repro.published.ports import published_program
from repro.published.trainer_config import SYNTHETIC, TrainerConfig, TrainingData
from repro.runs.failures import Failure
from repro.runs.plan import REDUCED, Plan, SkippedCase
from repro.runs.unit import Unit
from repro.utils.errors import PlanError

KIND = "rehearsal"
SAMPLES_PER_RANK = 4
"""Micro-batch of models that are only data parallel: how many samples a rank has changes no shape between ranks."""
DEALT = ("ofrecord",)
"""Kinds of data whose records OneFlow deals to the ranks, so that each layout reads others in an iteration."""

PROCESS_MIB = 320
"""Resident memory of one process of a tiny model."""
PAIR_MIB, RANK_MIB = 0.036, 0.2
"""What a parameter tensor adds to each rank's memory, per pair of ranks and per rank that share it: every rank of OneFlow
0.8.0 keeps the whole plan, and on the CPU a sum over ranks is a copy from each to each. From the peaks of ResNet50 on 1, 4
and 8 ranks (435, 616 and 1016 MiB); those of BERT and of the GPTs on 8 ranks lie within 15%."""

Misfit = Callable[[str, TrainerConfig], Failure | None]
"""Why a configuration of a report cannot be placed; None if it can."""


def make_rehearsal_plan(
    cases: Sequence[Case],
    programs: tuple[str, ...] = DEFAULT_PROGRAMS,
    most_ranks: int | None = None,
    iterations: int | None = None,
    misfit: Misfit = lambda report, config: None,
) -> Plan:
    """Plan the rehearsal of published cases; cases whose training is the same here are one unit.

    Parameters
    ----------
    programs : training programs, out of `repro.models.programs.KINDS`. The tuned one trains on synthetic batches, as in
        a bench.
    most_ranks : layouts that need more ranks are shrunk to this number, and their units are derived from the cases.
    iterations : iterations of each training in place of the published number.

    Raises
    ------
    PlanError
        No case can be placed, or the iterations are too few for a measuring rule or for comparing losses.
    """
    cases, foreign = with_port(cases)
    chosen = _of_length(cases, iterations) if iterations else cases
    pairs = [(case, _on_ranks(changed, most_ranks)) for case, changed in zip(cases, chosen, strict=True)]
    reasons = [misfit(changed.report, rehearsal_config(changed)) for _, changed in pairs]
    refused = tuple(SkippedCase(case.name, reason) for case, reason in zip(cases, reasons, strict=True) if reason)
    skipped = (*refused, *foreign)
    units: dict[str, Unit] = {}
    for (case, changed), reason in zip(pairs, reasons, strict=True):
        for unit in () if reason else _units(case, changed):
            _add(units, unit)
    if not units:
        raise PlanError(f"none of these cases can be placed: {skipped[0].reason.text()}")
    ordered = sorted(_with_references(units), key=lambda unit: unit.world_size)
    planned = tuple(variant for unit in ordered for variant in _in_programs(unit, programs))
    return Plan(REDUCED, "cpu", repeats=1, units=planned, skipped=skipped, kind=KIND)


def rehearsal_config(case: Case) -> TrainerConfig:
    """The trainer's configuration: the published one with tiny widths, in fp32, on the CPU.

    Where every layout reads the same samples, dropout is off, so that the losses can be compared with one process's.
    """
    spec, config = spec_of(case.model), config_of(case, "cpu")
    program = published_program(case.model, case.report)
    return replace(
        config,
        shape=dict(spec.rehearsal_shape(asdict(config.layout))),
        micro_batch=min(case.micro_batch, SAMPLES_PER_RANK) if spec.axes == ("data",) else case.micro_batch,
        precision="fp32",
        dropout=config.dropout if program.data in DEALT else 0.0,
        data=standin_of(program, "small") if program.standin else TrainingData(SYNTHETIC),
    )


def memory_mib(report: str, config: TrainerConfig) -> float:
    """Resident memory of all ranks of a rehearsed training together, estimated: the plan grows with pairs of ranks."""
    layout, tensors = config.layout, parameter_tensors(report, config.shape.get("layers", 0))
    sharing = layout.data * layout.tensor
    plan = tensors * (PAIR_MIB * (sharing**2 - 1) + RANK_MIB * (sharing - 1))
    return sharing * layout.pipeline * (PROCESS_MIB + plan)


def is_reference(unit: Unit) -> bool:
    """Whether a unit of a rehearsal rehearses no case: others must print its losses."""
    return not (unit.stands_for or unit.derived_from)


def changed_settings(case: Case) -> dict[str, tuple]:
    """What of a case's configuration its rehearsal changes: published and rehearsed value by the name of the setting."""
    published, rehearsed = (
        {**vars(config), **config.shape} for config in (config_of(case, "cuda"), rehearsal_config(case))
    )
    compared = ("device", "precision", "dropout", "micro_batch", *case.shape)
    return {name: (published[name], rehearsed[name]) for name in compared if published[name] != rehearsed[name]}


def _of_length(cases: Sequence[Case], iterations: int) -> list[Case]:
    """Each case with this number of iterations, and as many printed rows as are compared with one process."""
    if iterations < PARITY_ITERATIONS:
        raise PlanError(f"ITERATIONS={iterations}: losses are compared at {PARITY_ITERATIONS} printed rows; give more")
    most = iterations // PARITY_ITERATIONS
    return [case.changed(log_interval=min(case.log_interval, most)) for case in of_length(cases, iterations)]


def _on_ranks(case: Case, most: int | None) -> Case:
    return shrunk_case(case, shrink(case.layout, most)) if most and case.layout.world_size > most else case


def _units(case: Case, changed: Case) -> list[Unit]:
    """A case's unit, and the one process whose losses it must print, if every layout reads the same samples."""
    config = rehearsal_config(changed)
    whole = changed.layout == case.layout
    unit = Unit(
        config.case,
        case.model,
        config,
        changed.rule,
        config.global_batch,
        stands_for=(case.name,) if whole else (),
        derived_from=() if whole else (case.name,),
        report=case.report,
        case=case,
    )
    if config.data.kind in DEALT or unit.world_size == 1:
        return [unit]
    reference = _one_process(unit)
    return [reference, replace(unit, reference=reference.name)]


def _one_process(unit: Unit) -> Unit:
    """The same training on one process, under a name of what distinguishes it."""
    sizes = (f"{size}" for _, size in sorted(unit.config.shape.items()))
    name = "_".join(("one_process", unit.report, f"{unit.global_batch}", *sizes))
    config = replace(
        unit.config,
        case=name,
        layout=Layout(),
        micro_batch=unit.global_batch,
        accumulation_steps=1,
        optimizer_sharding=0,
        activation_checkpointing=False,
    )
    return replace(unit, name=name, config=config, stands_for=(), derived_from=(), case=None, reference=None)


def _add(units: dict[str, Unit], unit: Unit) -> None:
    """Add a unit, or its cases to the unit that trains the same."""
    key = _key(unit.config)
    same = units.setdefault(key, unit)
    if same is not unit:
        units[key] = replace(
            same,
            stands_for=(*same.stands_for, *unit.stands_for),
            derived_from=(*same.derived_from, *unit.derived_from),
        )


def _with_references(units: dict[str, Unit]) -> list[Unit]:
    """The units with references among them: a case on one process may be the reference of another."""
    return [
        replace(unit, reference=units[_key(_one_process(unit).config)].name) if unit.reference else unit
        for unit in units.values()
    ]


def _key(config: TrainerConfig) -> str:
    """Equal for configurations that train the same."""
    return json.dumps(replace(config, case="").as_json(), sort_keys=True)


def _in_programs(unit: Unit, programs: tuple[str, ...]) -> list[Unit]:
    """A unit in each program; only the published one is compared with one process."""
    group = [
        variant for variant in in_programs(unit, programs) if variant.program == PUBLISHED or not is_reference(unit)
    ]
    return [
        replace(variant, reference=None, config=replace(variant.config, data=TrainingData(SYNTHETIC)))
        if variant.program == TUNED
        else variant
        for variant in group
    ]
