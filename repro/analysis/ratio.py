"""Compares repeated measurements as a ratio with a confidence interval, by the method that their number allows."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from repro.utils.stats import (
    Interval,
    TooFew,
    median,
    median_interval,
    ratio_interval,
    samples_needed,
    spread,
    t_interval,
    t_quantile,
)

CONFIDENCE = 0.95
FEWEST = 2


@dataclass(frozen=True)
class Ratio:
    """Median over median, and where the true ratio lies; `interval` is TooFew if the repeats cannot tell."""

    value: float
    interval: Interval | TooFew

    def over(self, factor: float) -> "Ratio":
        """The same ratio divided by an exact factor."""
        return Ratio(self.value / factor, _divided(self.interval, factor))

    def as_json(self) -> dict:
        """The form in which results keep it."""
        found = self.interval
        if isinstance(found, TooFew):
            return {"value": self.value, "interval": None, "samples": list(found.samples), "needed": found.needed}
        interval = {"low": found.low, "high": found.high, "confidence": found.confidence, "method": found.method}
        return {"value": self.value, "interval": interval, "samples": list(found.samples)}


def ratio(measured: Sequence[float], reference: Sequence[float]) -> Ratio:
    """Measured over reference; a reference of one value is taken as exact, as a published figure has to be.

    With at least `samples_needed` on each side that is repeated the interval is the bootstrap of the medians, with
    at least two Student's (against an exact reference) or Welch's (against repeats). ValueError if a side is empty.
    """
    value = median(measured) / median(reference)
    enough = samples_needed(CONFIDENCE)
    if len(reference) == 1:
        found = (median_interval if len(measured) >= enough else t_interval)(measured, CONFIDENCE)
        return Ratio(value, _divided(found, reference[0]))
    if min(len(measured), len(reference)) >= enough:
        return Ratio(value, ratio_interval(measured, reference, CONFIDENCE))
    return Ratio(value, welch_interval(measured, reference))


def repeated_ratio(measured: Sequence[float], reference: Sequence[float]) -> Ratio:
    """As `ratio`, where both sides are measurements: a single repeat of either gives no interval."""
    if len(reference) < FEWEST:
        value = median(measured) / median(reference)
        return Ratio(value, TooFew((len(measured), len(reference)), FEWEST))
    return ratio(measured, reference)


def welch_interval(
    numerators: Sequence[float], denominators: Sequence[float], confidence: float = CONFIDENCE
) -> Interval | TooFew:
    """Interval of a ratio of geometric means, from two samples on each side on.

    Welch's interval (Biometrika 34, 1947) of the difference of mean logarithms, degrees of freedom rounded down.
    """
    sizes = (len(numerators), len(denominators))
    if min(sizes) < FEWEST:
        return TooFew(sizes, FEWEST)
    sides = [spread([math.log(value) for value in values]) for values in (numerators, denominators)]
    errors = [(side.standard_deviation or 0.0) ** 2 / side.samples for side in sides]
    difference, half = sides[0].mean - sides[1].mean, 0.0
    if sum(errors):
        freedom = sum(errors) ** 2 / sum(e**2 / (n - 1) for e, n in zip(errors, sizes, strict=True))
        half = t_quantile(confidence, max(1, int(freedom))) * math.sqrt(sum(errors))
    low, high = math.exp(difference - half), math.exp(difference + half)
    return Interval(low, high, confidence, "Welch t of logarithms", sizes)


def _divided(found: Interval | TooFew, reference: float) -> Interval | TooFew:
    if not found:
        return found
    return Interval(found.low / reference, found.high / reference, found.confidence, found.method, found.samples)
