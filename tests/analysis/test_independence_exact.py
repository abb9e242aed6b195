"""Dependence of repeats, each value computed a second time from its definition, with few trials."""

import math
import random
import statistics

import pytest

from repro.analysis import independence
from repro.analysis.independence import Dependence, autocorrelation, error_of_looks, shared_variance, student_coverage
from repro.utils.sequential import Look
from repro.utils.stats import geometric_interval, quantile

SEED = 20210512
SERIES = ([3.0, 1.0, 4.0, 1.0, 5.0], [9.0, 2.0, 6.0, 5.0, 3.0, 5.0, 8.0], [9.0, 7.0, 9.0])
CONFIGURATIONS = (
    [[10.0, 11.0, 10.5], [12.0, 12.5], [9.0, 9.5, 9.25, 9.75]],
    [[200.0, 220.0], [180.0, 185.0, 190.0]],
)


@pytest.fixture(autouse=True)
def few(monkeypatch):
    monkeypatch.setattr(independence, "TRIALS", 80)
    monkeypatch.setattr(independence, "SHUFFLES", 50)


def lag_one(values):
    """The coefficient by its definition, with what the own mean takes off added."""
    mean, length = statistics.fmean(values), len(values)
    products = sum((values[k] - mean) * (values[k + 1] - mean) for k in range(length - 1))
    return products / sum((value - mean) ** 2 for value in values) + 1 / length


def pooled(series):
    return sum((len(one) - 1) * lag_one(one) for one in series) / sum(len(one) - 1 for one in series)


def in_random_order(groups, of, times=50):
    """The values of `of` with the repeats of each group of series in random order."""
    generator, values = random.Random(SEED), []
    for _ in range(times):
        mixed = []
        for group in groups:
            together = [value for one in group for value in one]
            generator.shuffle(together)
            parts = iter(together)
            mixed.append([[next(parts) for _ in one] for one in group])
        values.append(of(mixed))
    return values


def test_the_autocorrelation_is_pooled_and_held_against_the_same_repeats_in_random_order():
    measured = autocorrelation(SERIES)
    chance = in_random_order([[one] for one in SERIES], lambda groups: pooled([one for (one,) in groups]))
    assert measured.value == pytest.approx(pooled(SERIES), rel=1e-12)
    assert measured.low == pytest.approx(quantile(chance, 0.025), rel=1e-12)
    assert measured.high == pytest.approx(quantile(chance, 0.975), rel=1e-12)
    assert (measured.sets, measured.repeats) == (3, 15)


@pytest.mark.parametrize(
    ("series", "counts"), [([1.0, 2.0], False), ([1.0, 2.0, 1.0], True), ([2.0, 2.0, 2.0], False), ([], False)]
)
def test_a_series_counts_from_three_repeats_on_that_differ(series, counts):
    measured = autocorrelation([series, *SERIES])
    assert measured.sets == 3 + counts and (autocorrelation([series]) is not None) == counts


def share(configurations):
    """The share of the one-way analysis of variance (Searle, Casella & McCulloch, 1992), pooled."""
    between = within = lost = 0.0
    sessions = repeats = 0
    for groups in configurations:
        every = [value for group in groups for value in group]
        grand = statistics.fmean(every)
        for group in groups:
            between += len(group) * (statistics.fmean(group) - grand) ** 2
            within += sum((value - statistics.fmean(group)) ** 2 for value in group)
        lost += len(every) - sum(len(group) ** 2 for group in groups) / len(every)
        sessions += len(groups) - 1
        repeats += len(every) - len(groups)
    own = within / repeats
    common = (between / sessions - own) * sessions / lost
    return common / (common + own)


def logarithms(groups):
    """In units of their standard deviation over all sessions."""
    logs = [[math.log(value) for value in group] for group in groups]
    deviation = statistics.stdev([value for group in logs for value in group])
    return [[value / deviation for value in group] for group in logs]


def test_the_shared_variance_is_that_of_logarithms_in_one_unit():
    measured = shared_variance(CONFIGURATIONS)
    scaled = [logarithms(groups) for groups in CONFIGURATIONS]
    chance = in_random_order(scaled, share)
    assert measured.value == pytest.approx(share(scaled), rel=1e-9)
    assert measured.low == pytest.approx(quantile(chance, 0.025), rel=1e-9)
    assert measured.high == pytest.approx(quantile(chance, 0.975), rel=1e-9)
    assert (measured.sets, measured.repeats) == (2, 14)


@pytest.mark.parametrize(
    ("sessions", "counts"),
    [
        ([[1.0, 2.0], [3.0]], True),
        ([[1.0, 2.0]], False),
        ([[1.0], [2.0]], False),
        ([[3.0, 3.0], [3.0]], False),
        ([[3.0, 3.0], [4.0]], True),
        ([[100.0, 100.0], [math.nextafter(100.0, 200.0)]], False),  # of one logarithm
    ],
)
def test_a_configuration_counts_with_two_sessions_one_of_two_repeats_and_two_values(sessions, counts):
    assert (shared_variance([sessions]) is not None) == counts


@pytest.mark.parametrize(("value", "seen"), [(0.1, False), (0.11, True), (-0.2, False)])
def test_what_is_seen_is_above_what_chance_gives(value, seen):
    assert Dependence(value, -0.1, 0.1, 5, 30).seen is seen


def test_a_repeat_at_the_median_is_not_below_it():
    class AtTheMedian:
        gauss = staticmethod(lambda mean, deviation: mean)

    assert independence._below(AtTheMedian(), 3, 0.0, 0.0) == [False] * 3


@pytest.mark.parametrize(("correlation", "shared"), [(0.0, 0.0), (0.6, 0.0), (0.0, 0.7), (0.4, 0.3), (0.9, 0.0)])
def test_the_error_of_looks_is_that_of_simulated_runs(correlation, shared):
    looks = (Look(4, 1), Look(6, 1), Look(9, 2))
    generator, missed = random.Random(SEED), 0
    for _ in range(80):
        level = shared**0.5 * generator.gauss(0, 1)
        noise, below = generator.gauss(0, 1), []
        for _ in range(9):
            below.append(level + (1 - shared) ** 0.5 * noise < 0)
            noise = correlation * noise + (1 - correlation**2) ** 0.5 * generator.gauss(0, 1)
        # The median is missed by the interval from the trim-th value on if fewer, on either side, lie beyond it.
        missed += any(min(below[: look.repeats].count(side) for side in (True, False)) < look.trim for look in looks)
    assert error_of_looks.__wrapped__(looks, correlation, shared) == missed / 80


def test_without_dependence_stated_the_error_is_that_of_independent_repeats():
    looks = (Look(4, 1), Look(9, 2))
    assert error_of_looks.__wrapped__(looks) == error_of_looks.__wrapped__(looks, 0.0, 0.0)


@pytest.mark.parametrize("sessions", [2, 3, 5])
@pytest.mark.parametrize("confidence", [0.95, 0.5])
def test_the_coverage_of_students_t_is_that_of_simulated_sessions(sessions, confidence):
    generator, hits = random.Random(SEED), 0
    for _ in range(80):
        speeds = [math.exp(1 - generator.expovariate(1)) for _ in range(sessions)]
        interval = geometric_interval(speeds, confidence)
        hits += interval.low <= 1 <= interval.high
    assert student_coverage.__wrapped__(sessions, confidence) == hits / 80
    assert student_coverage.__wrapped__(sessions) == student_coverage.__wrapped__(sessions, 0.95)
