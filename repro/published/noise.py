"""Published cases compared with each other: how much noise they admit, and what one GPU reached."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from repro.published.cases import Case
from repro.utils.grouping import by_key
from repro.utils.stats import Spread, spread


@dataclass(frozen=True, eq=False)
class Noise:
    """How far equal configurations differ in the published figures.

    `repeats` maps a case's name to the spread of its runs; `duplicates` maps two names of one configuration to the
    difference of their throughputs over their mean.
    """

    repeats: dict[str, Spread]
    duplicates: dict[tuple[str, str], float]

    @property
    def cvs(self) -> dict[str, float]:
        """The CV of each repeated case; all have one, as a case is repeated from 2 runs on and throughput is above 0."""
        return {name: spread.cv for name, spread in self.repeats.items() if spread.cv is not None}

    @property
    def cases(self) -> tuple[str, ...]:
        """The cases that show it: those that were repeated, and those of a configuration that stands twice."""
        return tuple(dict.fromkeys([*self.repeats, *(name for pair in self.duplicates for name in pair)]))

    @property
    def largest(self) -> float:
        """The largest relative deviation seen, 0 if nothing was repeated."""
        return max([*self.cvs.values(), *self.duplicates.values()], default=0.0)


def configuration(case: Case) -> tuple:
    """All that makes two cases of one report the same measurement, whatever they are called."""
    return (
        case.report,
        case.nodes,
        case.gpus_per_node,
        case.layout,
        case.micro_batch,
        case.accumulation_steps,
        case.precision,
        case.activation_checkpointing,
        case.optimizer_sharding,
        tuple(sorted(case.shape.items())),
    )


def duplicates(cases: Iterable[Case]) -> tuple[tuple[Case, ...], ...]:
    """Groups of cases of one report that publish the same configuration more than once."""
    return tuple(tuple(group) for group in by_key(cases, configuration).values() if len(group) > 1)


def published_noise(cases: Iterable[Case]) -> Noise:
    """The spread of every repeated case, and the difference between every two cases of one configuration."""
    cases = tuple(cases)
    repeats = {case.name: spread(case.published.repeats) for case in cases if len(case.published.repeats) > 1}
    differences = {}
    for group in duplicates(cases):
        for index, first in enumerate(group):
            for second in group[index + 1 :]:
                one, other = first.published.throughput, second.published.throughput
                differences[first.name, second.name] = 2 * abs(one - other) / (one + other)
    return Noise(repeats, differences)


def baseline(case: Case, cases: Iterable[Case]) -> Case | None:
    """The 1-GPU case of the same report, batch size and model shape, or None if there is none."""
    for other in cases:
        if other.layout.world_size == 1 and _per_gpu_work(other) == _per_gpu_work(case):
            return other
    return None


def _per_gpu_work(case: Case) -> tuple:
    return case.report, case.micro_batch, case.accumulation_steps, case.precision, tuple(sorted(case.shape.items()))


def speedup(case: Case, cases: Iterable[Case]) -> float | None:
    """Published throughput over that of the 1-GPU baseline, or None without a baseline."""
    single = baseline(case, cases)
    return case.published.throughput / single.published.throughput if single else None
