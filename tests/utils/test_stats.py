"""Tests of the statistics that compare repeated measurements."""

import math
import random
import statistics

import pytest

from repro.utils.stats import (
    STUDENT,
    Interval,
    TooFew,
    geometric_interval,
    geometric_mean,
    largest,
    largest_trim,
    median,
    median_interval,
    order_coverage,
    quantile,
    ratio_coverage,
    ratio_interval,
    relative_difference,
    samples_needed,
    scaling_efficiency,
    speedup,
    spread,
    student_bound,
)

BERT_96 = [149.9, 149.8, 149.8, 149.9, 149.7, 149.8, 150.0]
BERT_96_8 = [1160.4, 1158.3, 1159.0, 1157.9, 1157.3, 1159.7, 1158.5]


@pytest.mark.parametrize(
    ("values", "expected"), [(BERT_96, 149.8), (BERT_96_8, 1158.5), ([3, 1, 2], 2), ([4, 1, 2, 3], 2.5), ([7], 7)]
)
def test_median(values, expected):
    before = list(values)
    assert median(values) == expected
    assert values == before


def test_quantiles_interpolate_and_need_a_value():
    assert quantile([1, 2, 3, 4], 0.25) == 1.75
    assert quantile([1, 2], 1) == 2
    with pytest.raises(ValueError, match="at least one"):
        median([])


def test_spread_of_published_repeats():
    found = spread(BERT_96)
    assert found.cv == pytest.approx(0.00065128, rel=1e-4)
    assert (found.samples, found.median, found.minimum, found.maximum) == (7, 149.8, 149.7, 150.0)
    assert found.mean == pytest.approx(statistics.mean(BERT_96))
    assert found.cv == pytest.approx(statistics.stdev(BERT_96) / statistics.mean(BERT_96))


def test_spread_says_nothing_of_too_few():
    assert (spread([5.0]).cv, spread([5.0]).standard_deviation) == (None, None)
    assert spread([5.0]).mean == 5.0
    assert spread([4.0, 6.0]).standard_deviation == pytest.approx(math.sqrt(2))
    assert spread([-1.0, 1.0]).cv is None
    with pytest.raises(ValueError, match="at least one"):
        spread([])


def test_speedup_and_efficiency():
    assert speedup(1158.5, 149.8) == pytest.approx(7.7336, abs=1e-4)
    assert scaling_efficiency(4456, 32, 149.8) == pytest.approx(0.92957, abs=1e-5)
    assert scaling_efficiency(123.4, 32, 38.28, 8) == pytest.approx(0.80590, abs=1e-5)
    assert relative_difference(9082, 11089) == pytest.approx(-0.18099, abs=1e-5)
    for wrong in (0, -1, math.nan, math.inf):
        with pytest.raises(ValueError, match="no positive number"):
            speedup(1, wrong)


def test_samples_needed_follows_the_widest_order_statistic_interval():
    for confidence in (0.5, 0.9, 0.95, 0.99):
        needed = samples_needed(confidence)
        assert 1 - 2 ** (1 - needed) >= confidence > 1 - 2 ** (2 - needed)
    assert samples_needed(0.95) == 6


@pytest.mark.parametrize(
    "interval", [median_interval([1.0]), ratio_interval([1.0], [2.0]), ratio_interval(BERT_96, [2.0])]
)
def test_a_single_sample_has_no_interval(interval):
    assert isinstance(interval, TooFew)
    assert not interval
    assert "too few samples" in str(interval) and interval.needed == 6


def test_equal_samples_give_a_point_by_order_statistics_and_nothing_by_their_spread():
    point = median_interval([3.0] * 7)
    assert (point.low, point.high, point.confidence) == (3.0, 3.0, order_coverage(7, 1))
    of_two = ratio_interval([2.0] * 6, [4.0] * 6)
    assert (of_two.low, of_two.high) == (0.5, 0.5)
    equal = geometric_interval([3.0] * 7)
    assert isinstance(equal, TooFew) and "all samples are equal" in str(equal)


def test_the_largest_of_numbers_is_nan_wherever_one_is():
    for values in ([math.nan, 1.0, 2.0], [1.0, math.nan, 2.0], [1.0, 2.0, math.nan]):
        assert math.isnan(largest(values))
    assert largest([1.0, 3.0, 2.0]) == 3.0
    with pytest.raises(ValueError):
        largest([])
    assert ratio_interval([2.0] * 6, [4.0] * 6, rounding=0.1), "rounding is a width"


@pytest.mark.parametrize(
    ("samples", "trim", "confidence"),
    [
        (2, 1, 0.5),
        (3, 1, 0.75),
        (5, 1, 0.9375),
        (6, 1, 0.96875),
        (7, 1, 0.984375),
        (8, 1, 0.9921875),
        (9, 2, 0.9609375),
    ],
)
def test_order_statistics_reach_the_confidence_of_the_tables(samples, trim, confidence):
    """David & Nagaraja, section 7.1; the sign test's tables have the same figures."""
    assert order_coverage(samples, trim) == confidence
    assert largest_trim(samples, 0.95) == trim
    found = median_interval([float(value) for value in range(samples)])
    assert (found.low, found.high, found.confidence) == (trim - 1, samples - trim, confidence)


DISTRIBUTIONS = {
    "normal": lambda generator: generator.gauss(0, 1),
    "skewed": lambda generator: generator.expovariate(1) - math.log(2),
    "heavy": lambda generator: math.tan(math.pi * (generator.random() - 0.5)),
}
"""Continuous distributions with the median 0."""
TRIALS = 4000


def within(hits: int, trials: int, probability: float, sigmas: float = 4) -> bool:
    """Whether a share is as near its probability as chance allows."""
    return abs(hits / trials - probability) <= sigmas * math.sqrt(probability * (1 - probability) / trials)


@pytest.mark.parametrize("name", DISTRIBUTIONS)
@pytest.mark.parametrize("samples", range(2, 16))
def test_median_interval_covers_the_median_as_often_as_it_says(samples, name):
    """Neither less often nor more: a confidence that is printed is the one that is reached."""
    generator, draw = random.Random(samples), DISTRIBUTIONS[name]
    found = [median_interval([draw(generator) for _ in range(samples)]) for _ in range(TRIALS)]
    hits = sum(interval.low < 0 < interval.high for interval in found)
    assert within(hits, TRIALS, found[0].confidence), f"{hits / TRIALS:.4f}, not {found[0].confidence:.4f}"
    assert (found[0].confidence >= 0.95) == (samples >= 6)


@pytest.mark.parametrize(("first", "second"), [("normal", "normal"), ("skewed", "heavy"), ("mirrored", "skewed")])
@pytest.mark.parametrize("sizes", [(2, 2), (3, 7), (6, 6), (6, 7), (7, 7), (12, 7), (15, 15)])
def test_ratio_interval_covers_the_ratio_at_least_as_often_as_it_says(sizes, first, second):
    draws = {**DISTRIBUTIONS, "mirrored": lambda generator: -DISTRIBUTIONS["skewed"](generator)}
    generator, hits = random.Random(f"{sizes}"), 0
    for _ in range(TRIALS // 4):
        sides = [
            [math.exp(scale * draws[name](generator) / 50) for _ in range(size)]
            for size, name, scale in zip(sizes, (first, second), (1, 0.2), strict=True)
        ]
        found = ratio_interval(*sides)
        hits += found.low <= 1 <= found.high
    allowed = found.confidence - 4 * math.sqrt(found.confidence * (1 - found.confidence) / (TRIALS // 4))
    assert hits / (TRIALS // 4) >= allowed
    assert (found.confidence >= 0.95) == (min(sizes) >= 6)


def test_the_bound_for_minimum_and_maximum_is_reached_by_a_side_without_spread():
    """Then the ratio is missed as often as the other side's median: no narrower statement would be true."""
    generator = random.Random(5)
    found = [
        ratio_interval([generator.gauss(100, 1) for _ in range(6)], [50 - 1e-9, 50 + 1e-9] * 3) for _ in range(TRIALS)
    ]
    hits = sum(interval.low <= 2 <= interval.high for interval in found)
    assert within(hits, TRIALS, order_coverage(6, 1))
    assert ratio_coverage((6, 6), (1, 1)) == pytest.approx(order_coverage(6, 1), abs=1e-3)


def test_ratio_interval_holds_the_published_speedup():
    found = ratio_interval(BERT_96_8, BERT_96)
    assert (found.low, found.high) == (1157.3 / 150.0, 1160.4 / 149.7)
    assert found.samples == (7, 7) and found.confidence == pytest.approx(0.98425, abs=1e-5)
    rounded = ratio_interval(BERT_96_8, BERT_96, rounding=0.05)
    assert (rounded.low, rounded.high) == pytest.approx((1157.3 / 150.05, 1160.4 / 149.65), rel=1e-12)


def test_an_interval_over_a_rounded_number_is_wider():
    found = Interval(1.6, 1.7, 0.96875, "any", (6,)).over(1.68, 0.005)
    assert (found.low, found.high) == pytest.approx((1.6 / 1.685, 1.7 / 1.675), rel=1e-12)
    assert Interval(1.6, 1.7, 0.9, "any", (6,)).over(2) == Interval(0.8, 0.85, 0.9, "any", (6,))


@pytest.mark.parametrize(
    ("confidence", "degrees", "bound"),
    [
        (0.95, 1, 12.7062),
        (0.95, 2, 4.30265),
        (0.95, 3, 3.18245),
        (0.95, 4, 2.77645),
        (0.99, 5, 4.03214),
        (0.9, 10, 1.81246),
        (0.95, 1000, 1.96234),
    ],
)
def test_students_bounds_are_those_of_the_tables(confidence, degrees, bound):
    assert student_bound(confidence, degrees) == pytest.approx(bound, rel=1e-5)


@pytest.mark.parametrize("runs", [2, 3, 5])
def test_the_interval_over_runs_covers_what_the_runs_scatter_about(runs):
    """Hosts differ by 3 %: 95 % of the intervals hold the mean of all hosts, within the noise of 4000 trials."""
    source, trials, hits = random.Random(7), 4000, 0
    for _ in range(trials):
        found = geometric_interval([0.9 * math.exp(source.gauss(0, 0.03)) for _ in range(runs)])
        hits += found.low <= 0.9 <= found.high
    assert hits / trials == pytest.approx(0.95, abs=4 * math.sqrt(0.95 * 0.05 / trials))


def test_a_geometric_mean_is_that_of_positive_numbers():
    assert geometric_mean([0.5, 2.0]) == pytest.approx(1.0)
    assert geometric_mean([4.0, 9.0]) / geometric_mean([1.0, 4.0]) == pytest.approx(geometric_mean([4.0, 2.25]))
    for wrong in ([], [1.0, 0.0], [1.0, -1.0]):
        with pytest.raises(ValueError, match="no"):
            geometric_mean(wrong)


def test_one_run_and_equal_runs_have_no_interval():
    assert geometric_interval([0.9]) == TooFew((1,), 2)
    assert geometric_interval([0.9, 0.9]).equal


def test_a_quantile_between_the_two_largest_values():
    assert quantile([1, 2, 3, 5], 0.9) == pytest.approx(3 + 0.7 * 2)
    assert quantile([1, 2, 3, 5], 0) == 1


def test_95_per_cent_is_what_is_asked_for_unless_said():
    assert samples_needed() == samples_needed(0.95) == 6
    many = [float(value) for value in range(21)]
    assert median_interval(many) == median_interval(many, 0.95) != median_interval(many, 0.9)
    assert ratio_interval(many[1:], BERT_96) == ratio_interval(many[1:], BERT_96, 0.95)
    assert geometric_interval(BERT_96) == geometric_interval(BERT_96, 0.95)
    assert median_interval(many).confidence >= 0.95 and ratio_interval(many[1:], BERT_96).confidence >= 0.95


def test_a_confidence_that_is_just_reached_is_reached():
    assert largest_trim(9, 0.9609375) == 2 and largest_trim(9, 0.961) == 1
    assert largest_trim(6, 0.3125) == 3, "up to the two middle values"
    exact = ratio_coverage((9, 9), (2, 2))
    assert ratio_interval(NINE, NINE, exact).low == 2 / 8
    assert ratio_interval(NINE, NINE, exact + 1e-9).low == 1 / 8, "one value less is taken off one side"


NINE = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]


@pytest.mark.parametrize(
    ("sizes", "confidence", "trims"),
    [
        ((20, 6), 0.95, (5, 1)),
        ((6, 20), 0.95, (1, 5)),
        ((12, 12), 0.958, (2, 2)),
        ((12, 12), 0.95, (2, 3)),
        ((2, 9), 0.95, (1, 1)),
        ((2, 2), 0.95, (1, 1)),
    ],
)
def test_a_ratio_takes_off_as_much_as_its_confidence_allows_and_evenly(sizes, confidence, trims):
    """By the product of both coverages: 0.98818 for the 5th of 20, 0.96875 for the 1st of 6, 0.99365 for the 2nd of 12."""
    over, under = ([100.0 + step for step in range(size)] for size in sizes)
    found = ratio_interval(over, under, confidence)
    low = (99 + trims[0]) / (100 + sizes[1] - trims[1])
    high = (100 + sizes[0] - trims[0]) / (99 + trims[1])
    assert (found.low, found.high) == (low, high)
    assert found.confidence == ratio_coverage(sizes, trims) and found.samples == sizes


def test_the_bound_for_minimum_and_maximum_of_both_sides():
    assert ratio_coverage((6, 9), (1, 1)) == ratio_coverage((9, 6), (1, 1)) == 1 - 2**-5 - 2**-5 * 2**-8 / 2
    assert ratio_coverage((2, 2), (1, 1)) == 1 - 1 / 2 - 1 / 8
    assert ratio_coverage((9, 6), (2, 1)) == order_coverage(9, 2) * order_coverage(6, 1)


def test_students_interval_of_few_runs():
    """Of logarithms -d, d, whose deviation is sqrt(2) d; of -d, 0, d, whose deviation is d."""
    two = geometric_interval([math.exp(-0.01), math.exp(0.01)])
    assert (math.log(two.low), math.log(two.high)) == pytest.approx((-0.127062, 0.127062), rel=1e-5)
    three = geometric_interval([3 * math.exp(-0.01), 3.0, 3 * math.exp(0.01)])
    half = 4.30265 * 0.01 / math.sqrt(3)
    assert (three.low, three.high) == pytest.approx((3 * math.exp(-half), 3 * math.exp(half)), rel=1e-6)
    assert (three.samples, three.confidence, three.method) == ((3,), 0.95, STUDENT)
    assert geometric_mean([2.0, 8.0]) == pytest.approx(4.0)
