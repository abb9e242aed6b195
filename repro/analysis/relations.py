"""Ratios between the units of one run: against their baselines, against one GPU, and between layouts."""

from collections.abc import Iterable
from dataclasses import dataclass

from repro.analysis.ratio import Ratio, repeated_ratio
from repro.analysis.results import Result, bases
from repro.runs.unit import Unit


@dataclass(frozen=True)
class Relation:
    """A result, the result it is relative to, and the ratio of their throughputs.

    For scaling, the ratio is divided by that of the numbers of GPUs, which yields the efficiency. `steady` is the same
    for the steady-state medians, None unless both are known.
    """

    result: Result
    base: Result
    ratio: Ratio
    steady: float | None


def baseline_relations(results: Iterable[Result]) -> list[Relation]:
    """Each unit of OneFlow over each of its baselines, where both succeeded.

    A tuned unit that runs in turn with a published one has the baselines of the latter.
    """
    measured = _measured(results)
    ours = [result for result in measured if not result.unit.baseline_of]
    return [
        _relation(result, base)
        for base in measured
        for result in ours
        if base.unit.baseline_of == (result.unit.tuned_of or result.unit.name)
    ]


def tuning_relations(results: Iterable[Result]) -> list[Relation]:
    """Each unit of the tuned program over the one of the published program that it ran in turn with."""
    measured = _measured(results)
    by_name = _by_name(measured)
    return [_relation(result, by_name[of]) for result in measured if (of := result.unit.tuned_of) in by_name]


def variant_relations(variant: str, base: str, results: Iterable[Result]) -> list[Relation]:
    """One variant of the baselines over another, where both took turns with the same unit."""
    measured = _measured(results)
    return [
        _relation(result, other)
        for result in measured
        if result.unit.variant == variant
        for other in measured
        if other.unit.variant == base and other.unit.baseline_of == result.unit.baseline_of
    ]


def scaling_relations(results: Iterable[Result]) -> list[Relation]:
    """Data parallel units over the same training on one GPU: the ratio is the scaling efficiency."""
    measured = _measured(results)
    by_name, base = _by_name(measured), bases([result.unit for result in measured])
    return [
        _relation(result, by_name[single], result.unit.world_size)
        for result in measured
        if 1 < result.unit.world_size == result.unit.config.layout.data
        and (single := base[result.unit.name]) in by_name
    ]


def layout_relations(results: Iterable[Result]) -> list[Relation]:
    """OneFlow's other layouts of a model over the data parallel one on equally many GPUs; batches may differ."""
    base: dict[tuple, Result] = {}
    others = []
    for result in _measured(results):
        config = result.unit.config
        if result.unit.baseline_of:
            continue
        if result.unit.world_size == config.layout.data and not config.optimizer_sharding:
            base.setdefault(_model(result.unit), result)
        else:
            others.append(result)
    return [_relation(result, base[model]) for result in others if (model := _model(result.unit)) in base]


def _model(unit: Unit) -> tuple:
    """What two layouts of a model that are compared have in common; their batches may differ."""
    config = unit.config
    shape = tuple(sorted(config.shape.items()))
    return unit.program, unit.world_size, unit.model, unit.precision, config.activation_checkpointing, shape


def layout_text(unit: Unit) -> str:
    """A unit's layout as data x tensor x pipeline parallel sizes."""
    return str(unit.config.layout)


def _measured(results: Iterable[Result]) -> list[Result]:
    """The results of units that succeeded at least once."""
    return [result for result in results if result.throughputs]


def _by_name(results: Iterable[Result]) -> dict[str | None, Result]:
    return {result.unit.name: result for result in results}


def _relation(result: Result, base: Result, gpus: int = 1) -> Relation:
    """The relation of two results; `gpus` is how many more GPUs the first one has."""
    ratio = repeated_ratio(result.throughputs, base.throughputs)
    return Relation(
        result,
        base,
        ratio.over(gpus) if gpus > 1 else ratio,
        result.steady / base.steady / gpus if result.steady and base.steady else None,
    )
