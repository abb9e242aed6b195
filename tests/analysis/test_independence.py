"""Dependence of repeats: what is measured of known series, and how often intervals miss under it."""

import math
import random

import pytest

from repro.analysis.independence import (
    Dependence,
    autocorrelation,
    error_of_looks,
    shared_variance,
    student_coverage,
)
from repro.planning.plan import verdict_looks
from repro.utils.sequential import error

LOOKS = verdict_looks()


def series(correlation, count, length, shared=0.0, seed=1):
    """Autoregressive series of this length, around levels of their own that have this share of the variance."""
    generator, found = random.Random(seed), []
    for _ in range(count):
        level, value = math.sqrt(shared) * generator.gauss(0, 1), generator.gauss(0, 1)
        each = []
        for _ in range(length):
            each.append(100 + level + math.sqrt(1 - shared) * value)
            value = correlation * value + math.sqrt(1 - correlation**2) * generator.gauss(0, 1)
        found.append(each)
    return found


def test_the_autocorrelation_of_a_series_by_hand():
    """Of 1, 2, 3 the deviations are -1, 0, 1: no product of neighbours, and 1/3 for the mean that was taken off."""
    found = autocorrelation([[1.0, 2.0, 3.0]])
    assert found.value == pytest.approx(1 / 3) and (found.sets, found.repeats) == (1, 3)
    four = autocorrelation([[1.0, 2.0, 3.0], [1.0, 3.0, 1.0, 3.0]])
    assert four.value == pytest.approx((2 * (1 / 3) + 3 * (-3 / 4 + 1 / 4)) / 5), "a series weighs n - 1"


def test_short_and_equal_series_have_none():
    assert autocorrelation([]) is None and autocorrelation([[1.0, 2.0], [5.0] * 6]) is None


@pytest.mark.parametrize("correlation", [0.0, 0.3, 0.6])
def test_the_autocorrelation_of_long_series_is_found_and_only_dependence_is_seen(correlation):
    found = autocorrelation(series(correlation, 25, 60))
    assert found.value == pytest.approx(correlation, abs=0.1)
    assert found.low < 0 < found.high and found.seen is (correlation > 0)


def test_of_short_independent_series_it_is_zero_on_average():
    found = autocorrelation(each for seed in range(4) for each in series(0.0, 30, 4, seed=seed))
    assert abs(found.value) < 0.05, "without the correction it would be -1/4"


def test_the_shared_variance_by_hand():
    """Two sessions of two repeats each, at 1, 1 and 3, 3 in logarithms: all of the variance is shared."""
    found = shared_variance([[[math.e, math.e], [math.e**3, math.e**3]]])
    assert found.value == pytest.approx(1.0) and (found.sets, found.repeats) == (1, 4)
    apart = shared_variance([[[math.e, math.e**3], [math.e**3, math.e]]])
    assert apart.value == pytest.approx(-1.0), "the means are equal: sessions lie closer together than repeats"


def test_configurations_without_several_sessions_or_repeats_share_nothing():
    assert shared_variance([[[1.0, 2.0]], [[1.0], [2.0]], [[3.0, 3.0], [3.0]]]) is None


@pytest.mark.parametrize("shared", [0.0, 0.5])
def test_the_shared_variance_of_many_configurations_is_found(shared):
    configurations = [series(0.0, 5, 4, shared, seed) for seed in range(20)]
    found = shared_variance(configurations)
    assert found.value == pytest.approx(shared, abs=0.1) and found.seen is (shared > 0)


def test_a_configuration_counts_whatever_its_noise():
    quiet = series(0.0, 6, 5, 0.5)
    loud = [[100 + 20 * (value - 100) for value in each] for each in series(0.0, 6, 5, 0.5, 2)]
    both = shared_variance([quiet, loud]).value
    assert both == pytest.approx((shared_variance([quiet]).value + shared_variance([loud]).value) / 2, abs=0.1)


def test_what_is_seen_is_above_chance():
    assert Dependence(0.2, -0.1, 0.1, 5, 30).seen and not Dependence(0.1, -0.1, 0.1, 5, 30).seen


@pytest.mark.parametrize(
    ("correlation", "shared", "expected"),
    [(0.0, 0.0, error(LOOKS)), (0.3, 0.0, 0.10), (0.5, 0.0, 0.18), (0.0, 0.5, 0.37)],
)
def test_dependent_repeats_err_more_often_than_stated(correlation, shared, expected):
    """3.4% are stated. 4000 simulated runs are uncertain by 0.8% at most."""
    assert error_of_looks(LOOKS, correlation, shared) == pytest.approx(expected, abs=0.016)


def test_students_t_covers_less_of_skewed_sessions_than_it_states():
    found = [student_coverage(sessions) for sessions in range(2, 7)]
    assert all(0.86 < each < 0.92 for each in found)
    assert min(found) < 0.95 - 4 * math.sqrt(0.95 * 0.05 / 4000), "no accident of the simulation"
