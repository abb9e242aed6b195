"""Whether models learned real data: the loss that each must reach, and the one that it reached."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from repro.analysis.loss_curves import read_losses
from repro.runs.attempts import AttemptRecord
from repro.runs.description import Goal
from repro.runs.files import RunPath
from repro.runs.plan import Plan
from repro.runs.unit import Unit
from repro.utils.stats import largest

TAIL = 10
"""The loss that counts is the mean over the last 1/TAIL of all iterations."""


@dataclass(frozen=True)
class ConvergenceResult:
    """Convergence of a unit: losses of each successful repeat, in nats, and the smallest share of correct labels, if
    any.
    """

    unit: Unit
    goal: Goal
    losses: tuple[tuple[float, ...], ...] = ()
    top_1: float | None = None

    @property
    def reached(self) -> float | None:
        """Mean loss of the last iterations in the worst repeat; None without a repeat of all iterations."""
        if not self.losses or min(map(len, self.losses)) < self.unit.config.iterations:
            return None
        return largest(tail_mean(losses) for losses in self.losses)

    @property
    def holds(self) -> bool:
        return self.reached is not None and self.reached < self.goal.limit


@dataclass(frozen=True)
class Convergence:
    """What all units of a run learned, in the plan's order."""

    results: tuple[ConvergenceResult, ...]

    @property
    def problems(self) -> list[str]:
        """A line for each unit that did not learn what it must."""
        return [
            f"{result.unit.name}: "
            + (
                "no repeat ran to its end"
                if result.reached is None
                else f"its last losses are {result.reached:.3f} on average, they must be below {result.goal.limit:.3f}"
            )
            for result in self.results
            if not result.holds
        ]

    def summary(self) -> str:
        """A line for each unit."""
        held = [
            f"{result.unit.name}: last losses {result.reached:.3f} on average, must be below {result.goal.limit:.3f}"
            for result in self.results
            if result.holds
        ]
        return "\n".join((*held, *self.problems))


def learned(plan: Plan, attempts: list[AttemptRecord], files: RunPath, goals: Mapping[str, Goal]) -> Convergence:
    """Convergence of each unit of a run.

    Parameters
    ----------
    files : the run's files; losses are read from the metrics of rank 0.
    goals : by unit.
    """
    results = []
    for unit in plan.units:
        folders = [
            files / attempt.folder for attempt in attempts if attempt.unit == unit.name and attempt.status == "ok"
        ]
        losses = tuple(map(read_losses, folders))
        shares = [share for folder in folders if (share := _top_1(folder)) is not None]
        results.append(ConvergenceResult(unit, goals[unit.name], losses, min(shares, default=None)))
    return Convergence(tuple(results))


def tail_mean(values: tuple[float, ...]) -> float:
    """Mean of the last 1/TAIL of the values, at least one."""
    tail = values[-max(1, len(values) // TAIL) :]
    return math.fsum(tail) / len(tail)


def _top_1(attempt: RunPath) -> float | None:
    shares = read_losses(attempt, "top_1")
    return tail_mean(shares) if shares else None
