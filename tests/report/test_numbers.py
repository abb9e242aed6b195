"""One way to write numbers: four significant digits, no separators, a dash for nothing."""

import pytest

from repro.report import numbers


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (11711.2, "11711"),
        (516.14, "516.1"),
        (38.28, "38.28"),
        (4.8, "4.800"),
        (0.84, "0.8400"),
        (0.0123, "0.01230"),
        (9.99996, "10.00"),
        (999.96, "1000"),
        (-1.5, "-1.500"),
        (0, "0"),
        (None, "–"),
    ],
)
def test_four_digits_count(value, text):
    assert numbers.significant(value) == text


def test_short_ones_do_not_end_in_zeros():
    assert [numbers.short(value) for value in (2.0, 0.5, 4456.0, 100.0)] == ["2", "0.5", "4456", "100"]
    assert numbers.short(1158.5, 5) == "1158.5"


def test_shares_ratios_and_differences_have_fixed_decimals():
    assert (numbers.percentage(0.9756), numbers.ratio(0.85671), numbers.whole(12564.6)) == ("97.6%", "0.857", "12565")
    assert (numbers.signed_percentage(-0.003), numbers.signed_percentage(0.152)) == ("−0.3%", "+15.2%")
    assert numbers.percentage(None) == numbers.ratio(None) == numbers.whole(None) == "–"


def test_a_span_of_equal_texts_is_one():
    assert numbers.span(["0.900", "0.900"]) == "0.900"
    assert numbers.span(["0.312", "0.384", "0.486"]) == "0.312–0.486"
    assert numbers.span([]) == "–"
