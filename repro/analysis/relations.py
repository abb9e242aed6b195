"""Ratios between the units of one run: against their baselines, against one GPU, and between layouts."""

from collections.abc import Iterable
from dataclasses import dataclass

import pandas as pd

from repro.analysis.frames import records, unit_frame
from repro.analysis.ratio import Ratio, repeated_ratio
from repro.analysis.results import Result, bases
from repro.runs.unit import Unit

MODEL = ["program", "world_size", "model", "precision", "activation_checkpointing", "model_shape"]
"""What two layouts of a model that are compared have in common; their batches may differ."""


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
    units = _units(measured)
    ours = units[units.baseline_of.isna()]
    ours = ours.assign(of=ours.tuned_of.where(ours.tuned_of.notna(), ours.unit))
    pairs = units.merge(ours[["unit", "of"]], left_on="baseline_of", right_on="of", suffixes=("_base", ""))
    return [_relation(measured, unit, base) for unit, base in zip(pairs.unit, pairs.unit_base, strict=True)]


def tuning_relations(results: Iterable[Result]) -> list[Relation]:
    """Each unit of the tuned program over the one of the published program that it ran in turn with."""
    measured = _measured(results)
    units = _units(measured)
    pairs = units[units.tuned_of.isin(units.unit)]
    return [_relation(measured, unit, base) for unit, base in zip(pairs.unit, pairs.tuned_of, strict=True)]


def variant_relations(variant: str, base: str, results: Iterable[Result]) -> list[Relation]:
    """One variant of the baselines over another, where both took turns with the same unit."""
    measured = _measured(results)
    units = _units(measured)
    pairs = units[units.baseline == variant].merge(
        units[units.baseline == base], on="baseline_of", suffixes=("", "_base")
    )
    return [_relation(measured, unit, other) for unit, other in zip(pairs.unit, pairs.unit_base, strict=True)]


def scaling_relations(results: Iterable[Result]) -> list[Relation]:
    """Data parallel units over the same training on one GPU: the ratio is the scaling efficiency."""
    measured = _measured(results)
    units = _units(measured)
    paired = units.assign(base=bases(units).array)
    paired = paired[
        (paired.world_size > 1) & (paired.world_size == paired.data_parallel) & paired.base.isin(paired.unit)
    ]
    return [_relation(measured, row["unit"], row["base"], row["world_size"]) for row in records(paired)]


def layout_relations(results: Iterable[Result]) -> list[Relation]:
    """OneFlow's other layouts of a model over the data parallel one on equally many GPUs; batches may differ."""
    measured = _measured(results)
    units = _units(measured)
    units = units[units.baseline_of.isna()]
    data_parallel = (units.world_size == units.data_parallel) & (units.optimizer_sharding == 0)
    base = units[data_parallel].drop_duplicates(MODEL)
    paired = units[~data_parallel].merge(base[[*MODEL, "unit"]], on=MODEL, suffixes=("", "_base"))
    return [_relation(measured, row["unit"], row["unit_base"]) for row in records(paired)]


def layout_text(unit: Unit) -> str:
    """A unit's layout as data x tensor x pipeline parallel sizes."""
    return str(unit.config.layout)


def _measured(results: Iterable[Result]) -> dict[str, Result]:
    """The results of units that succeeded at least once, by the unit's name."""
    return {result.unit.name: result for result in results if result.throughputs}


def _units(measured: dict[str, Result]) -> pd.DataFrame:
    return unit_frame([result.unit for result in measured.values()])


def _relation(measured: dict[str, Result], unit: str, base: str, gpus: int = 1) -> Relation:
    """The relation of two units by name; `gpus` is how many more GPUs the first one has."""
    ratio = repeated_ratio(measured[unit].throughputs, measured[base].throughputs)
    steady, other = measured[unit].steady, measured[base].steady
    return Relation(
        measured[unit],
        measured[base],
        ratio.over(gpus) if gpus > 1 else ratio,
        steady / other / gpus if steady and other else None,
    )
