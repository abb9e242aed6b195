"""Findings of `make profile`: the profile of each case, of its tuned program, and of its baselines."""

from dataclasses import dataclass

from repro.analysis.chrome_trace import TIMELINE
from repro.analysis.kernel_trace import Profile
from repro.runs.attempts import AttemptRecord
from repro.runs.files import RunPath
from repro.runs.plan import Plan
from repro.runs.unit import Unit


@dataclass(frozen=True)
class Profiled:
    """A unit and its profile; None if no attempt at it succeeded.

    `timeline` is its file for Perfetto below the run's folder, "" in runs that did not keep one.
    """

    unit: Unit
    profile: Profile | None
    timeline: str = ""


@dataclass(frozen=True)
class ProfileComparison:
    """A case of OneFlow's and what ran in turn with it, in the plan's order: its tuned program, its baselines."""

    own: Profiled
    others: tuple[Profiled, ...]


@dataclass(frozen=True)
class Profiles:
    """All that was profiled in a run."""

    comparisons: tuple[ProfileComparison, ...]

    @property
    def every(self) -> list[Profiled]:
        """Cases and what ran in turn with them, in the plan's order."""
        return [
            profiled_unit for comparison in self.comparisons for profiled_unit in (comparison.own, *comparison.others)
        ]

    @property
    def problems(self) -> list[str]:
        """A line if something has no profile."""
        missing = [profiled_unit.unit.name for profiled_unit in self.every if profiled_unit.profile is None]
        return [f"{len(missing)} configurations have no profile ({', '.join(missing)})"] if missing else []

    def summary(self) -> str:
        """How long an iteration takes and how much of it the GPU is busy, one line per unit."""
        lines = [
            f"{profiled_unit.unit.name}: {profiled_unit.profile.iteration_ms:.2f} ms an iteration, traced; the GPU is busy "
            f"{profiled_unit.profile.busy_ms / profiled_unit.profile.iteration_ms:.1%} of it"
            for profiled_unit in self.every
            if profiled_unit.profile
        ]
        return "\n".join((*lines, *self.problems))


def profiles(plan: Plan, attempts: list[AttemptRecord], files: RunPath) -> Profiles:
    """Read the profiles of a run, whose files these are, from its first successful attempt at each unit."""
    good: dict[str, str] = {}
    for attempt in attempts:
        if attempt.status == "ok":
            good.setdefault(attempt.unit, attempt.folder)
    profiled_units = [_profiled(unit, good.get(unit.name), files) for unit in plan.units]
    return Profiles(
        tuple(
            ProfileComparison(
                profiled_unit, tuple(other for other in profiled_units if other.unit.follows == profiled_unit.unit.name)
            )
            for profiled_unit in profiled_units
            if not profiled_unit.unit.follows
        )
    )


def _profiled(unit: Unit, folder: str | None, files: RunPath) -> Profiled:
    if folder is None:
        return Profiled(unit, None)
    timeline = f"{folder}/{TIMELINE}"
    return Profiled(unit, Profile.read(files / folder), timeline if (files / timeline).is_file() else "")
