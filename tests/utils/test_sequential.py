"""Looking at an interval more than once: the error of all looks together, and where looks lie."""

import itertools
import random

import pytest

from repro.utils.sequential import Look, error, make_looks, trim_at
from repro.utils.stats import order_coverage, order_interval

TWO = (Look(6, 1), Look(12, 2))


@pytest.mark.parametrize(("repeats", "trim"), [(2, 1), (6, 1), (9, 2), (15, 4)])
def test_one_look_has_the_error_of_its_interval(repeats, trim):
    assert error((Look(repeats, trim),)) == pytest.approx(1 - order_coverage(repeats, trim))


def test_looks_with_one_trim_are_no_further_chance():
    """The interval from minimum to maximum only widens, so a miss later on was one before."""
    assert error((Look(6, 1), Look(7, 1), Look(12, 1))) == error((Look(6, 1),))


def test_the_error_of_all_looks_is_what_a_simulation_finds():
    generator, trials, missed = random.Random(2), 20_000, 0
    for _ in range(trials):
        values = [generator.expovariate(1) for _ in range(12)]
        intervals = [order_interval(values[:repeats], trim_at(TWO, repeats)) for repeats in range(6, 13)]
        missed += any(not low < 0.6931471805599453 < high for low, high in intervals)
    expected = error(TWO)
    assert missed / trials == pytest.approx(expected, abs=4 * (expected * (1 - expected) / trials) ** 0.5)
    assert expected > error(TWO[:1]) and expected > 1 - order_coverage(12, 2)


@pytest.mark.parametrize("allowed", [0.01, 0.0349, 0.05, 0.2])
def test_looks_are_as_early_as_the_error_allows(allowed):
    looks = make_looks(30, allowed)
    assert error(looks) <= allowed
    assert [look.trim for look in looks] == list(range(1, len(looks) + 1))
    for number, look in enumerate(looks):
        earlier = (*looks[:number], Look(look.repeats - 1, look.trim))
        assert look.repeats - 1 < 2 * look.trim or error(earlier) > allowed


def test_too_few_repeats_have_no_look():
    assert make_looks(5, 0.05) == ()
    assert [trim_at(TWO, repeats) for repeats in (1, 5, 6, 11, 12, 40)] == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize(
    ("most", "allowed", "expected"),
    [
        (30, 0.05, [(6, 1), (10, 2), (14, 3), (18, 4), (25, 5), (30, 6)]),
        (12, 0.0349, [(6, 1), (12, 2)]),
        (11, 0.0349, [(6, 1)]),
        (12, 0.2, [(4, 1), (7, 2), (12, 3)]),
        (6, 0.03125, [(6, 1)]),
        (6, 0.03124, []),
        (2, 0.5, [(2, 1)]),
        (5, 1.0, [(2, 1), (4, 2)]),
    ],
)
def test_looks_of_some_numbers_of_repeats(most, allowed, expected):
    """0.0349 is what a run may miss: 6 repeats miss 1/32, and 12 with one value off each end make it 0.03418."""
    assert [(look.repeats, look.trim) for look in make_looks(most, allowed)] == expected


@pytest.mark.parametrize("looks", [TWO, ((2, 1), (4, 2), (7, 3)), ((5, 1), (9, 3)), ((3, 1), (4, 1), (8, 2))])
def test_the_error_is_that_of_all_ways_in_which_values_can_lie(looks):
    """Each value is below the median or above it, with equal probability."""
    looks = tuple(Look(*each) if isinstance(each, tuple) else each for each in looks)
    missed, repeats = 0, looks[-1].repeats
    for sides in itertools.product((0, 1), repeat=repeats):
        below = [sum(sides[: look.repeats]) for look in looks]
        missed += any(not look.trim <= n <= look.repeats - look.trim for look, n in zip(looks, below, strict=True))
    assert error(looks) == missed / 2**repeats
