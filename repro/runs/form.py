"""The form of a run's record: the type and bounds of each value that readers compute with, name files by, or show.

A record may come from others, and figures in it decide how long a reader works: 10^12 ranks would take for ever. Values
may be missing, as releases recorded different ones, and further ones are let through; `repro.runs.files.reading` names a
record that lacks what its reader needs. Bounds are far beyond any run.
"""

from __future__ import annotations

import re
import string

from repro.published import trainer_config
from repro.published.rules import kinds
from repro.published.trainer_config import COUNT, ITERATIONS, NAME
from repro.published.validators import (
    bounded,
    line,
    mapping,
    number_from,
    one_of,
    optional,
    several,
    short,
    table,
    text,
)
from repro.runs import environment
from repro.runs.limits import name_fault

REPEATS, UNITS = 1_000, 10_000
YEAR_2100 = 4_102_444_800
IDENTIFIER = text(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}", "the id of a run: letters, digits, '_', '.' and '-'")
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
RULE = table(
    {
        "kind": lambda value: one_of(*kinds())(value),
        "repeats": bounded(1, REPEATS),
        "stated": FLAG,
        "source": text(r"(?s).*"),
    },
    ("kind",),
    other=optional(bounded(0, ITERATIONS)),
)


def _rule(value: object) -> str | None:
    if fault := RULE(value):
        return fault
    keys = kinds()[value["kind"]].keys  # type: ignore[index]
    return next((f"has no {key}" for key in keys if value.get(key) is None), None)  # type: ignore[attr-defined]


UNIT = table(
    {
        "name": NAME,
        "model": NAME,
        "config": trainer_config.FORM,
        "rule": _rule,
        "global_batch": bounded(1, COUNT),
        **dict.fromkeys(("stands_for", "derived_from"), several(NAME, UNITS)),
        **dict.fromkeys(("reference", "baseline_of", "peer_of", "tuned_of", "variant"), optional(NAME)),
        **dict.fromkeys(("report", "case"), lambda value: None if value == "" else NAME(value)),
        **dict.fromkeys(("framework", "program"), NAME),
        "role": text(r"[a-z]*", "a role"),
        "tf32": FLAG,
    }
)
LOOK = table(dict.fromkeys(("repeats", "trim"), bounded(1, REPEATS)), ("repeats", "trim"))
PLAN = table(
    {
        "scale": NAME,
        "kind": NAME,
        "device": one_of("cpu", "cuda"),
        "repeats": bounded(1, REPEATS),
        "units": several(UNIT, UNITS),
        "skipped": several(
            table({"case": NAME, "model": NAME, "message": message, "values": table({})}, ("case", "message")), UNITS
        ),
        "looks": several(LOOK, REPEATS),
    }
)
DESCRIPTION = table(
    {
        "id": IDENTIFIER,
        "created": number_from(0, YEAR_2100),
        "command": line(),
        "plan": PLAN,
        "environment": environment.FORM,
        "goals": mapping(table({"limit": number_from(), "meaning": MESSAGE}, ("limit", "meaning"))),
    }
)
"""`run.json`."""

FIGURE = optional(number_from(-COUNT, COUNT))
"""A figure of an attempt (`repro.runs.attempts`)."""
