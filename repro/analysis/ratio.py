"""Compares repeated measurements as a ratio with a confidence interval, by the method that their number allows."""

from collections.abc import Sequence
from dataclasses import dataclass

from repro.planning.plan import CONFIDENCE
from repro.utils.sequential import Looks, error, trim_at
from repro.utils.stats import (
    Interval,
    TooFew,
    geometric_interval,
    geometric_mean,
    largest_trim,
    median,
    median_interval,
    order_coverage,
    order_interval,
    ratio_interval,
)

SEQUENTIAL = "order statistics at group-sequential looks"


@dataclass(frozen=True)
class Ratio:
    """Median over median, and where the true ratio lies; `interval` is TooFew if the repeats cannot tell."""

    value: float
    interval: Interval | TooFew

    @property
    def decisive(self) -> Interval | None:
        """The interval, if its confidence suffices to decide something by it."""
        return self.interval if self.interval and self.interval.confidence >= CONFIDENCE else None

    def over(self, factor: float) -> "Ratio":
        """The same ratio divided by an exact factor."""
        return Ratio(self.value / factor, self.interval.over(factor) if self.interval else self.interval)

    def as_json(self) -> dict:
        """The form in which results keep it."""
        bounds = self.interval
        if isinstance(bounds, TooFew):
            return {"value": self.value, "interval": None, "samples": list(bounds.samples), "needed": bounds.needed}
        interval = {"low": bounds.low, "high": bounds.high, "confidence": bounds.confidence, "method": bounds.method}
        return {"value": self.value, "interval": interval, "samples": list(bounds.samples)}


def ratio(measured: Sequence[float], exact: float) -> Ratio:
    """The median of measurements over a number that is known exactly, with the order-statistic interval of the median.

    ValueError without measurements.
    """
    interval = median_interval(measured, CONFIDENCE)
    return Ratio(median(measured) / exact, interval.over(exact) if interval else interval)


def repeated_ratio(measured: Sequence[float], reference: Sequence[float]) -> Ratio:
    """Ratio of the medians of two sets of measurements; a single repeat of either yields no interval.

    ValueError if a side is empty.
    """
    return Ratio(median(measured) / median(reference), ratio_interval(measured, reference, CONFIDENCE))


def published_ratio(measured: Sequence[float], published: Sequence[float], rounding: float, looks: Looks = ()) -> Ratio:
    """Ratio of the median of measurements to that of published figures, one or several, known to within `rounding`.

    `looks` are those of the run's stopping rule; from the first one on, the confidence covers all of them together.
    ValueError if a side is empty.
    """
    value, count = median(measured) / median(published), len(measured)
    trim = trim_at(looks, count)
    interval: Interval | TooFew
    if trim:
        low, high = order_interval(measured, trim)
        interval = _over(Interval(low, high, 1 - error(looks), SEQUENTIAL, (count,)), published, rounding)
    elif len(published) > 1:
        interval = ratio_interval(measured, published, CONFIDENCE, rounding)
    else:
        interval = median_interval(measured, CONFIDENCE)
        (figure,) = published
        interval = interval.over(figure, rounding) if interval else interval
    return Ratio(value, interval)


def ratio_over_sessions(ratios: Sequence[float]) -> Ratio:
    """The geometric mean of the ratios of several sessions, and where the mean of all such sessions lies.

    ValueError without a ratio.
    """
    return Ratio(geometric_mean(ratios), geometric_interval(ratios, CONFIDENCE))


def _over(own: Interval, published: Sequence[float], rounding: float) -> Interval:
    """An interval over published figures, with the confidence that both intervals hold their medians."""
    if len(published) == 1:
        (figure,) = published
        return own.over(figure, rounding)
    trim = largest_trim(len(published), CONFIDENCE / own.confidence)
    low, high = order_interval(published, trim)
    confidence = own.confidence * order_coverage(len(published), trim)
    sizes = (*own.samples, len(published))
    return Interval(own.low / (high + rounding), own.high / (low - rounding), confidence, own.method, sizes)
