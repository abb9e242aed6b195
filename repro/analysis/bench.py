"""Whether a bench is whole: every configuration succeeded in every repeat, and equal layouts print equal losses."""

from collections.abc import Sequence
from dataclasses import dataclass

from repro.analysis.results import Parity, Result, parities
from repro.runs.attempts import AttemptRecord
from repro.runs.plan import Plan
from repro.utils import last_lines


@dataclass(frozen=True)
class BenchFindings:
    """The results and parities of a bench, in the plan's order."""

    results: tuple[Result, ...]
    parities: tuple[Parity, ...]

    @property
    def problems(self) -> list[str]:
        """A line for what failed, and one for layouts whose losses differ from their reference's."""
        failed = [result.unit.name for result in self.results if not result.complete]
        apart = [parity.unit.name for parity in self.parities if not parity.holds and parity.unit.name not in failed]
        lines = [f"{len(failed)} configurations failed ({', '.join(failed)})"] if failed else []
        if apart:
            lines.append(f"{len(apart)} layouts do not print the losses of their reference ({', '.join(apart)})")
        return lines

    def summary(self) -> str:
        """How many configurations succeeded in every repeat, and how many print their reference's losses."""
        succeeded = sum(result.complete for result in self.results)
        lines = [last_lines.benched(succeeded, len(self.results))]
        if self.parities:
            held = sum(parity.holds for parity in self.parities)
            lines.append(f"{held} of {len(self.parities)} print the losses of their reference")
        return "; ".join(lines)


def examine(plan: Plan, attempts: list[AttemptRecord], results: Sequence[Result]) -> BenchFindings:
    """Findings of a bench; `results` summarise its attempts."""
    return BenchFindings(tuple(results), tuple(parities(plan, attempts)))
