"""What a rehearsal showed of each case: whether it ran to its end, how long and with how much memory, and its losses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from repro.analysis.results import Parity, parities
from repro.planning.rehearsal import is_reference
from repro.runs.attempts import AttemptRecord
from repro.runs.failures import Failure
from repro.runs.files import RunPath
from repro.runs.metrics import METRICS, events
from repro.runs.plan import Plan
from repro.runs.unit import Unit
from repro.utils import last_lines
from repro.utils.i18n import N_


@dataclass(frozen=True)
class Rehearsed:
    """One training of a rehearsal, which its cases share.

    `seconds` are those of the attempt, start-up included; `memory_mib` is the sum of the ranks' largest resident
    memory. Without `failure` it ran to its end and its report's rule could be applied to its log.
    """

    unit: Unit
    failure: Failure | None = None
    seconds: float | None = None
    memory_mib: float | None = None
    parity: Parity | None = None

    @property
    def cases(self) -> tuple[str, ...]:
        """The published cases that it rehearses, whole or shrunk."""
        return (*self.unit.stands_for, *self.unit.derived_from)

    @property
    def holds(self) -> bool:
        return self.failure is None and (self.parity is None or self.parity.holds)


@dataclass(frozen=True)
class Rehearsal:
    """All trainings of a rehearsal that rehearse cases, in the plan's order; and the references that failed.

    `skipped` are the cases that could not be placed.
    """

    trainings: tuple[Rehearsed, ...]
    skipped: tuple[str, ...] = ()

    @property
    def problems(self) -> list[str]:
        """A line for each training that failed, or whose losses are not its reference's."""
        return [f"{training.unit.name}: {_problem(training)}" for training in self.trainings if not training.holds]

    def summary(self) -> str:
        """What ended, and what agreed."""
        cases = [case for training in self.trainings for case in training.cases]
        ended = [case for training in self.trainings if training.failure is None for case in training.cases]
        compared = [training for training in self.trainings if training.parity]
        agree = sum(training.holds for training in compared)
        said = last_lines.rehearsed(len(ended), len(cases))
        if compared:
            said += f"; {agree} of {len(compared)} layouts have the losses of one process"
        return f"{said}; {len(self.skipped)} cases were NOT rehearsed, the reports say why" if self.skipped else said


def rehearsed(plan: Plan, attempts: Sequence[AttemptRecord], files: RunPath) -> Rehearsal:
    """What each training of a plan showed, by its last attempt; `files` are the run's."""
    last = {attempt.unit: attempt for attempt in attempts}
    compared = {parity.unit.name: parity for parity in parities(plan, list(attempts))}
    chosen = [unit for unit in plan.units if not is_reference(unit) or not _ended(last.get(unit.name))]
    trainings = (_rehearsed(unit, last.get(unit.name), compared.get(unit.name), files) for unit in chosen)
    return Rehearsal(tuple(trainings), tuple(skipped.case for skipped in plan.skipped))


def _rehearsed(unit: Unit, attempt: AttemptRecord | None, parity: Parity | None, files: RunPath) -> Rehearsed:
    if attempt is None:
        return Rehearsed(unit, Failure(N_("was not run"), {}))
    peaks = [_peak_mib(files / attempt.folder / METRICS.format(rank)) for rank in range(unit.world_size)]
    failure = None if _ended(attempt) else attempt.failure or INTERRUPTED
    return Rehearsed(
        unit,
        failure,
        seconds=attempt.wall_s,
        memory_mib=sum(peaks) if all(peaks) else None,
        parity=parity if not failure else None,
    )


INTERRUPTED = Failure(N_("was interrupted"), {})


def _ended(attempt: AttemptRecord | None) -> bool:
    return attempt is not None and attempt.status == "ok"


def _peak_mib(metrics: RunPath) -> float:
    """A rank's largest resident memory in MiB; 0 if it wrote none."""
    return max((event.get("peak_memory_mib") or 0.0 for event in events(metrics)), default=0.0)


def _problem(training: Rehearsed) -> str:
    if training.failure:
        return training.failure.text()
    difference = training.parity.difference if training.parity else None
    if difference is None:
        return f"its losses cannot be compared with those of {training.unit.reference}, which did not run to its end"
    return f"its losses differ from those of {training.unit.reference} by {difference:.1e}"
