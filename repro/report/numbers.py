"""How pages and figures write numbers: four significant digits, as most published figures have, and no separators.

Published reports print 11711.2 and 12565, not 11,711.2; the same number reads the same in a table, a figure and a log.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

DIGITS = 4
RANGE = "–"
NOTHING = "–"


def significant(value: float | None, digits: int = DIGITS) -> str:
    """A number with this many significant digits, all those before the point kept; a dash for none.

    516.14 becomes "516.1", 4.8 "4.800", 11711.2 "11711", 0 "0".
    """
    if value is None:
        return NOTHING
    text = f"{value:.{_decimals(value, digits)}f}"
    return f"{value:.{_decimals(float(text), digits)}f}"  # 9.9996 has become 10.000, one digit too many


def _decimals(value: float, digits: int) -> int:
    """Decimals that leave `digits` significant ones: 0.0123 needs 5 for four, 516.14 needs 1."""
    if not value:
        return 0
    return max(0, digits - 1 - math.floor(math.log10(abs(value))))


def short(value: float, digits: int = DIGITS) -> str:
    """The same without zeros that end it, for axes and labels: 2.000 becomes "2"."""
    text = significant(value, digits)
    return text.rstrip("0").rstrip(".") if "." in text else text


def ratio(value: float | None) -> str:
    """A ratio with three decimals, which is what repeats of a run agree to."""
    return NOTHING if value is None else f"{value:.3f}"


def percentage(value: float | None, decimals: int = 1) -> str:
    """A share in per cent, with one decimal unless stated: 0.9756 becomes "97.6%"."""
    return NOTHING if value is None else f"{100 * value:.{decimals}f}%"


def fixed(value: float, decimals: int) -> str:
    """A number with this many decimals, for columns whose numbers are all of one size."""
    return f"{value:.{decimals}f}"


def scientific(value: float) -> str:
    """A small number: 0.000012 becomes "1.2e-05"."""
    return f"{value:.1e}"


def factor(uncertainty: float) -> str:
    """An uncertainty that is a factor less one, as the factor: 0.3 becomes "× 1.30"."""
    return f"× {1 + uncertainty:.2f}"


def signed_percentage(value: float) -> str:
    """A relative difference with its sign, the minus as wide as the plus: "+1.3%", "−0.3%"."""
    return f"{100 * value:+.1f}%".replace("-", "−")


def whole(value: float | None) -> str:
    """A count, or memory in MiB."""
    return NOTHING if value is None else f"{value:.0f}"


def span(texts: Iterable[str]) -> str:
    """The first and the last of numbers already written, in ascending order; one if they read the same."""
    all_texts = list(texts)
    if not all_texts:
        return NOTHING
    return all_texts[0] if all_texts[0] == all_texts[-1] else f"{all_texts[0]}{RANGE}{all_texts[-1]}"
