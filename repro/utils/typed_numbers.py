"""Reads the numbers that people type, the same way wherever one can be given."""

import re

NUMBER = re.compile(r"[0-9]{1,10}(?:\.[0-9]{0,10})?|\.[0-9]{1,10}")


def number_of(text: str) -> int | float | None:
    """The number in a text, an int where it has no point; None if it is no number in ASCII digits.

    `float` would also take the digits of every script, 1_0, 1e3 and nan.
    """
    if not NUMBER.fullmatch(text):
        return None
    return float(text) if "." in text else int(text)
