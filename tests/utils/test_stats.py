"""Tests of the statistics that compare repeated measurements."""

import math
import random
import statistics

import pytest

from repro.utils.stats import (
    Interval,
    TooFew,
    median,
    median_interval,
    quantile,
    ratio_interval,
    relative_difference,
    samples_needed,
    scaling_efficiency,
    speedup,
    spread,
    t_interval,
    t_quantile,
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
    assert found.iqr == pytest.approx(0.1)
    assert found.mean == pytest.approx(statistics.mean(BERT_96))
    assert found.cv == pytest.approx(statistics.stdev(BERT_96) / statistics.mean(BERT_96))


def test_spread_says_nothing_of_too_few():
    assert (spread([5.0]).cv, spread([5.0]).standard_deviation, spread([5.0]).iqr) == (None, None, None)
    assert spread([4.0, 6.0]).standard_deviation == pytest.approx(math.sqrt(2))
    assert spread([4.0, 5.0, 6.0]).iqr is None
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
    "interval",
    [
        median_interval(BERT_96[:5]),
        ratio_interval(BERT_96, BERT_96[:5]),
        ratio_interval([1.0], [2.0]),
        t_interval([1.0]),
    ],
)
def test_too_few_samples_is_an_answer(interval):
    assert isinstance(interval, TooFew)
    assert not interval
    assert "too few samples" in str(interval)


def test_bootstrap_is_deterministic_and_seeded():
    values = [random.Random(3).gauss(100, 5) for _ in range(20)]
    assert median_interval(values) == median_interval(values)
    wide = [random.Random(n).gauss(100, 5) for n in range(40)]
    assert median_interval(wide, seed=1) != median_interval(wide, seed=2)


def test_bootstrap_interval_holds_the_median_and_narrows_with_confidence():
    wide, narrow = median_interval(BERT_96_8, 0.95), median_interval(BERT_96_8, 0.5)
    assert min(BERT_96_8) <= wide.low <= narrow.low <= 1158.5 <= narrow.high <= wide.high <= max(BERT_96_8)
    assert isinstance(wide, Interval)


def test_ratio_interval_holds_the_published_speedup():
    found = ratio_interval(BERT_96_8, BERT_96)
    assert found.low < 7.7336 < found.high
    assert found.high - found.low < 0.03
    assert found.samples == (7, 7)
    same = ratio_interval([2.0] * 6, [4.0] * 6)
    assert (same.low, same.high) == (0.5, 0.5)


def test_median_interval_covers_the_true_median():
    generator = random.Random(11)
    held = 0
    for _ in range(60):
        found = median_interval([generator.gauss(10, 1) for _ in range(15)])
        held += found.low <= 10 <= found.high
    assert held >= 50


@pytest.mark.parametrize(
    ("degrees", "expected"),
    [(1, 12.7062047), (2, 4.3026527), (3, 3.1824463), (6, 2.4469119), (29, 2.0452296), (120, 1.9799304)],
)
def test_t_quantile_agrees_with_the_tables(degrees, expected):
    assert t_quantile(0.95, degrees) == pytest.approx(expected, abs=1e-7)


def test_t_interval():
    found = t_interval([1.0, 2.0, 3.0])
    half = 4.3026527 / math.sqrt(3)
    assert (found.low, found.high) == (pytest.approx(2 - half), pytest.approx(2 + half))
