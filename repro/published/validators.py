"""Checks of values read from a file: each answers with the reason a value is refused, or with None."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping

Check = Callable[[object], "str | None"]


def whole(least: int) -> Check:
    """A whole number of at least `least`."""

    def check(value: object) -> str | None:
        fits = type(value) is int and value >= least
        return None if fits else f"is {value!r}; must be a whole number of at least {least}"

    return check


def number(meaning: str, fits: Callable[[float], bool]) -> Check:
    """A finite number that `fits`; `meaning` says in words what that is."""

    def check(value: object) -> str | None:
        if (
            isinstance(value, int | float)
            and not isinstance(value, bool)
            and -math.inf < value < math.inf
            and fits(value)
        ):
            return None
        return f"is {value!r}; must be a number {meaning}"

    return check


def text(pattern: str = r"(?s)\S.*", meaning: str = "a text") -> Check:
    """A text that matches `pattern` as a whole; `meaning` says in words what that is."""
    matches = re.compile(pattern).fullmatch

    def check(value: object) -> str | None:
        return None if isinstance(value, str) and matches(value) else f"is {value!r}; must be {meaning}"

    return check


def one_of(*allowed: object) -> Check:
    """One of a few values of the same type."""

    def check(value: object) -> str | None:
        fits = type(value) is type(allowed[0]) and value in allowed
        return None if fits else f"is {value!r}; allowed: {', '.join(map(str, allowed))}"

    return check


def listed(item: Check, length: int | None = None) -> Check:
    """A list of at least one value, or of exactly `length`, each of which passes `item`."""

    def check(value: object) -> str | None:
        if not isinstance(value, list) or not value or (length and len(value) != length):
            return f"is {value!r}; must be a list of {length or 'one or more'} values"
        return next(
            (f"value {place} {reason}" for place, element in enumerate(value, 1) if (reason := item(element))), None
        )

    return check


def any_table(value: object) -> str | None:
    """Any table."""
    return None if isinstance(value, dict) else f"is {value!r}; must be a table"


def cell(value: object) -> str | None:
    """Anything but a list or a table."""
    return f"is {value!r}; must be a single value" if isinstance(value, list | dict) else None


def number_from(least: float = -math.inf, most: float = math.inf) -> Check:
    """A number in these bounds; without any, also NaN or an infinity, as losses may be."""

    def check(value: object) -> str | None:
        bounded = (least, most) != (-math.inf, math.inf)
        fits = type(value) in (int, float) and (not bounded or least <= value <= most)  # type: ignore[operator]
        return None if fits and _is_float(value) else f"is {short(value)}; must be a number from {least:g} to {most:g}"

    return check


def _is_float(value: object) -> bool:
    try:
        return float(value) is not None  # type: ignore[arg-type]
    except OverflowError:
        return False


def bounded(least: int, most: int) -> Check:
    """A whole number in these bounds."""
    at_least = whole(least)

    def check(value: object) -> str | None:
        fits = at_least(value) is None and value <= most  # type: ignore[operator]
        return None if fits else f"is {short(value)}; must be a whole number from {least} to {most}"

    return check


def optional(check: Check) -> Check:
    """What passes `check`, or null."""
    return lambda value: None if value is None else check(value)


def several(item: Check, most: int) -> Check:
    """A list whose values all pass `item`, at most `most` of them."""

    def check(value: object) -> str | None:
        if not isinstance(value, list) or len(value) > most:
            return f"must be a list of at most {most} values"
        return next((f"{at}: {fault}" for at, element in enumerate(value, 1) if (fault := item(element))), None)

    return check


def table(form: Mapping[str, Check], required: tuple[str, ...] = (), other: Check | None = None) -> Check:
    """A table that has the required keys; those of `form` pass their checks, any others pass `other`."""

    def check(value: object) -> str | None:
        if not isinstance(value, dict):
            return f"is {short(value)}; must be a table"
        if missing := [key for key in required if key not in value]:
            return f"has no {missing[0]}"
        for key, entry in value.items():
            checked = form.get(key, other)
            if checked and (fault := checked(entry)):
                return f"{short(key)} {fault}" if isinstance(entry, dict | list) else f"{short(key)}: {fault}"
        return None

    return check


def mapping(value: Check) -> Check:
    """A table with any keys, whose values pass `value`."""
    return table({}, other=value)


def line(most: int = 4000) -> Check:
    """A text in one line."""

    def check(value: object) -> str | None:
        fits = isinstance(value, str) and len(value) <= most and "\n" not in value
        return None if fits else f"is {short(value)}; must be a text in one line"

    return check


def short(value: object) -> str:
    shown = repr(value) if not isinstance(value, int) or abs(value) < 10**20 else "a huge number"
    return shown if len(shown) < 60 else f"{shown[:60]} …"


class Faults:
    """The faults found in one file, each once, a line each: file, place, key, reason."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.lines: dict[str, None] = {}

    def say(self, place: str, key: str, reason: str) -> None:
        self.lines[f"{self.file}: {place}: {key}: {reason}"] = None

    def keys(
        self,
        where: str | Callable[[str], str],
        values: object,
        required: Mapping[str, Check],
        optional: Mapping[str, Check] | None = None,
        prefix: str = "",
    ) -> bool:
        """Check a table's keys and values; `where` is its place, or a function from a key to its place.

        True if the table has no fault. What is no table is passed over: its own check has said so.
        """
        if not isinstance(values, dict):
            return False
        place, checks = where if callable(where) else lambda _: where, {**required, **(optional or {})}
        faults = {key: "missing" for key in required if key not in values}
        for key, value in values.items():
            reason = checks[key](value) if key in checks else f"unknown key; allowed: {', '.join(checks)}"
            if reason:
                faults[key] = reason
        for key, reason in faults.items():
            self.say(place(key), prefix + key, reason)
        return not faults
