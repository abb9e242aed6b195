"""Plans the trainings for comparing loss curves: every layout and precision, control perturbations, and injected
errors.
"""

from collections.abc import Mapping
from dataclasses import asdict, replace
from fnmatch import fnmatchcase
from typing import Any

from repro.models.registry import specs
from repro.models.spec import ModelSpec
from repro.planning.programs import DEFAULT_PROGRAMS, in_programs
from repro.planning.trainer_config import SEED, SINGLE, small_config
from repro.published.cases import Layout
from repro.published.rules import MeanRows
from repro.published.trainer_config import SYNTHETIC, TrainerConfig, TrainingData
from repro.runs.plan import REDUCED, Plan, SkippedCase
from repro.runs.unit import Unit
from repro.utils.errors import PlanError

KIND = "curves"
CPU_PROCESSES = 4
REFERENCE, LAYOUT, CONTROL, ERROR = "reference", "layout", "control", "error"
RULE = MeanRows(skip_first=1)
ITERATIONS = {"cuda": 200, "cpu": 40}
LOSS_SCALE = 2.0**13
"""The first one under AMP: so low that no gradient should overflow, so high that few are below 2^-14.

Published is 2^20, from which it comes down by iterations that are skipped: a few of GPT and of BERT on an H200, more
where gradients are accumulated. So layouts that compute the same would have different curves. Below 2^-14 a number in
half precision has fewer digits the smaller it is.
"""
RECOMPUTE = {"activation_checkpointing": True}
LAYOUTS: dict[str, tuple[Layout, int, dict]] = {
    "dp2": (Layout(2, 1, 1), 1, {}),
    "dp4": (Layout(4, 1, 1), 1, {}),
    "tp2": (Layout(1, 2, 1), 1, {}),
    "tp4": (Layout(1, 4, 1), 1, RECOMPUTE),
    "dp2_tp2": (Layout(2, 2, 1), 1, {}),
    "pp2": (Layout(1, 1, 2), 4, {}),
    "pp4": (Layout(1, 1, 4), 8, RECOMPUTE),
    "tp2_pp2": (Layout(1, 2, 2), 4, RECOMPUTE),
    "dp2_pp2": (Layout(2, 1, 2), 4, {}),
    "zero1_dp2": (Layout(2, 1, 1), 1, {"optimizer_sharding": 1}),
    "zero1_dp4": (Layout(4, 1, 1), 1, {"optimizer_sharding": 1}),
}
"""Layout, accumulation steps and further settings by name; together they use everything that a published case does."""
ROUNDING = 2.0**-15
"""By how much the learning rate of a control perturbation is off, relative to the right one.

Steps are no better defined than the factor by which gradients are clipped. On the CPU that factor was measured to be
lower by about 4e-5 where parameters are spread over two ranks (tensor, pipeline, ZeRO) than on one rank or with plain
data parallelism; why, is not known. Without clipping, pipeline and ZeRO agreed with one rank to 5e-7.
"""
RATE_ERROR = 1.1


def make_curve_plan(
    gpus: int,
    text: TrainingData,
    repeats: int = 1,
    model: str | None = None,
    names: str | None = None,
    programs: tuple[str, ...] = DEFAULT_PROGRAMS,
) -> Plan:
    """Plan the loss curves for this machine: fp32 and AMP on GPUs; tiny models in fp32 on the CPU if there is none.

    Parameters
    ----------
    text : the data of models that read a text; the others memorise a few synthetic batches, since
        OneFlow distributes real records over the ranks and every layout would see another order.
    model, names : only this model, or only layouts that match one of these comma-separated patterns; their references
        are always included.
    programs : training programs for each layout, out of `repro.models.programs.KINDS`. If both are given, the tuned one
        is compared with the published one's reference, with the same tolerance.

    Raises
    ------
    PlanError
        Nothing is left to run, or a model is unknown.
    """
    device = "cuda" if gpus else "cpu"
    curve_specs = [spec for spec in specs() if spec.curves]
    if model not in (None, *(spec.name for spec in curve_specs)):
        raise PlanError(f"MODEL={model}: it is {', '.join(spec.name for spec in curve_specs)} or all")
    every = [unit for spec in curve_specs if model in (None, spec.name) for unit in _units(spec, device, text)]
    fitting = [unit for unit in every if unit.world_size <= (gpus or CPU_PROCESSES)]
    chosen = _chosen(fitting, names)
    if not chosen:
        layouts = [unit.name for unit in fitting if unit.role == LAYOUT]
        raise PlanError(f"CASES={names}: no layout of that name; there are {', '.join(layouts)}")
    skipped = tuple(
        SkippedCase.too_large(unit.name, needed=unit.world_size, present=gpus)
        for unit in every
        if unit.world_size > (gpus or CPU_PROCESSES)
    )
    units = tuple(variant for unit in chosen for variant in _in_programs(unit, programs))
    return Plan(REDUCED, device, repeats=repeats, units=units, skipped=skipped, kind=KIND)


def _in_programs(unit: Unit, programs: tuple[str, ...]) -> tuple[Unit, ...]:
    """A unit in each program; if both run, only the published one runs control perturbations and injected errors."""
    group = in_programs(unit, programs)
    if len(group) == 1:
        return group
    if unit.role not in (REFERENCE, LAYOUT):
        return (unit,)
    return unit, replace(group[1], role=LAYOUT, reference=unit.reference or unit.name)


def _chosen(units: list[Unit], names: str | None) -> list[Unit]:
    """Matching layouts, and the references and perturbations for their models and precisions."""
    if not names:
        return units
    patterns = [name.strip() for name in names.split(",")]
    chosen = {unit.name for unit in units if unit.role == LAYOUT and any(fnmatchcase(unit.name, p) for p in patterns)}
    kinds = {(unit.model, unit.config.precision) for unit in units if unit.name in chosen}
    kinds |= {(model, "fp32") for model, _precision in kinds}
    judges = {unit.name for unit in units if unit.role != LAYOUT and (unit.model, unit.config.precision) in kinds}
    named = {unit.name: unit for unit in units}
    references = {named[name].reference for name in chosen | judges}
    references |= {named[name].reference for name in references if name}
    return [unit for unit in units if unit.name in chosen | judges | references]


def _units(spec: ModelSpec, device: str, text: TrainingData) -> list[Unit]:
    """A model's units: references, then perturbations and injected errors, then layouts."""
    precisions = ("fp32", "amp") if device == "cuda" else ("fp32",)
    make = _Maker(spec, device, text)
    return [
        unit
        for precision in precisions
        for unit in (make.per_shard(precision) if spec.batch_statistics else make.per_batch(precision))
    ]


def _possible(spec: ModelSpec) -> list[str]:
    """The layouts whose axes and settings the model supports."""
    return [
        name
        for name, (layout, _, changes) in LAYOUTS.items()
        if all(size == 1 or axis in spec.axes for axis, size in asdict(layout).items())
        and set(changes) <= set(spec.options)
    ]


class _Maker:
    """Makes the units of one model on one kind of device."""

    def __init__(self, spec: ModelSpec, device: str, text: TrainingData):
        if spec.curves is None:
            raise ValueError(f"{spec.name} has no loss curves to compare")
        self._spec, self._device, self._text = spec, device, text
        self._curves, self._training = spec.curves, spec.curves.cuda if device == "cuda" else spec.curves.cpu
        self._layouts = {name: LAYOUTS[name] for name in spec.curves.layouts or _possible(spec)}
        if spec.has_vocabulary:
            self._training = replace(self._training, shape=self._equally_padded(self._training.shape))

    def _equally_padded(self, shape: Mapping[str, int]) -> dict[str, int]:
        """A shape whose vocabulary is padded to the same size in every layout.

        Padding depends on the tensor parallel size, and rows of padding take part in the softmax: with another number of
        them another loss would be right.
        """
        most = max(layout.tensor for layout, _, _ in self._layouts.values())
        return {**shape, "vocab_size": self._spec.padded_vocab_size(shape["vocab_size"], most)}

    def per_batch(self, precision: str) -> list[Unit]:
        """Units of a model whose loss covers the whole batch: one process is the reference for all layouts."""
        first = self._unit(precision, "1x1x1", REFERENCE)
        if precision == "amp":
            first = replace(first, role=LAYOUT, reference=self._name("fp32", "1x1x1"))
        controls = [
            self._unit(precision, f"1x1x1_acc{count}", role=CONTROL, accumulation=count, reference=first)
            for count in (2, 4)
        ]
        judged = replace(first, name=self._name("fp32", "1x1x1"))
        return [
            first,
            *controls,
            *self._changed(precision, "1x1x1", first),
            *(
                self._unit(
                    precision, name, role=LAYOUT, accumulation=accumulation, reference=judged, layout=layout, **changes
                )
                for name, (layout, accumulation, changes) in self._layouts.items()
            ),
        ]

    def per_shard(self, precision: str) -> list[Unit]:
        """Units of a model that normalises per shard: the reference for n ranks is one process with n separate shards.

        OneFlow 0.8.0 cannot separate shards under AMP (see `check_options` in `repro.trainers.config`), but references
        are fp32 anyway.
        """
        sharded = {layout.data: name for name, (layout, _, _) in self._layouts.items()}
        units = []
        for shards in (1, *sharded):
            name = f"1x1x1_shards{shards}"
            first = self._unit(precision, name, REFERENCE, shards)
            judged = replace(first, name=self._name("fp32", name))
            if precision == "amp":
                first = replace(first, role=LAYOUT, reference=judged.name)
            if precision == "fp32" or shards == 1:
                units += [first, *self._changed(precision, name, first, errors=shards == 1)]
            if shards > 1:
                units.append(
                    self._unit(
                        precision,
                        sharded[shards],
                        role=LAYOUT,
                        accumulation=1,
                        reference=judged,
                        layout=Layout(shards, 1, 1),
                    )
                )
        return units

    def _changed(self, precision: str, name: str, first: Unit, errors: bool = True) -> list[Unit]:
        """The same training with control perturbations, and in fp32 also with injected errors that must be detected."""
        optimizer, stem = first.config.optimizer, f"{precision}_{name}"
        units = [self._with(first, f"{stem}_rounding", CONTROL, lr=optimizer["lr"] * (1 + ROUNDING))]
        if precision == "fp32" and errors:
            units += [
                self._with(first, f"{stem}_rate", ERROR, lr=optimizer["lr"] * RATE_ERROR),
                self._with(first, f"{stem}_seed", ERROR, SEED + 1),
            ]
        return units

    def _with(self, first: Unit, name: str, role: str, seed: int = SEED, **optimizer: float) -> Unit:
        full = f"{self._spec.name}_{name}"
        config = replace(first.config, case=full, seed=seed, optimizer={**first.config.optimizer, **optimizer})
        return replace(first, name=full, config=config, role=role, reference=first.name)

    def _name(self, precision: str, name: str) -> str:
        return f"{self._spec.name}_{precision}_{name}"

    def _unit(
        self,
        precision: str,
        name: str,
        role: str,
        accumulation: int = 1,
        reference: Unit | None = None,
        layout: Layout = SINGLE,
        **changes: Any,
    ) -> Unit:
        full = self._name(precision, name)
        config = replace(self._config(full, precision, layout, accumulation), **changes)
        batch = self._training.global_batch
        return Unit(
            full,
            self._spec.name,
            config=config,
            rule=RULE,
            global_batch=batch,
            reference=reference.name if reference else None,
            report=self._spec.programs[-1].report,
            role=role,
        )

    def _config(self, name: str, precision: str, layout: Layout, accumulation: int) -> TrainerConfig:
        iterations, rate = ITERATIONS[self._device], self._training.lr
        return small_config(
            self._spec,
            self._training,
            self._curves.optimizer,
            name=name,
            device=self._device,
            precision=precision,
            layout=layout,
            accumulation_steps=accumulation,
            iterations=iterations,
            warmup_iterations=iterations // 5,
            min_lr=rate / 10,
            label_smoothing=self._curves.label_smoothing,
            loss_scale=LOSS_SCALE,
            data=self._text if self._curves.reads_text else TrainingData(SYNTHETIC),
        )
