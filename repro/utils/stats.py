"""The statistics that compare repeated measurements: medians, spreads, intervals, and refusals where samples are too few."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

ORDER_STATISTICS, STUDENT = "order statistics", "Student's t over sessions"
FEWEST = 2
"""Fewest samples from which an interval is given: one sample has no spread."""
HALVINGS = 60


@dataclass(frozen=True)
class Spread:
    """Spread of repeated measurements, in their own unit.

    `standard_deviation` is that of the sample (n - 1), `cv` the standard deviation divided by the mean, dimensionless.
    They are None with too few samples.
    """

    samples: int
    median: float
    mean: float
    minimum: float
    maximum: float
    standard_deviation: float | None
    cv: float | None


@dataclass(frozen=True)
class Interval:
    """A confidence interval in the unit of the samples, or without one for a ratio.

    `confidence` is the probability that is reached, not the one that was asked for; `method` the name of the method,
    `samples` the number of samples on each side.
    """

    low: float
    high: float
    confidence: float
    method: str
    samples: tuple[int, ...]

    def over(self, factor: float, rounding: float = 0.0) -> "Interval":
        """The interval divided by a number that is known to within `rounding`, in its own unit."""
        low, high = self.low / (factor + rounding), self.high / (factor - rounding)
        return Interval(low, high, self.confidence, self.method, self.samples)


@dataclass(frozen=True)
class TooFew:
    """No interval: there are fewer samples than any needs, or all are `equal` where their spread makes the interval.

    It is false in a condition.

    `samples` is the number on each side, `needed` how many there must be on each for the confidence that was asked for.
    """

    samples: tuple[int, ...]
    needed: int
    equal: bool = False

    def __bool__(self) -> Literal[False]:
        return False

    def __str__(self) -> str:
        got = " and ".join(map(str, self.samples))
        if self.equal:
            return f"all samples are equal ({got}), which says nothing of their spread"
        return f"too few samples: {got}, where {self.needed} are needed"


def nan_last(value: float) -> tuple[bool, float]:
    """Orders numbers with NaN after all others: `max` and `sorted` alone lose it, or keep it, by its place."""
    return math.isnan(value), value


def largest(values: Iterable[float]) -> float:
    """The largest value, NaN if any is; ValueError without values."""
    return max(values, key=nan_last)


def median(values: Sequence[float]) -> float:
    """Middle value, or the mean of the two middle ones; ValueError without values."""
    return quantile(values, 0.5)


def quantile(values: Sequence[float], probability: float) -> float:
    """Quantile by linear interpolation between order statistics (type 7 of Hyndman & Fan 1996)."""
    if not values:
        raise ValueError("no values: a quantile needs at least one")
    ordered = sorted(values)
    position = probability * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])


def spread(values: Sequence[float]) -> Spread:
    """Spread of repeated measurements: sample standard deviation and CV from 2 samples on, IQR from 4."""
    count, mean = len(values), math.fsum(values) / max(1, len(values))
    deviation = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (count - 1)) if count > 1 else None
    return Spread(
        samples=count,
        median=median(values),
        mean=mean,
        minimum=min(values),
        maximum=max(values),
        standard_deviation=deviation,
        cv=deviation / mean if deviation is not None and mean else None,
    )


def speedup(throughput: float, reference: float) -> float:
    """Throughput over that of the reference, as the reports print it against one device; both in samples/s."""
    return _checked(throughput) / _checked(reference)


def scaling_efficiency(throughput: float, devices: int, reference: float, reference_devices: int = 1) -> float:
    """Speed-up over the growth in devices: 1 is ideal (weak scaling at a fixed batch size a device)."""
    return speedup(throughput, reference) * reference_devices / devices


def relative_difference(measured: float, reference: float) -> float:
    """(measured - reference) / reference; 0.01 is one per cent more."""
    return (measured - _checked(reference)) / reference


def _checked(value: float) -> float:
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{value} is no positive number")
    return value


def samples_needed(confidence: float = 0.95) -> int:
    """Fewest samples from which an interval of a median has this confidence: 6 at 95 %.

    The widest one, from minimum to maximum, covers the median with probability 1 - 2^(1 - n).
    """
    return math.ceil(1 - math.log2(1 - confidence))


def order_coverage(samples: int, trim: int) -> float:
    """The probability that a median lies between the `trim`-th smallest and the `trim`-th largest of its samples.

    1 - 2 sum(binomial(n, i), i < trim) / 2^n for any continuous distribution, more where values can be equal
    (David & Nagaraja, Order Statistics, 3rd ed., section 7.1).
    """
    return 1 - sum(math.comb(samples, i) for i in range(trim)) * 2.0 ** (1 - samples)


def order_interval(values: Sequence[float], trim: int) -> tuple[float, float]:
    """The `trim`-th smallest and the `trim`-th largest value: 1 for minimum and maximum."""
    ordered = sorted(values)
    return ordered[trim - 1], ordered[-trim]


def median_interval(values: Sequence[float], confidence: float = 0.95) -> Interval | TooFew:
    """The narrowest interval between order statistics that covers the median with this confidence, otherwise the
    widest.

    From FEWEST samples on. Callers that need the confidence must check the value reached: 50% with 2 samples, 75% with
    3, 87.5% with 4, 93.75% with 5, and at least 95% from 6 on. Equal samples give a point: the coverage holds for any
    distribution, and rises where values can be equal.
    """
    count = len(values)
    if count < FEWEST:
        return TooFew((count,), samples_needed(confidence))
    trim = largest_trim(count, confidence)
    low, high = order_interval(values, trim)
    return Interval(low, high, order_coverage(count, trim), ORDER_STATISTICS, (count,))


def largest_trim(samples: int, confidence: float) -> int:
    """The largest trim whose interval covers a median with this confidence, 1 if none does."""
    return max((trim for trim in _trims(samples) if order_coverage(samples, trim) >= confidence), default=1)


def ratio_interval(
    numerators: Sequence[float], denominators: Sequence[float], confidence: float = 0.95, rounding: float = 0.0
) -> Interval | TooFew:
    """Interval of median(numerators) / median(denominators), both of them samples of positive numbers.

    Between the quotients of order statistics that are farthest apart; which ones depends on the numbers of samples
    alone. The confidence is that of `ratio_coverage`. Denominators are known to within `rounding`, in their own unit.
    """
    sizes = (len(numerators), len(denominators))
    if min(sizes) < FEWEST:
        return TooFew(sizes, samples_needed(confidence))
    pairs = [(one, other) for one in _trims(sizes[0]) for other in _trims(sizes[1])]
    reaching = [pair for pair in pairs if ratio_coverage(sizes, pair) >= confidence]
    trims = max(reaching, key=lambda pair: (sum(pair), min(pair)), default=(1, 1))
    over, under = (order_interval(side, trim) for side, trim in zip((numerators, denominators), trims, strict=True))
    low, high = over[0] / _checked(under[1] + rounding), over[1] / _checked(under[0] - rounding)
    return Interval(low, high, ratio_coverage(sizes, trims), ORDER_STATISTICS, sizes)


def ratio_coverage(sizes: tuple[int, int], trims: tuple[int, int]) -> float:
    """A lower bound of the probability that the ratio of two medians lies in the interval of `ratio_interval`.

    Both medians lie in their own intervals with the product of their coverages, and then so does the ratio. From
    minimum to maximum on both sides more is known. Let a and b be the two miss probabilities. If only one sample misses
    its median, the ratio is missed only if the least distance of that sample from its median exceeds the greatest
    distance of the other one on the same side; of the two ways in which this can happen on a side, one needs typical
    distances of the first distribution to be larger, the other those of the second, so that their probabilities add up
    to at most max(a, b) / 2. With both sides, and with samples that miss on opposite sides, that is
    max(a, b) + a b / 2 at most.
    """
    coverages = [order_coverage(size, trim) for size, trim in zip(sizes, trims, strict=True)]
    product = math.prod(coverages)
    if trims != (1, 1):
        return product
    one, other = (1 - coverage for coverage in coverages)
    return max(product, 1 - max(one, other) - one * other / 2)


def _trims(samples: int) -> range:
    """Every k for which the k-th smallest of the samples is below the k-th largest."""
    return range(1, samples // 2 + 1)


def geometric_mean(values: Sequence[float]) -> float:
    """The mean of positive numbers on a logarithmic scale; ValueError without values, or if one is not positive."""
    if not values:
        raise ValueError("no values: a mean needs at least one")
    return math.exp(math.fsum(math.log(_checked(value)) for value in values) / len(values))


def geometric_interval(values: Sequence[float], confidence: float = 0.95) -> Interval | TooFew:
    """Student's t interval of the geometric mean of a population of which these are independent samples.

    With one sample per session it is the random-effects interval of Hartung & Knapp (Statistics in Medicine 20, 2001)
    with equal weights: how far sessions lie apart holds both what varies within them and what varies between them. Exact
    if logarithms are normally distributed; `repro.analysis.independence.student_coverage` says what is left of the
    confidence if they are skewed.
    """
    count = len(values)
    if count < FEWEST:
        return TooFew((count,), FEWEST)
    deviation = spread([math.log(_checked(value)) for value in values]).standard_deviation
    if not deviation:
        return TooFew((count,), FEWEST, equal=True)
    middle, half = geometric_mean(values), student_bound(confidence, count - 1) * deviation / math.sqrt(count)
    return Interval(middle / math.exp(half), middle * math.exp(half), confidence, STUDENT, (count,))


@cache
def student_bound(confidence: float, degrees: int) -> float:
    """How large |t| of Student's distribution is at most with this confidence: 12.706 at 95 % and one degree."""
    low, high = 0.0, 1.0
    while _student_within(high, degrees) < confidence:
        high *= 2
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if _student_within(middle, degrees) < confidence else (low, middle)
    return (low + high) / 2


def _student_within(bound: float, degrees: int) -> float:
    """The probability that |t| is at most `bound` (Abramowitz & Stegun, Handbook, 26.7.3 and 26.7.4)."""
    angle = math.atan2(bound, math.sqrt(degrees))
    odd = degrees % 2
    term, total = (math.cos(angle) if odd else 1.0), 0.0
    for step in range(2 + odd, degrees + 1, 2):
        total += term
        term *= math.cos(angle) ** 2 * (step - 1) / step
    return 2 / math.pi * (angle + math.sin(angle) * total) if odd else math.sin(angle) * total
