"""Numbers that people type."""

import pytest

from repro.utils.typed_numbers import number_of


@pytest.mark.parametrize(
    ("text", "number"),
    [("8", 8), ("007", 7), ("2.5", 2.5), (".5", 0.5), ("5.", 5.0), *((text, None) for text in ("", ".", "٣", "1_0"))],
)
def test_numbers_are_written_in_ascii_digits(text, number):
    assert number_of(text) == number
    assert type(number_of(text)) is type(number)


@pytest.mark.parametrize("text", ["1e3", "nan", "inf", "-1", "+1", " 1", "1 ", "1\n", "9" * 11])
def test_no_other_form_of_a_number_is_taken(text):
    assert number_of(text) is None
