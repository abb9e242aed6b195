"""The statistics that compare repeated measurements: medians, spreads, intervals, and refusals where samples are too few."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

Resample = Callable[[Sequence[float]], list[float]]
RESAMPLES = 4000
SEED = 20210512


@dataclass(frozen=True)
class Spread:
    """How far repeated measurements lie apart, in their own unit.

    `iqr` is the interquartile range, `standard_deviation` that of the sample (n - 1), `cv` the standard deviation over
    the mean, without a unit. They are None where there are too few samples.
    """

    samples: int
    median: float
    mean: float
    minimum: float
    maximum: float
    iqr: float | None
    standard_deviation: float | None
    cv: float | None


@dataclass(frozen=True)
class Interval:
    """A confidence interval in the unit of the samples, or without one for a ratio.

    `confidence` is a probability, `method` the name of the method, `samples` the number of samples on each side.
    """

    low: float
    high: float
    confidence: float
    method: str
    samples: tuple[int, ...]


@dataclass(frozen=True)
class TooFew:
    """No interval: there are fewer samples than the method needs at this confidence. It is false in a condition.

    `samples` is the number on each side, `needed` how many there must be on each.
    """

    samples: tuple[int, ...]
    needed: int

    def __bool__(self) -> Literal[False]:
        return False

    def __str__(self) -> str:
        got = " and ".join(map(str, self.samples))
        return f"too few samples: {got}, where {self.needed} are needed"


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
        iqr=quantile(values, 0.75) - quantile(values, 0.25) if count > 3 else None,
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
    """Fewest samples from which a distribution-free interval for a median exists: 6 at 95 %.

    The widest one, from minimum to maximum, covers the median with probability 1 - 2^(1 - n)
    (David & Nagaraja, Order Statistics, 3rd ed., section 7.1).
    """
    return math.ceil(1 - math.log2(1 - confidence))


def median_interval(values: Sequence[float], confidence: float = 0.95, seed: int = SEED) -> Interval | TooFew:
    """Percentile bootstrap interval of a median (Efron & Tibshirani 1993, chapter 13); the same for the same seed."""
    return _bootstrap(lambda resample: median(resample(values)), (values,), confidence, seed)


def ratio_interval(
    numerators: Sequence[float], denominators: Sequence[float], confidence: float = 0.95, seed: int = SEED
) -> Interval | TooFew:
    """Percentile bootstrap interval of median(numerators) / median(denominators), resampled independently.

    A denominator that is known exactly has no samples: divide `median_interval` by it instead.
    """

    def ratio(resample: Resample) -> float:
        return median(resample(numerators)) / _checked(median(resample(denominators)))

    return _bootstrap(ratio, (numerators, denominators), confidence, seed)


def _bootstrap(
    statistic: Callable[[Resample], float], groups: tuple[Sequence[float], ...], confidence: float, seed: int
) -> Interval | TooFew:
    """Percentile bootstrap: quantiles of a statistic over RESAMPLES draws with replacement from each group."""
    import random

    sizes, needed = tuple(map(len, groups)), samples_needed(confidence)
    if min(sizes) < needed:
        return TooFew(sizes, needed)
    generator = random.Random(seed)
    draws = [statistic(lambda values: generator.choices(values, k=len(values))) for _ in range(RESAMPLES)]
    tail = (1 - confidence) / 2
    return Interval(quantile(draws, tail), quantile(draws, 1 - tail), confidence, "percentile bootstrap", sizes)


def t_interval(values: Sequence[float], confidence: float = 0.95) -> Interval | TooFew:
    """Student's interval of a mean, from 2 samples on; it supposes that the repeats are normally distributed."""
    count = len(values)
    found = spread(values) if values else None
    if found is None or found.standard_deviation is None:
        return TooFew((count,), 2)
    half = t_quantile(confidence, count - 1) * found.standard_deviation / math.sqrt(count)
    return Interval(found.mean - half, found.mean + half, confidence, "Student t", (count,))


def t_quantile(confidence: float, degrees_of_freedom: int) -> float:
    """The t within which `confidence` of Student's distribution lies on both sides of 0, by bisection."""
    low, high = 0.0, 1.0
    while _t_within(high, degrees_of_freedom) < confidence:
        high *= 2
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if _t_within(middle, degrees_of_freedom) < confidence else (low, middle)
    return high


def _t_within(t: float, degrees_of_freedom: int) -> float:
    """P(|T| < t) by the finite series of Abramowitz & Stegun, 26.7.3 and 26.7.4."""
    angle = math.atan(t / math.sqrt(degrees_of_freedom))
    odd = degrees_of_freedom % 2
    term, total = (math.cos(angle) if odd else 1.0), 0.0
    for k in range(2 + odd, degrees_of_freedom + 1, 2):
        total += term
        term *= math.cos(angle) ** 2 * (k - 1) / k
    if odd:
        return 2 / math.pi * (angle + math.sin(angle) * total)
    return math.sin(angle) * total
