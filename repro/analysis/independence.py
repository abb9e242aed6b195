"""How far repeats depend on each other, and how much more often intervals miss than they state if these do.

An interval of order statistics has its confidence if repeats are independent, and Student's t if their logarithms are
normally distributed. Neither can be taken for granted of a GPU that warms up, or of speeds that are rarely far too low.
So the dependence is measured, and the error of an interval under dependence and skew is simulated, with a fixed seed.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from operator import mul
from statistics import stdev

from repro.utils.sequential import Looks
from repro.utils.stats import geometric_interval, quantile

SEED = 20210512
TRIALS = 4000
SHUFFLES = 1000
LEAST = 3
"""The shortest series with an autocorrelation: of two repeats the second is always on the other side of their mean."""
Series = Sequence[float]
"""Repeats in the order in which they ran."""


@dataclass(frozen=True)
class Dependence:
    """A measure of how far repeats depend on each other, over several sets of repeats; 0 if they do not.

    `low` and `high` hold 95% of the values that the same repeats give in random order; `sets` and `repeats` are the numbers.
    """

    value: float
    low: float
    high: float
    sets: int
    repeats: int

    @property
    def seen(self) -> bool:
        """Whether it is larger than chance explains."""
        return self.value > self.high


def autocorrelation(series: Iterable[Series]) -> Dependence | None:
    """The correlation of a repeat with the next one, pooled over series; None without a series.

    A series counts from LEAST repeats on that are not all equal. Its own coefficient is about its own mean, and therefore
    -1/n on average for n independent repeats (Kendall, Biometrika 41, 1954); this is added. The pooled value weighs each
    series by n - 1.
    """
    counting = [(repeats,) for repeats in series if len(repeats) >= LEAST and len(set(repeats)) > 1]
    return _measured(lambda sets: _pooled_lag_one([repeats for (repeats,) in sets]), counting)


def _pooled_lag_one(series: Sequence[Series]) -> float:
    weights = [len(repeats) - 1 for repeats in series]
    values = [_lag_one(repeats) + 1 / len(repeats) for repeats in series]
    return math.fsum(w * v for w, v in zip(weights, values, strict=True)) / sum(weights)


def _lag_one(values: Series) -> float:
    mean = math.fsum(values) / len(values)
    off = [value - mean for value in values]
    return math.fsum(map(mul, off, off[1:])) / math.fsum(map(mul, off, off))


def shared_variance(configurations: Iterable[Sequence[Series]]) -> Dependence | None:
    """The share of the variance that repeats of one session have in common, over configurations; None without one.

    Of each configuration the repeats of each session, positive numbers. It counts if it has several sessions, and one of
    them several repeats. Their logarithms are scaled to one variance for all configurations, and the share is that of
    the one-way analysis of variance (Searle, Casella & McCulloch, Variance Components, 1992, section 3.6). It is below 0
    if sessions lie closer together than repeats.
    """
    logs = ([[math.log(value) for value in session] for session in sessions] for sessions in configurations)
    counting = [sessions for sessions in logs if _has_both(sessions)]
    return _measured(_pooled_share, [_scaled(sessions) for sessions in counting])


def _has_both(sessions: Sequence[Series]) -> bool:
    values = [value for session in sessions for value in session]
    return 1 < len(sessions) < len(values) and len(set(values)) > 1


def _scaled(sessions: Sequence[Series]) -> tuple[Series, ...]:
    deviation = stdev(value for session in sessions for value in session)
    return tuple([value / deviation for value in session] for session in sessions)


def _pooled_share(configurations: Sequence[Sequence[Series]]) -> float:
    between = within = size = 0.0
    sessions = repeats = 0
    for groups in configurations:
        count = sum(map(len, groups))
        mean = math.fsum(value for group in groups for value in group) / count
        means = [math.fsum(group) / len(group) for group in groups]
        between += math.fsum(len(group) * (own - mean) ** 2 for group, own in zip(groups, means, strict=True))
        within += math.fsum((value - own) ** 2 for group, own in zip(groups, means, strict=True) for value in group)
        size += count - sum(len(group) ** 2 for group in groups) / count
        sessions += len(groups) - 1
        repeats += count - len(groups)
    own = within / repeats
    common = (between / sessions - own) / (size / sessions)
    return common / (common + own)


def _measured(
    value: Callable[[Sequence[Sequence[Series]]], float], sets: Sequence[Sequence[Series]]
) -> Dependence | None:
    """The value of sets of series, and what it is with the repeats of each set in random order."""
    if not sets:
        return None
    generator = random.Random(SEED)
    shuffled = [value([tuple(_shuffled(generator, group)) for group in sets]) for _ in range(SHUFFLES)]
    repeats = sum(len(series) for group in sets for series in group)
    return Dependence(
        value(sets), quantile(shuffled, 0.025), high=quantile(shuffled, 0.975), sets=len(sets), repeats=repeats
    )


def _shuffled(generator: random.Random, series: Sequence[Series]) -> Iterator[Series]:
    """Series of the same lengths, of the same values in random order."""
    values = [value for repeats in series for value in repeats]
    generator.shuffle(values)
    for repeats in series:
        yield values[: len(repeats)]
        del values[: len(repeats)]


@cache
def error_of_looks(looks: Looks, correlation: float = 0.0, shared: float = 0.0) -> float:
    """How often the interval of at least one look misses the median of dependent, normally distributed repeats.

    Parameters
    ----------
    correlation : of a repeat with the next one, in an autoregressive series of first order.
    shared : the share of the variance that all repeats of a run have in common, as those of one session may.
    """
    generator = random.Random(SEED)
    runs = [_below(generator, looks[-1].repeats, correlation, shared) for _ in range(TRIALS)]
    missed = sum(
        any(not look.trim <= sum(run[: look.repeats]) <= look.repeats - look.trim for look in looks) for run in runs
    )
    return missed / TRIALS


def _below(generator: random.Random, repeats: int, correlation: float, shared: float) -> list[bool]:
    """Which repeats of a simulated run are below the median."""
    common = math.sqrt(shared) * generator.gauss(0, 1)
    value, below = generator.gauss(0, 1), []
    for _ in range(repeats):
        below.append(common + math.sqrt(1 - shared) * value < 0)
        value = correlation * value + math.sqrt(1 - correlation**2) * generator.gauss(0, 1)
    return below


@cache
def student_coverage(sessions: int, confidence: float = 0.95) -> float:
    """How often Student's t holds the mean of skewed sessions: their deviations are exponential, rarely far too slow."""
    generator = random.Random(SEED)
    hits = 0
    for _ in range(TRIALS):
        sample = [math.exp(1 - generator.expovariate(1)) for _ in range(sessions)]
        interval = geometric_interval(sample, confidence)
        hits += bool(interval and max(interval.low, 1 / interval.high) <= 1)
    return hits / TRIALS
