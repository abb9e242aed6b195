"""Sums up the attempts of a run: median and spread of each unit, speed-up, and parity with the reference.

`result_frame` is the table of results, a row per unit; `results.csv` is this table. `Result` is one of its rows, for
whoever reads one unit at a time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from repro.analysis.frames import attempt_frame, records, status_counts, unit_frame
from repro.planning.plan import BASELINE_PARITY_TOLERANCE, PARITY_ITERATIONS, PARITY_TOLERANCE
from repro.runs.attempts import AttemptRecord
from repro.runs.plan import Plan
from repro.runs.unit import Unit
from repro.utils.printable import spreadsheet_cell
from repro.utils.stats import largest, spread

MEDIANS = [
    "throughput_samples_per_s",
    "latency_ms",
    "memory_mib",
    "memory_peak_mib",
    "first_row_s",
    "outside_trainer_s",
    "memory_allocated_mib",
    "steady_samples_per_s",
]
"""Columns that are medians over the successful repeats of a unit, by linear interpolation
(`repro.utils.stats.quantile`).
"""
RESULT_COLUMNS = (
    "unit",
    "framework",
    "program",
    "baseline_of",
    "tuned_of",
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
    "memory_allocated_mib",
    "planned_repeats",
    "interrupted_attempts",
    "steady_samples_per_s",
)
"""Columns of the table of results; units are in the names, see `Result`."""


@dataclass(frozen=True)
class Result:
    """One unit's repeats. Throughput in samples/s, latency in ms per iteration, memory in MiB, times in seconds.

    Figures are medians over the successful repeats, None if there is none; `cv` is the sample standard deviation over
    the mean, None also with a single repeat. `speedup` is against the unit of the same report and shape on one device.
    `failed` and `interrupted` count attempts. `memory_mib` is of the whole device or process, `allocated_mib` the most
    that tensors took, where the program reports it. `steady` is the throughput in the steady state
    (`repro.analysis.steady`), None where the attempts do not have it; no verdict is drawn from it.
    """

    unit: Unit
    throughputs: tuple[float, ...]
    throughput: float | None
    cv: float | None
    latency_ms: float | None
    memory_mib: float | None
    first_row_s: float | None
    speedup: float | None
    failed: int
    planned: int
    allocated_mib: float | None = None
    interrupted: int = 0
    steady: float | None = None

    @property
    def complete(self) -> bool:
        """Whether every planned repeat succeeded that was not left out by the plan's stopping rule."""
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
        """The largest relative difference of the compared iterations, NaN if a loss is; None if either did not get so far."""
        pairs = list(zip(self.losses, self.reference_losses, strict=False))[:PARITY_ITERATIONS]
        if len(pairs) < PARITY_ITERATIONS:
            return None
        return largest(abs(a - b) / abs(b) for a, b in pairs)

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
        """Whether the losses are the reference's within the tolerance."""
        return self.difference is not None and self.difference <= self.tolerance


def result_frame(plan: Plan, attempts: list[AttemptRecord]) -> pd.DataFrame:
    """The table of results of a run, one row per unit in the plan's order, with the columns of RESULT_COLUMNS.

    `throughputs_samples_per_s`, `stands_for` and `derived_from` hold tuples; what was not measured is missing.
    """
    units = unit_frame(plan.units).set_index("unit", drop=False)
    ended = attempt_frame(attempts)
    measured = _measured(ended[ended.status == "ok"]).reindex(units.index)
    counts = status_counts(ended).reindex(units.index, fill_value=0)
    stopped = units.index.isin(ended.unit[ended.enough.notna()])
    base = pd.Series(bases(plan.units), dtype=object)
    several: dict[str, Any] = {
        "stands_for": [unit.stands_for for unit in plan.units],
        "derived_from": [unit.derived_from for unit in plan.units],
        "throughputs_samples_per_s": [
            throughputs if isinstance(throughputs, tuple) else () for throughputs in measured.throughputs
        ],
    }
    frame = units.assign(
        **measured,
        **several,
        repeats=counts.ok,
        speedup=measured.throughput_samples_per_s / base.map(measured.throughput_samples_per_s),
        failed_attempts=counts.failed,
        interrupted_attempts=counts.interrupted,
        planned_repeats=counts.ok.where(stopped, plan.repeats),
    )
    return frame.reset_index(drop=True)[list(RESULT_COLUMNS)]


def _measured(succeeded: pd.DataFrame) -> pd.DataFrame:
    """Results of the successful repeats of each unit, by the unit's name."""
    succeeded = succeeded.assign(outside_trainer_s=succeeded.wall_s - succeeded.trainer_s)
    repeats = succeeded.groupby("unit", sort=False)
    medians = repeats[MEDIANS].quantile(0.5)
    throughputs = repeats.throughput_samples_per_s.agg(tuple).astype(object)
    return medians.assign(
        memory_mib=medians.memory_mib.where(medians.memory_mib > 0, medians.memory_peak_mib),
        throughputs=throughputs,
        cv=throughputs.map(lambda values: spread(values).cv).astype("float64"),
    )


def bases(units: Sequence[Unit]) -> dict[str, str | None]:
    """The name of the unit that each one's speed-up is against, by the unit's name; None where there is none.

    It is the first with the same training on one device: same program, report, shape, precision and micro-batch. At the
    smoke scale the global batch is kept instead of the micro-batch, and the reference is the base. On one device there
    is nothing to shard an optimizer over, so it does not matter that it is sharded elsewhere. The base of a tuned unit
    that runs in turn with a published one is the tuned unit of the latter's base.
    """
    single: dict[tuple, str] = {}
    for unit in units:
        if unit.world_size == 1:
            single.setdefault(_training(unit), unit.name)
    base = {
        unit.name: single.get(_training(unit)) if unit.baseline_of or unit.reference is None else unit.reference
        for unit in units
    }
    tuned: dict[str | None, str] = {unit.tuned_of: unit.name for unit in units if unit.tuned_of}
    return {unit.name: tuned.get(base.get(unit.tuned_of)) if unit.tuned_of else base[unit.name] for unit in units}


def _training(unit: Unit) -> tuple:
    """What a unit and the one on a single GPU that its speed-up is relative to have in common."""
    config = unit.config
    shape = tuple(sorted(config.shape.items()))
    batch = config.micro_batch, config.accumulation_steps
    return unit.program, shape, unit.precision, batch, unit.report, unit.variant


def summarise(plan: Plan, attempts: list[AttemptRecord]) -> list[Result]:
    """One result per unit, in the plan's order."""
    return results_of(plan, result_frame(plan, attempts))


def results_of(plan: Plan, frame: pd.DataFrame) -> list[Result]:
    """The rows of a run's table of results."""
    return [
        Result(
            unit=unit,
            throughputs=row["throughputs_samples_per_s"],
            throughput=row["throughput_samples_per_s"],
            cv=row["cv"],
            latency_ms=row["latency_ms"],
            memory_mib=row["memory_mib"],
            first_row_s=row["first_row_s"],
            speedup=row["speedup"],
            failed=row["failed_attempts"],
            planned=row["planned_repeats"],
            allocated_mib=row["memory_allocated_mib"],
            interrupted=row["interrupted_attempts"],
            steady=row["steady_samples_per_s"],
        )
        for unit, row in zip(plan.units, records(frame), strict=True)
    ]


def results_csv(frame: pd.DataFrame) -> str:
    """The table of results as CSV; several values in a cell are separated by spaces."""
    several = ["stands_for", "derived_from", "throughputs_samples_per_s"]
    text = {name: frame[name].map(lambda values: " ".join(map(str, values))) for name in several}
    shown = frame.assign(**text)
    return shown.apply(lambda column: column.map(spreadsheet_cell)).to_csv(index=False)


def most_at_once(attempts: Sequence[AttemptRecord]) -> int:
    """Largest number of attempts that ran at the same time; overlaps of up to one second are ignored."""
    spans = [(attempt.started, attempt.ended - 1.0) for attempt in attempts]
    return max((sum(begin <= moment < end for begin, end in spans) for moment, _ in spans), default=0)


def parities(plan: Plan, attempts: list[AttemptRecord]) -> list[Parity]:
    """The parity of every unit that must print its reference's losses, from each one's first successful repeat."""
    losses: dict[str, tuple[float, ...]] = {}
    for attempt in attempts:
        if attempt.status == "ok":
            losses.setdefault(attempt.unit, tuple(attempt.losses or ()))
    return [
        Parity(
            unit,
            unit.reference,
            losses=losses.get(unit.name, ()),
            reference_losses=losses.get(unit.reference, ()),
            tolerance=BASELINE_PARITY_TOLERANCE if unit.baseline_of else PARITY_TOLERANCE,
        )
        for unit in plan.units
        if unit.reference and not unit.role
    ]
