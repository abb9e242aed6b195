"""Ratios of repeated measurements: which interval their number allows, and from which confidence on it decides."""

import math

import pytest

from repro.analysis.ratio import (
    SEQUENTIAL,
    Ratio,
    published_ratio,
    ratio,
    ratio_over_sessions,
    repeated_ratio,
)
from repro.planning.plan import CONFIDENCE
from repro.utils.sequential import Look, error
from repro.utils.stats import (
    ORDER_STATISTICS,
    STUDENT,
    Interval,
    TooFew,
    geometric_interval,
    median_interval,
    order_coverage,
    ratio_interval,
)

SEVEN = [98.0, 99.0, 99.5, 100.0, 100.5, 101.0, 102.0]
PUBLISHED_SEVEN = [48.0, 49.0, 49.5, 50.0, 50.5, 51.0, 52.0]
LOOKS = (Look(6, 1), Look(12, 2))


def test_an_interval_decides_from_95_per_cent_on():
    """Five repeats reach 93.75 %, six 96.875 %: what is called an interval at 95 % has at least that."""
    assert CONFIDENCE == 0.95
    five, six = median_interval(SEVEN[:5]), median_interval(SEVEN[:6])
    assert (five.confidence, six.confidence) == (0.9375, 0.96875)
    assert Ratio(1.0, five).decisive is None and Ratio(1.0, six).decisive is six
    assert Ratio(1.0, Interval(1, 2, 0.95, "any", (6,))).decisive is not None, "exactly 95 % suffices"
    assert Ratio(1.0, TooFew((1,), 6)).decisive is None


def test_one_published_figure_is_compared_by_the_median_of_the_repeats():
    found = published_ratio(SEVEN, [50.0], 0.5)
    assert found.value == 2.0
    assert found.interval == Interval(98 / 50.5, 102 / 49.5, order_coverage(7, 1), ORDER_STATISTICS, (7,))


def test_several_published_figures_are_repeats_of_their_own():
    found = published_ratio(SEVEN, PUBLISHED_SEVEN, 0.5)
    assert found == Ratio(2.0, ratio_interval(SEVEN, PUBLISHED_SEVEN, CONFIDENCE, 0.5))
    assert found.interval.samples == (7, 7) and found.interval.low == 98 / 52.5
    two = published_ratio(SEVEN, [49.0, 51.0], 0.0)
    assert two.interval.samples == (7, 2), "two are several"
    assert not published_ratio([100.0], PUBLISHED_SEVEN, 0.5).interval


def test_before_the_first_look_the_interval_is_that_of_the_repeats():
    assert published_ratio(SEVEN[:5], [50.0], 0.5, LOOKS) == published_ratio(SEVEN[:5], [50.0], 0.5)


@pytest.mark.parametrize(("repeats", "trim"), [(6, 1), (7, 1), (11, 1), (12, 2), (14, 2)])
def test_from_a_look_on_the_interval_has_its_trim_and_the_confidence_of_all_looks(repeats, trim):
    measured = [100.0 + step for step in range(repeats)]
    found = published_ratio(measured, [50.0], 0.5, LOOKS)
    low, high = 100 + trim - 1, 100 + repeats - trim
    assert found.interval == Interval(low / 50.5, high / 49.5, 1 - error(LOOKS), SEQUENTIAL, (repeats,))
    assert found.value == (100 + (repeats - 1) / 2) / 50


def test_at_equal_repeats_the_interval_is_the_rounding_of_the_published_figure():
    found = published_ratio([100.0] * 6, [50.0], 0.5, LOOKS).interval
    assert found == Interval(100 / 50.5, 100 / 49.5, 1 - error(LOOKS), SEQUENTIAL, (6,))


def test_looks_over_several_published_figures_hold_both_medians():
    """Seven published figures miss their median with 1/64: from minimum to maximum, as nothing may be taken off."""
    found = published_ratio(SEVEN, PUBLISHED_SEVEN, 0.5, LOOKS).interval
    assert (found.low, found.high) == (98 / 52.5, 102 / 47.5)
    assert found.confidence == pytest.approx((1 - error(LOOKS)) * (1 - 2 / 2**7))
    assert found.samples == (7, 7) and found.method == SEQUENTIAL
    many = [50.0 + step / 100 for step in range(20)]
    trimmed = published_ratio(SEVEN, many, 0.0, (Look(7, 1),)).interval
    assert trimmed.low > 98 / max(many), "of twenty, some may be"
    assert trimmed.confidence >= CONFIDENCE


def test_a_measured_ratio_over_an_exact_number_or_another_ratio():
    found = ratio(SEVEN, 50.0)
    assert found == Ratio(2.0, Interval(98 / 50, 102 / 50, order_coverage(7, 1), ORDER_STATISTICS, (7,)))
    half = found.over(2)
    assert half.value == 1.0 and half.interval.low == 98 / 50 / 2
    alone = ratio([100.0], 50.0)
    assert alone.over(2) == Ratio(1.0, alone.interval) and not alone.interval
    assert repeated_ratio(SEVEN, PUBLISHED_SEVEN) == Ratio(2.0, ratio_interval(SEVEN, PUBLISHED_SEVEN, CONFIDENCE))


def test_ratios_of_several_sessions_have_the_interval_between_sessions():
    found = ratio_over_sessions([0.9, 1.0, 1.1])
    assert found.value == pytest.approx(math.exp((math.log(0.9) + math.log(1.1)) / 3))
    assert found.interval == geometric_interval([0.9, 1.0, 1.1], CONFIDENCE) and found.interval.method == STUDENT
    assert not ratio_over_sessions([0.9]).interval


def test_what_results_keep_of_a_ratio():
    assert ratio(SEVEN, 50.0).as_json() == {
        "value": 2.0,
        "interval": {"low": 98 / 50, "high": 102 / 50, "confidence": order_coverage(7, 1), "method": ORDER_STATISTICS},
        "samples": [7],
    }
    assert ratio([100.0], 50.0).as_json() == {"value": 2.0, "interval": None, "samples": [1], "needed": 6}
