"""Sums up the attempts of a run: median and spread of each unit, speed-up, and parity with the reference."""

import csv
import io
from dataclasses import dataclass, replace

from repro.planning.plan import BASELINE_PARITY_TOLERANCE, PARITY_ITERATIONS, PARITY_TOLERANCE, Plan, Unit
from repro.utils.stats import median, speedup, spread


@dataclass(frozen=True)
class Result:
    """One unit's repeats. Throughput in samples/s, latency in ms an iteration, memory in MiB, times in seconds.

    A figure is None if no repeat succeeded; `cv` also with a single one. `speedup` is against the unit of the
    same report and shape on one device, `failed` counts the attempts that did not succeed. `memory_mib` is of the
    whole device or process, `allocated_mib` the most that tensors took, where the program tells.
    """

    unit: Unit
    throughputs: tuple[float, ...]
    throughput: float | None
    cv: float | None
    latency_ms: float | None
    memory_mib: float | None
    first_row_s: float | None
    outside_s: float | None
    speedup: float | None
    failed: int
    planned: int
    allocated_mib: float | None = None

    @property
    def complete(self) -> bool:
        return len(self.throughputs) == self.planned


@dataclass(frozen=True)
class Parity:
    """How far a unit's first losses are from its reference's, relative to the reference's."""

    unit: Unit
    reference: str
    losses: tuple[float, ...]
    reference_losses: tuple[float, ...]
    tolerance: float = PARITY_TOLERANCE

    @property
    def difference(self) -> float | None:
        """The largest relative difference of the compared iterations; None if either did not get so far."""
        pairs = list(zip(self.losses, self.reference_losses, strict=False))[:PARITY_ITERATIONS]
        if len(pairs) < PARITY_ITERATIONS:
            return None
        return max(abs(a - b) / abs(b) for a, b in pairs)

    @property
    def last_loss(self) -> float | None:
        """The loss at the last iteration that is compared."""
        return self.losses[PARITY_ITERATIONS - 1] if len(self.losses) >= PARITY_ITERATIONS else None

    @property
    def last_reference_loss(self) -> float | None:
        """The reference's loss at that iteration."""
        return self.reference_losses[PARITY_ITERATIONS - 1] if len(self.reference_losses) >= PARITY_ITERATIONS else None

    @property
    def holds(self) -> bool:
        return self.difference is not None and self.difference <= self.tolerance


def summarise(plan: Plan, attempts: list[dict]) -> list[Result]:
    """One result a unit, in the plan's order."""
    plain = [_result(unit, plan.repeats, [a for a in attempts if a["unit"] == unit.name]) for unit in plan.units]
    return [_with_speedup(result, plain) for result in plain]


def _result(unit: Unit, planned: int, attempts: list[dict]) -> Result:
    good = [attempt for attempt in attempts if attempt["status"] == "ok"]
    throughputs = tuple(attempt["throughput"] for attempt in good)
    return Result(
        unit=unit,
        throughputs=throughputs,
        throughput=median(throughputs) if good else None,
        cv=spread(throughputs).cv if good else None,
        latency_ms=_median_of(good, "latency_ms"),
        memory_mib=_median_of(good, "memory_mib") or _median_of(good, "memory_peak_mib"),
        first_row_s=_median_of(good, "first_row_s"),
        outside_s=median([a["wall_s"] - a["trainer_s"] for a in good]) if good else None,
        speedup=None,
        failed=sum(attempt["status"] == "failed" for attempt in attempts),
        planned=planned,
        allocated_mib=_median_of(good, "memory_allocated_mib"),
    )


def _median_of(attempts: list[dict], key: str) -> float | None:
    values = [attempt[key] for attempt in attempts if attempt.get(key) is not None]
    return median(values) if values else None


def _with_speedup(result: Result, results: list[Result]) -> Result:
    base = next((other for other in results if is_base_of(other.unit, result.unit)), None)
    if result.throughput is None or base is None or base.throughput is None:
        return result
    return replace(result, speedup=speedup(result.throughput, base.throughput))


def most_at_once(attempts: list[dict]) -> int:
    """How many attempts went on at the same time, where that was the most; one second is taken for chance."""
    spans = [(attempt["started"], attempt["started"] + attempt["wall_s"] - 1.0) for attempt in attempts]
    return max((sum(begin <= moment < end for begin, end in spans) for moment, _ in spans), default=0)


def is_base_of(base: Unit, unit: Unit) -> bool:
    """Whether `base` is `unit`'s training on one device: same program, report, shape, precision and micro-batch.

    At the smoke scale the global batch is kept instead of the micro-batch, and the reference is the base. On one
    device there is nothing to shard an optimizer over, so that it is sharded elsewhere makes no difference.
    """
    if unit.reference and not unit.baseline_of:
        return base.name == unit.reference
    same = ("shape", "precision", "micro_batch", "log_generation", "accumulation_steps", "baseline")
    return base.world_size == 1 and all(base.config.get(key) == unit.config.get(key) for key in same)


def parities(plan: Plan, attempts: list[dict]) -> list[Parity]:
    """The parity of every unit that must print its reference's losses, from each one's first successful repeat."""
    losses: dict[str, tuple] = {}
    for attempt in attempts:
        if attempt["status"] == "ok":
            losses.setdefault(attempt["unit"], tuple(attempt["losses"]))
    return [
        Parity(
            unit,
            unit.reference,
            losses.get(unit.name, ()),
            losses.get(unit.reference, ()),
            BASELINE_PARITY_TOLERANCE if unit.baseline_of else PARITY_TOLERANCE,
        )
        for unit in plan.units
        if unit.reference and not unit.role
    ]


RESULT_COLUMNS = (
    "unit",
    "program",
    "baseline_of",
    "model",
    "stands_for",
    "derived_from",
    "world_size",
    "global_batch",
    "repeats",
    "throughput_samples_per_s",
    "cv",
    "latency_ms",
    "memory_mib",
    "speedup",
    "first_row_s",
    "outside_trainer_s",
    "failed_attempts",
    "throughputs_samples_per_s",
)


def results_csv(results: list[Result]) -> str:
    """The results as CSV, a row a unit; several values in a cell are separated by spaces."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(RESULT_COLUMNS)
    for result in results:
        writer.writerow([" ".join(map(str, cell)) if isinstance(cell, tuple) else cell for cell in result_row(result)])
    return out.getvalue()


def result_row(result: Result) -> tuple:
    """A result's cells in the order of RESULT_COLUMNS; tuples where there are several values."""
    unit = result.unit
    return (
        unit.name,
        unit.program,
        unit.baseline_of,
        unit.model,
        unit.stands_for,
        unit.derived_from,
        unit.world_size,
        unit.global_batch,
        len(result.throughputs),
        result.throughput,
        result.cv,
        result.latency_ms,
        result.memory_mib,
        result.speedup,
        result.first_row_s,
        result.outside_s,
        result.failed,
        result.throughputs,
    )
