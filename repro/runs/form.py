"""What the forms of a run's records share: bounds, messages, paths. A form has the type and bounds of each value that
readers compute with, name files by, or show.

A record may come from others, and figures in it decide how long a reader works: 10^12 ranks would take for ever. Values
may be missing, as releases recorded different ones, and further ones are let through; `repro.runs.files.reading` names a
record that lacks what its reader needs. Bounds are far beyond any run.
"""

from __future__ import annotations

import re
import string

from repro.published.trainer_config import COUNT
from repro.published.validators import line, number_from, one_of, optional, short, table
from repro.runs.limits import name_fault

REPEATS, UNITS = 1_000, 10_000
YEAR_2100 = 4_102_444_800
PLACEHOLDER = re.compile(r"[<>^]?0?\d{0,2}(?:,)?(?:\.\d{1,2})?[a-z%]?")
"""How a value in a message may be formatted: a width of 10^9 characters is none that a message has."""


def message(value: object) -> str | None:
    """A message whose placeholders are plain names with short formats."""
    if not isinstance(value, str) or len(value) > 4000:
        return f"is {short(value)}; must be a message"
    try:
        parts = list(string.Formatter().parse(value))
    except ValueError as error:
        return f"is {short(value)}: {error}"
    plain = all(
        name is None or (name.isidentifier() and not conversion and PLACEHOLDER.fullmatch(spec or ""))
        for _, name, spec, conversion in parts
    )
    return None if plain else f"is {short(value)}; its placeholders are no plain names"


def folder(value: object) -> str | None:
    """A path below the run's folder."""
    return name_fault(value) if isinstance(value, str) else f"is {short(value)}; must be a path"


FLAG = one_of(True, False)
MESSAGE = table({"message": message, "values": table({}), "hint": optional(line())}, ("message", "values"))
FIGURE = optional(number_from(-COUNT, COUNT))
"""A figure of an attempt (`repro.runs.attempts`)."""
