"""Compares what holds across hardware: scaling, memory, ratios between layouts, and the order of cases."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from repro.analysis.ratio import Ratio, repeated_ratio
from repro.analysis.results import Result
from repro.published.cases import Case
from repro.utils.stats import relative_difference, scaling_efficiency

TOLERANCES = {"scaling": 0.05, "memory": 0.10, "layout": 0.10, "sharding": 0.10, "memory_sharding": 0.10}
Measured = list[tuple[Case, Result]]


@dataclass(frozen=True)
class Comparison:
    """A measured figure beside its published one, and whether it agrees within a relative tolerance.

    `kind` is "scaling" (efficiency from case `against` on), "memory" (MiB), "layout" or "sharding" (throughput over
    that of `against`), or "memory_sharding" (memory over that of `against`); `repeated` is the measured ratio with
    its interval, None where repeats give none.
    """

    kind: str
    case: str
    against: str | None
    published: float
    measured: float
    tolerance: float
    repeated: Ratio | None = None

    @property
    def difference(self) -> float:
        return relative_difference(self.measured, self.published)

    @property
    def agrees(self) -> bool:
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
    """The cases of one report on equally many GPUs, fastest first as published and as measured.

    `swapped` holds the pairs that differ by more than the tolerance both times, but the other way round.
    """

    report: str
    gpus: int
    published: tuple[str, ...]
    measured: tuple[str, ...]
    swapped: tuple[tuple[str, str], ...]
    tolerance: float

    @property
    def agrees(self) -> bool:
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


def comparisons(measured: Measured, given: float | None = None) -> list[Comparison]:
    """Every comparison that the measured cases allow, by kind; `given` replaces each kind's own tolerance.

    The tolerances are this project's choice: 5 % in scaling efficiency is less than lies between the frameworks that
    were published side by side, 10 % in memory is what one nvidia-smi reading and another allocator leave open, and
    ratios between layouts shift with the balance of compute and network.
    """
    usable = [(case, result) for case, result in measured if result.throughput is not None]
    found = [*_scaling(usable), *_memory(usable), *_layouts(usable), *_sharding(usable)]
    order = list(TOLERANCES)
    return [
        Comparison(kind, *rest, tolerance=given or TOLERANCES[kind], repeated=repeated)
        for kind, *rest, repeated in sorted(found, key=lambda each: order.index(each[0]))
    ]


def orders(measured: Measured, tolerance_of) -> list[Order]:
    """The order within each report and number of GPUs; `tolerance_of` gives a case's relative tolerance."""
    groups: dict[tuple[str, int], Measured] = {}
    for case, result in measured:
        if result.throughput is not None:
            groups.setdefault((case.report, case.layout.world_size), []).append((case, result))
    return [
        _order(*key, group, max(tolerance_of(case) for case, _ in group))
        for key, group in groups.items()
        if len(group) > 1
    ]


def _order(report: str, gpus: int, group: Measured, tolerance: float) -> Order:
    swapped = []
    for index, (one, first) in enumerate(group):
        for other, second in group[index + 1 :]:
            published = one.published.throughput / other.published.throughput
            measured = first.throughput / second.throughput
            if _side(published, tolerance) * _side(measured, tolerance) < 0:
                swapped.append((one.name, other.name))
    by_published = sorted(group, key=lambda pair: -pair[0].published.throughput)
    by_measured = sorted(group, key=lambda pair: -pair[1].throughput)
    names = ([case.name for case, _ in ranked] for ranked in (by_published, by_measured))
    return Order(report, gpus, *map(tuple, names), tuple(swapped), tolerance)


def _side(ratio: float, tolerance: float) -> int:
    """1 above, -1 below, 0 within the tolerance of one."""
    return 0 if abs(ratio - 1) <= tolerance else (1 if ratio > 1 else -1)


def _scaling(measured: Measured) -> Iterator[tuple]:
    """Efficiency of data parallelism from the fewest GPUs that were measured of the same work a GPU."""
    for base, group in _groups(measured, _work_a_gpu):
        gpus = base[0].layout.world_size
        for case, result in group:
            if case.layout.world_size > gpus:
                published = _published(case, base[0])
                value = scaling_efficiency(result.throughput, case.layout.world_size, base[1].throughput, gpus)
                scaled = repeated_ratio(result.throughputs, base[1].throughputs).over(case.layout.world_size / gpus)
                yield "scaling", case.name, base[0].name, published, value, scaled


def _published(case: Case, base: Case) -> float:
    gpus = case.layout.world_size, base.layout.world_size
    return scaling_efficiency(case.published.throughput, gpus[0], base.published.throughput, gpus[1])


def published_scaling(case: Case, cases: Iterable[Case]) -> float | None:
    """The published efficiency of a case, 1 being ideal, over one GPU that does the same work.

    None of a case on one GPU, of one that is not data parallel alone, and where no such single GPU was published.
    """
    work = _work_a_gpu(case)
    exclusive = [each for each in cases if each.layout.world_size == 1 and _work_a_gpu(each) == work]
    return _published(case, exclusive[0]) if work and exclusive and case.layout.world_size > 1 else None


def _work_a_gpu(case: Case) -> tuple | None:
    if case.layout.tensor * case.layout.pipeline > 1:
        return None
    work = (case.report, case.micro_batch, case.accumulation_steps, case.precision, case.optimizer_sharding)
    return (*work, _shape(case))


def _memory(measured: Measured) -> Iterator[tuple]:
    for case, result in measured:
        if case.published.memory_mib and result.memory_mib:
            yield "memory", case.name, None, case.published.memory_mib, result.memory_mib, None


def _layouts(measured: Measured) -> Iterator[tuple]:
    """Layouts of the same training on equally many GPUs, over the most data-parallel of them."""
    for base, group in _groups(measured, lambda case: (*_training(case), case.optimizer_sharding)):
        for case, result in group:
            if case.layout != base[0].layout:
                yield "layout", case.name, base[0].name, *_throughputs(case, result, *base)


def _sharding(measured: Measured) -> Iterator[tuple]:
    """Sharded optimizer state over unsharded, all else equal."""
    for (base_case, base), group in _groups(measured, lambda case: (*_training(case), case.layout)):
        for case, result in group:
            if case.optimizer_sharding == base_case.optimizer_sharding:
                continue
            yield "sharding", case.name, base_case.name, *_throughputs(case, result, base_case, base)
            memories = case.published.memory_mib, base_case.published.memory_mib, result.memory_mib, base.memory_mib
            if all(memories):
                published, measured_ratio = memories[0] / memories[1], memories[2] / memories[3]
                yield "memory_sharding", case.name, base_case.name, published, measured_ratio, None


def _throughputs(case: Case, result: Result, base_case: Case, base: Result) -> tuple[float, float, Ratio]:
    ratio = repeated_ratio(result.throughputs, base.throughputs)
    return case.published.throughput / base_case.published.throughput, ratio.value, ratio


def _groups(measured: Measured, key) -> Iterator[tuple[tuple[Case, Result], Measured]]:
    """Groups of more than one case with the same key, each with the case that the others are measured against."""
    groups: dict[tuple, Measured] = {}
    for case, result in measured:
        if key(case) is not None:
            groups.setdefault(key(case), []).append((case, result))
    for group in groups.values():
        if len(group) > 1:
            yield min(group, key=lambda pair: _plainness(pair[0])), group


def _plainness(case: Case) -> tuple:
    """Orders cases by what one starts from: fewer GPUs, unsharded, more data parallel."""
    layout = case.layout
    return layout.world_size, case.optimizer_sharding, -layout.data, -layout.tensor


def _training(case: Case) -> tuple:
    return (
        case.report,
        case.layout.world_size,
        case.global_batch,
        case.precision,
        case.activation_checkpointing,
        _shape(case),
    )


def _shape(case: Case) -> tuple:
    return tuple(sorted(case.shape.items()))


def agreeing(found: Iterable[Comparison | Order]) -> tuple[int, int]:
    """How many comparisons agree, of how many."""
    each = [comparison.agrees for comparison in found]
    return sum(each), len(each)
