"""Compares quantities that are comparable across hardware: scaling, memory, ratios between layouts, order of cases."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import pandas as pd

from repro.analysis.frames import records
from repro.analysis.ratio import Ratio, repeated_ratio
from repro.analysis.results import Result
from repro.published.cases import Case
from repro.utils.stats import relative_difference, scaling_efficiency

TOLERANCES = {"scaling": 0.05, "memory": 0.10, "layout": 0.10, "sharding": 0.10, "memory_sharding": 0.10}
"""Relative tolerance of each kind of comparison."""
WORK_PER_GPU = ["report", "micro_batch", "accumulation_steps", "precision", "optimizer_sharding", "model_shape"]
"""What data parallel cases have in common that do the same work on each GPU."""
TRAINING = ["report", "gpus", "global_batch", "precision", "activation_checkpointing", "model_shape"]
"""What cases have in common that train the same on equally many GPUs."""
PLAINNESS = ["gpus", "optimizer_sharding", "data", "tensor"]
"""Base of a comparison: fewer GPUs, an unsharded optimizer, more data parallel, more tensor parallel."""
PLAINER = [True, True, False, False]
"""Whether the smaller value of each column of PLAINNESS is the plainer."""
Measured = list[tuple[Case, Result]]


@dataclass(frozen=True)
class HardwareComparison:
    """A figure measured on one kind of hardware, the figure published for another, and whether they agree.

    `kind` is "scaling" (efficiency relative to case `against`), "memory" (MiB), "layout" or "sharding" (throughput
    relative to `against`), or "memory_sharding" (memory relative to `against`). `repeated` is the measured ratio with
    its interval, None if the repeats yield none; `units` names the run's units that were measured for it.
    """

    kind: str
    case: str
    against: str | None
    published: float
    measured: float
    tolerance: float
    repeated: Ratio | None = None
    units: tuple[str, ...] = ()

    @property
    def difference(self) -> float:
        """Measured over published, less one."""
        return relative_difference(self.measured, self.published)

    @property
    def agrees(self) -> bool:
        """Whether the difference is within the tolerance."""
        return abs(self.difference) <= self.tolerance

    def as_json(self) -> dict:
        """The form in which verdicts keep it."""
        return {
            "kind": self.kind,
            "case": self.case,
            "against": self.against,
            "published": float(self.published),
            "measured": self.measured,
            "difference": self.difference,
            "tolerance": self.tolerance,
            "agrees": self.agrees,
            "ratio": self.repeated and self.repeated.as_json(),
        }


@dataclass(frozen=True)
class Order:
    """The cases of one report on the same number of GPUs, fastest first, as published and as measured.

    `swapped` has the pairs that differ by more than the tolerance in both, but in opposite order.
    """

    report: str
    gpus: int
    published: tuple[str, ...]
    measured: tuple[str, ...]
    swapped: tuple[tuple[str, str], ...]
    tolerance: float

    @property
    def agrees(self) -> bool:
        """Whether no pair is the other way round."""
        return not self.swapped

    def as_json(self) -> dict:
        """The form in which verdicts keep it."""
        return {
            "kind": "order",
            "report": self.report,
            "gpus": self.gpus,
            "published": list(self.published),
            "measured": list(self.measured),
            "swapped": [list(pair) for pair in self.swapped],
            "tolerance": self.tolerance,
            "agrees": self.agrees,
        }


def comparisons(measured: Measured, given: float | None = None) -> list[HardwareComparison]:
    """All comparisons that the measured cases allow, by kind; `given` replaces each kind's own tolerance.

    The tolerances are chosen by this project: 5% in scaling efficiency is less than the differences between frameworks
    in the published comparison, 10% in memory covers the uncertainty of a single nvidia-smi reading and a different
    allocator, and ratios between layouts shift with the balance of compute and network.
    """
    cases = measured_frame(measured)
    if cases.empty:
        return []
    compared = pd.concat([_scaling(cases), _memory(cases), _layouts(cases), *_sharding(cases)])
    compared = compared.sort_values("kind", key=lambda kinds: kinds.map(list(TOLERANCES).index), kind="stable")
    return [
        HardwareComparison(**row, tolerance=TOLERANCES[row["kind"]] if given is None else given)
        for row in records(compared[["kind", "case", "against", "published", "measured", "repeated", "units"]])
    ]


def measured_frame(measured: Measured) -> pd.DataFrame:
    """The measured cases, one row each: configuration, published and measured figures.

    Throughputs are in samples/s, memory in MiB or NaN; `throughputs` are those of the repeats.
    """
    rows = [
        {
            **case_row(case),
            "unit": result.unit.name,
            "published_throughput": float(case.published.throughput),
            "published_memory_mib": float(case.published.memory_mib or math.nan),
            "throughput": result.throughput,
            "throughputs": result.throughputs,
            "memory_mib": result.memory_mib or math.nan,
        }
        for case, result in measured
        if result.throughput is not None
    ]
    return pd.DataFrame(rows)


def case_row(case: Case) -> dict:
    """Configuration of a case as plain values: `layout` is data x tensor x pipeline, `model_shape` is equal for equal
    shapes.
    """
    layout = case.layout
    return {
        "case": case.name,
        "report": case.report,
        "gpus": layout.world_size,
        "layout": str(layout),
        "data": layout.data,
        "tensor": layout.tensor,
        "pipeline": layout.pipeline,
        "micro_batch": case.micro_batch,
        "accumulation_steps": case.accumulation_steps,
        "global_batch": case.global_batch,
        "precision": case.precision,
        "activation_checkpointing": case.activation_checkpointing,
        "optimizer_sharding": case.optimizer_sharding,
        "model_shape": str(sorted(case.shape.items())),
    }


def orders(measured: Measured, tolerance_of: Callable[[Case], float]) -> list[Order]:
    """The order within each report and number of GPUs; `tolerance_of` returns a case's relative tolerance."""
    cases = measured_frame(measured)
    if cases.empty:
        return []
    cases["tolerance"] = [tolerance_of(case) for case, result in measured if result.throughput is not None]
    groups = cases.groupby(["report", "gpus"], sort=False)
    return [_order(group) for _, group in groups if len(group) > 1]


def _order(group: pd.DataFrame) -> Order:
    cases = list(records(group))
    tolerance = max(case["tolerance"] for case in cases)
    swapped = tuple(
        (one["case"], other["case"])
        for one, other in combinations(cases, 2)
        if _opposite(
            one["published_throughput"] / other["published_throughput"],
            one["throughput"] / other["throughput"],
            tolerance,
        )
    )
    published, measured = (
        tuple(group.sort_values(name, ascending=False, kind="stable").case)
        for name in ("published_throughput", "throughput")
    )
    ((report, gpus),) = {(case["report"], case["gpus"]) for case in cases}
    return Order(report, gpus, published=published, measured=measured, swapped=swapped, tolerance=tolerance)


def _opposite(published: float, measured: float, tolerance: float) -> bool:
    """Whether one ratio is above one and the other below, both by more than the tolerance: a factor, in either direction."""
    above, below = math.log(published), -math.log(measured)
    return max(min(above, below), min(-above, -below)) > math.log1p(tolerance)


def _paired(cases: pd.DataFrame, same: list[str]) -> pd.DataFrame:
    """Each case joined with the simplest case that is equal in these columns; the columns of the latter end in "_base".

    Ordered by group, then by case.
    """
    plainest = cases.sort_values(PLAINNESS, ascending=PLAINER, kind="stable").drop_duplicates(same)
    paired = cases.merge(plainest, on=same, suffixes=("", "_base"))
    group = paired.groupby(same, sort=False).ngroup()
    return paired.loc[group.sort_values(kind="stable").index]


def _scaling(cases: pd.DataFrame) -> pd.DataFrame:
    """Efficiency of data parallelism from the fewest GPUs that were measured with the same work per GPU."""
    pairs = _paired(cases[cases.tensor * cases.pipeline == 1], WORK_PER_GPU)
    pairs = pairs[pairs.gpus > pairs.gpus_base]
    ratios = [
        ratio.over(more) for ratio, more in zip(_throughput_ratios(pairs), pairs.gpus / pairs.gpus_base, strict=True)
    ]
    published, measured = (
        pairs[name] / pairs[f"{name}_base"] * pairs.gpus_base / pairs.gpus
        for name in ("published_throughput", "throughput")
    )
    return _compared("scaling", pairs, published, measured, ratios)


def _memory(cases: pd.DataFrame) -> pd.DataFrame:
    measured = cases.dropna(subset=["published_memory_mib", "memory_mib"]).assign(case_base=None, unit_base=None)
    return _compared("memory", measured, measured.published_memory_mib, measured.memory_mib)


def _layouts(cases: pd.DataFrame) -> pd.DataFrame:
    """Layouts of the same training on the same number of GPUs, relative to the most data parallel one."""
    pairs = _paired(cases, [*TRAINING, "optimizer_sharding"])
    return _throughputs("layout", pairs[pairs.layout != pairs.layout_base])


def _sharding(cases: pd.DataFrame) -> list[pd.DataFrame]:
    """Sharded optimizer state over unsharded, all else equal: throughput, and memory where all of it is known."""
    pairs = _paired(cases, [*TRAINING, "layout"])
    pairs = pairs[pairs.optimizer_sharding != pairs.optimizer_sharding_base]
    ratios = {name: pairs[name] / pairs[f"{name}_base"] for name in ("published_memory_mib", "memory_mib")}
    memory = _compared("memory_sharding", pairs, ratios["published_memory_mib"], ratios["memory_mib"])
    return [_throughputs("sharding", pairs), memory.dropna(subset=["published", "measured"])]


def _throughputs(kind: str, pairs: pd.DataFrame) -> pd.DataFrame:
    """Rows of one kind: each case's throughput over that of its base."""
    ratios = _throughput_ratios(pairs)
    published = pairs.published_throughput / pairs.published_throughput_base
    return _compared(kind, pairs, published=published, measured=[ratio.value for ratio in ratios], ratios=ratios)


def _throughput_ratios(pairs: pd.DataFrame) -> list[Ratio]:
    return [repeated_ratio(*pair) for pair in zip(pairs.throughputs, pairs.throughputs_base, strict=True)]


def _compared(
    kind: str,
    pairs: pd.DataFrame,
    published: pd.Series,
    measured: pd.Series | list[float],
    ratios: Sequence[Ratio | None] = (),
) -> pd.DataFrame:
    """Comparisons of one kind, a row each; `ratios` are the measured figures with their intervals."""
    columns: dict[str, Any] = {
        "kind": kind,
        "case": pairs.case,
        "against": pairs.case_base,
        "published": published,
        "measured": measured,
        "repeated": list(ratios) or [None] * len(pairs),
        "units": [tuple(filter(None, pair)) for pair in zip(pairs.unit, pairs.unit_base, strict=True)],
    }
    return pd.DataFrame(columns)


def published_scaling(case: Case, cases: Iterable[Case]) -> float | None:
    """The published efficiency of a case, 1 being ideal, over one GPU that does the same work.

    None for a case on one GPU, for one that is not data parallel only, and where no such single GPU was published.
    """
    work = case_row(case)
    if work["gpus"] == 1 or work["tensor"] * work["pipeline"] > 1:
        return None
    single = (other for other in cases if other.layout.world_size == 1)
    base = next((other for other in single if all(case_row(other)[name] == work[name] for name in WORK_PER_GPU)), None)
    if base is None:
        return None
    return scaling_efficiency(case.published.throughput, work["gpus"], base.published.throughput)


def agreeing(compared: Iterable[HardwareComparison | Order]) -> tuple[int, int]:
    """How many comparisons agree, of how many."""
    agrees = [comparison.agrees for comparison in compared]
    return sum(agrees), len(agrees)
