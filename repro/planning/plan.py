"""Plans a run: published cases in their shapes on GPUs, or in tiny shapes with the same layouts on any machine."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace

from repro.planning.derived import in_precision, shrink, shrunk_cases, with_iterations, with_port
from repro.planning.programs import DEFAULT_PROGRAMS, in_programs
from repro.planning.trainer_config import (
    SMOKE_GLOBAL_BATCH,
    SMOKE_PROCESSES,
    config_of,
    reference_config,
    smoke_config,
    smoke_name,
)
from repro.published.cases import Case
from repro.published.trainer_config import TrainerConfig
from repro.runs.failures import Failure
from repro.runs.plan import PUBLISHED, SMOKE, Plan, SkippedCase
from repro.runs.unit import TF32, Unit
from repro.utils.errors import PlanError
from repro.utils.sequential import Looks, make_looks
from repro.utils.stats import order_coverage

MOST_REPEATS = 12
"""Repeats after which a case that is still undecided stays so."""
CONFIDENCE = 0.95
PUBLISHED_REPEATS = 7
"""Largest number of runs behind a published median; their own interval uses part of the allowed error."""
PARITY_ITERATIONS = 5
PARITY_TOLERANCE = 1e-4
BASELINE_PARITY_TOLERANCE = (
    1e-3  # other kernels: ResNet50 normalises over two samples here, which magnifies their rounding
)


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Options of a bench besides its cases.

    Parameters
    ----------
    scale : "published" or "smoke"; without it, published if there is a GPU.
    repeats : runs of each case; without it, as many as its verdict needs (`verdict_looks`), at the smoke scale 2.
    max_gpus : numbers of GPUs to shrink layouts to that need more than are here; without it, these cases are skipped.
    iterations : iterations per case. If the case's rule then reads other iterations than the published ones, it becomes
        a derived case.
    precision : "fp32", "tf32" or "amp" for all cases; a case published in another precision becomes a derived case.
    baselines : names of `repro.models.variants.VARIANTS` to run right after each unit that they can run.
    named : whether somebody named these baselines, so that one that runs nowhere is refused; those by default are not.
    programs : which training programs run each case, of `repro.models.programs.KINDS`; several run in turn.
    """

    scale: str | None = None
    repeats: int | None = None
    max_gpus: tuple[int, ...] = ()
    iterations: int | None = None
    precision: str | None = None
    baselines: tuple[str, ...] = ()
    named: bool = True
    programs: tuple[str, ...] = DEFAULT_PROGRAMS

    def check(self) -> None:
        """PlanError for a scale, a number of repeats or a precision that there is not."""
        if self.scale not in (None, SMOKE, PUBLISHED):
            raise PlanError(f"SCALE={self.scale}: it is smoke or published")
        if self.repeats is not None and self.repeats < 1:
            raise PlanError(f"REPEATS={self.repeats}: it is a whole number from 1 on")
        if self.precision not in (None, "fp32", TF32, "amp"):
            raise PlanError(f"PRECISION={self.precision}: it is fp32, tf32 or amp, or left out to take each case's own")

    def check_smoke(self) -> None:
        """PlanError for an option that is not for smoke runs."""
        if self.max_gpus:
            raise PlanError("MAX_GPUS is for the published shapes on GPUs; a smoke run shrinks every layout by itself")
        if self.precision:
            raise PlanError("PRECISION is for the published shapes on GPUs; a smoke run is in fp32")
        if self.iterations:
            raise PlanError("ITERATIONS is for the published shapes on GPUs; a smoke run has as few as its rules need")


def make_plan(
    cases: Sequence[Case],
    gpus: int,
    wanted: Wanted = Wanted(),
    processes: int = SMOKE_PROCESSES,
    misfit: Callable[[Case], Failure | None] = lambda case: None,
) -> Plan:
    """Plan a run of `cases` on a machine or a cluster.

    Parameters
    ----------
    cases : the chosen cases, of one model or several.
    gpus : number of GPUs that may be used.
    processes : most ranks of a smoke run.
    misfit : why a case cannot run although there are enough GPUs; None if it can.

    Raises
    ------
    PlanError
        The scale is unknown or needs GPUs that are not here, a number is not possible, or no case fits.
    """
    cases, foreign = with_port(cases)
    wanted.check()
    scale = wanted.scale or (PUBLISHED if gpus else SMOKE)
    if scale == SMOKE:
        wanted.check_smoke()
        tiny = _in_turn(_smoke_units(cases, processes), wanted)
        return Plan(SMOKE, "cpu", repeats=wanted.repeats or 2, units=tiny, skipped=tuple(foreign))
    max_gpus = wanted.max_gpus
    if not gpus:
        raise PlanError("SCALE=published needs a GPU, and nvidia-smi shows none here; SCALE=smoke runs on any machine")
    if max_gpus and not 1 <= min(max_gpus) <= max(max_gpus) <= gpus:
        raise PlanError(
            f"MAX_GPUS={','.join(map(str, max_gpus))}: each is a number of GPUs from 1 to the {gpus} that are here"
        )
    cases = [in_precision(case, wanted.precision) for case in cases] if wanted.precision else cases
    cases = of_length(cases, wanted.iterations) if wanted.iterations else cases
    fitting = [case for case in cases if case.layout.world_size <= gpus]
    too_large = (
        ()
        if max_gpus
        else tuple(
            SkippedCase.too_large(case.name, needed=case.layout.world_size, present=gpus)
            for case in cases
            if case not in fitting
        )
    )
    refused = tuple(SkippedCase(case.name, reason) for case in fitting if (reason := misfit(case)))
    fitting = [case for case in fitting if case.name not in {skipped.case for skipped in refused}]
    if refused and not fitting and not max_gpus:
        raise PlanError(f"none of these cases fits: {refused[0].case} {refused[0].reason.text()}")
    if not fitting and not max_gpus:
        smallest = min(case.layout.world_size for case in cases)
        raise PlanError(
            f"none of these cases fits on {gpus} GPUs: the smallest needs {smallest}; MAX_GPUS={gpus} shrinks their layouts"
        )
    looks = () if wanted.repeats else verdict_looks()
    units = [*map(_published_unit, fitting)]
    units += _shrunk_units(shrunk_cases(cases, gpus, max_gpus) if max_gpus else [], units)
    units.sort(key=lambda unit: unit.cost)
    planned = _in_turn(units, wanted)
    return Plan(
        PUBLISHED,
        "cuda",
        repeats=wanted.repeats or MOST_REPEATS,
        units=planned,
        skipped=(*foreign, *too_large, *refused),
        looks=looks,
    )


def verdict_looks() -> Looks:
    """When a bench checks whether a case's verdict is decided: after 6 and after 12 repeats.

    All checks together, and the interval of PUBLISHED_REPEATS published figures, contain the true ratio with
    CONFIDENCE.
    """
    return make_looks(MOST_REPEATS, 1 - CONFIDENCE / order_coverage(PUBLISHED_REPEATS, 1))


def of_length(cases: Sequence[Case], iterations: int) -> list[Case]:
    """Each case with this number of iterations; PlanError if a rule reads more rows than that."""
    longest = max(cases, key=lambda case: case.rule.least_rows)
    rule = longest.rule
    if iterations < rule.least_rows:
        raise PlanError(
            f"ITERATIONS={iterations}: these cases need at least {rule.least_rows}; the rule of {longest.name} reads "
            f"{rule.reads.format(**rule.parameters)}, and a row is one iteration or more"
        )
    return [with_iterations(case, iterations) for case in cases]


def _shrunk_units(pairs: list[tuple[Case, Case]], published: list[Unit]) -> list[Unit]:
    """A unit for each shrunk configuration that no published case has."""
    units: dict[str, Unit] = {}
    published_keys = {_key(unit) for unit in published}
    for case, shrunk in pairs:
        unit = replace(_published_unit(shrunk), stands_for=(), derived_from=(case.published_as.name,))
        key = _key(unit)
        if key in units:
            units[key] = replace(units[key], derived_from=(*units[key].derived_from, case.published_as.name))
        elif key not in published_keys:
            units[key] = unit
    return list(units.values())


def _key(unit: Unit) -> str:
    """A key that is equal for units with the same configuration and measuring rule."""
    return json.dumps([replace(unit.config, case="").as_json(), asdict(unit.rule)], sort_keys=True)


def _in_turn(units: Sequence[Unit], wanted: Wanted) -> tuple[Unit, ...]:
    """Each unit in its programs, directly followed by its baselines, so that a machine's drift affects all equally.

    At the smoke scale, where nothing is random, the tuned program and the baselines must print the unit's losses.
    """
    ordered: list[Unit] = []
    for unit in units:
        group = in_programs(unit, wanted.programs, same_losses=unit.config.device == "cpu")
        ordered += [*group, *_baselines(group[0], wanted.baselines)]
    refuse_idle(ordered, wanted.baselines, wanted.named)
    return tuple(ordered)


def runnable(units: Iterable[Unit], names: Iterable[str]) -> tuple[str, ...]:
    """Those of the variants that can run one of the units."""
    from repro.models.variants import refusal

    configs = [unit.config.as_json() for unit in units]
    return tuple(name for name in names if any(refusal(config, name) is None for config in configs))


def refuse_idle(units: Sequence[Unit], names: tuple[str, ...], named: bool = True) -> None:
    """PlanError if a variant can run none of the units; one of those by default may where another of them does.

    Of variants that nobody `named`, one that can is enough.
    """
    from repro.models.variants import DEFAULT

    run = set(runnable(units, names))
    if not named:
        if units and names and not run:
            raise PlanError(
                f"the baselines by default here, {', '.join(names)}, can run none of these cases: {_refusals(units, names)}. "
                "BASELINES= names others, BASELINES=none runs without any"
            )
        return
    for name in sorted(set(names) - run - (set(DEFAULT) if run & set(DEFAULT) else set())):
        raise PlanError(f"BASELINES={name} can run none of these cases: {_refusals(units, (name,))}")


def _refusals(units: Sequence[Unit], names: tuple[str, ...]) -> str:
    """Why the variants cannot run the units, each reason once."""
    from repro.models.variants import refusal

    configs = [unit.config.as_json() for unit in units if not unit.baseline_of]
    return "; ".join(dict.fromkeys(reason for config in configs for name in names if (reason := refusal(config, name))))


def _baselines(unit: Unit, names: tuple[str, ...]) -> list[Unit]:
    if not names:
        return []
    from repro.models.variants import baseline_configs

    return [
        replace(
            unit,
            name=f"{unit.name}.{name}",
            config=replace(TrainerConfig.from_json(config), case=f"{unit.name}.{name}"),
            stands_for=(),
            derived_from=(),
            reference=unit.name if unit.config.device == "cpu" else None,
            case=None,
            variant=name,
            framework="pytorch",
            baseline_of=unit.name,
        )
        for name, config in baseline_configs(unit.config.as_json(), names, unit.tf32).items()
    ]


def _published_unit(case: Case) -> Unit:
    """The unit of a case; it covers the case unless it was derived from the published one."""
    published = case.published_as
    stands_for, derived_from = ((), (published.name,)) if case.derived else ((published.name,), ())
    return Unit(
        case.name,
        case.model,
        config=config_of(case, "cuda"),
        rule=case.rule,
        global_batch=case.global_batch,
        stands_for=stands_for,
        derived_from=derived_from,
        report=case.report,
        case=published,
        tf32=case.precision == TF32,
    )


def _smoke_units(cases: Sequence[Case], processes: int) -> tuple[Unit, ...]:
    units: dict[str, Unit] = {}
    for case in cases:
        config = smoke_config(case, shrink(case.layout, processes))
        reference = reference_config(config)
        for candidate, stands_for in ((reference, ()), (config, (case.name,))):
            name = smoke_name(case, candidate)
            unit = units.get(name) or _smoke_unit(name, case, candidate)
            units[name] = replace(unit, stands_for=unit.stands_for + stands_for)
        if reference != config:
            units[name] = replace(units[name], reference=smoke_name(case, reference))
    return tuple(sorted(units.values(), key=lambda unit: (unit.reference is not None, unit.cost)))


def _smoke_unit(name: str, case: Case, config: TrainerConfig) -> Unit:
    return Unit(
        name,
        case.model,
        config=replace(config, case=name),
        rule=case.rule,
        global_batch=SMOKE_GLOBAL_BATCH,
        report=case.report,
    )
