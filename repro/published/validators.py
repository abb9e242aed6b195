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


def table(value: object) -> str | None:
    """Any table."""
    return None if isinstance(value, dict) else f"is {value!r}; must be a table"


def cell(value: object) -> str | None:
    """Anything but a list or a table."""
    return f"is {value!r}; must be a single value" if isinstance(value, list | dict) else None


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
