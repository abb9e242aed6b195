"""The form of a run's record: the type and bounds of each value that readers compute with, name files by, or show.

A record may come from others, and figures in it decide how long a reader works: 10^12 ranks would take for ever. Values
may be missing, as releases recorded different ones, and further ones are let through; `repro.runs.files.reading` names a
record that lacks what its reader needs. Bounds are far beyond any run.
"""

from __future__ import annotations

import math
import re
import string
from collections.abc import Mapping

from repro.published.rules import kinds
from repro.published.validators import Check, one_of, text, whole
from repro.runs.limits import name_fault

RANKS, REPEATS, UNITS, ITERATIONS = 65_536, 1_000, 10_000, 10**7
LAYERS, SIZE, COUNT = 10_000, 10**7, 10**12
YEAR_2100 = 4_102_444_800
NAME = text(r"[A-Za-z0-9][A-Za-z0-9_., '-]{0,199}", "a name of letters, digits, blanks and _ - . , '")
IDENTIFIER = text(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}", "the id of a run: letters, digits, '_', '.' and '-'")
PLACEHOLDER = re.compile(r"[<>^]?0?\d{0,2}(?:,)?(?:\.\d{1,2})?[a-z%]?")
"""How a value in a message may be formatted: a width of 10^9 characters is none that a message has."""


def number(least: float = -math.inf, most: float = math.inf) -> Check:
    """A number in these bounds; without any, also NaN or an infinity, as losses may be."""

    def check(value: object) -> str | None:
        bounded = (least, most) != (-math.inf, math.inf)
        fits = type(value) in (int, float) and (not bounded or least <= value <= most)  # type: ignore[operator]
        return None if fits and _is_float(value) else f"is {_short(value)}; must be a number from {least:g} to {most:g}"

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
        return None if fits else f"is {_short(value)}; must be a whole number from {least} to {most}"

    return check


def optional(check: Check) -> Check:
    """What passes `check`, or null."""
    return lambda value: None if value is None else check(value)


def several(item: Check, most: int) -> Check:
    """A list of at most `most` values, each of which passes `item`."""

    def check(value: object) -> str | None:
        if not isinstance(value, list) or len(value) > most:
            return f"must be a list of at most {most} values"
        return next((f"{at}: {fault}" for at, element in enumerate(value, 1) if (fault := item(element))), None)

    return check


def table(form: Mapping[str, Check], required: tuple[str, ...] = (), other: Check | None = None) -> Check:
    """A table that has the required keys; those of `form` pass their checks, any others pass `other`."""

    def check(value: object) -> str | None:
        if not isinstance(value, dict):
            return f"is {_short(value)}; must be a table"
        if missing := [key for key in required if key not in value]:
            return f"has no {missing[0]}"
        for key, entry in value.items():
            checked = form.get(key, other)
            if checked and (fault := checked(entry)):
                return f"{_short(key)} {fault}" if isinstance(entry, dict | list) else f"{_short(key)}: {fault}"
        return None

    return check


def mapping(value: Check) -> Check:
    """A table with any keys, whose values pass `value`."""
    return table({}, other=value)


def line(most: int = 4000) -> Check:
    """A text in one line."""

    def check(value: object) -> str | None:
        fits = isinstance(value, str) and len(value) <= most and "\n" not in value
        return None if fits else f"is {_short(value)}; must be a text in one line"

    return check


def message(value: object) -> str | None:
    """A message whose placeholders are plain names with short formats."""
    if not isinstance(value, str) or len(value) > 4000:
        return f"is {_short(value)}; must be a message"
    try:
        parts = list(string.Formatter().parse(value))
    except ValueError as error:
        return f"is {_short(value)}: {error}"
    plain = all(
        name is None or (name.isidentifier() and not conversion and PLACEHOLDER.fullmatch(spec or ""))
        for _, name, spec, conversion in parts
    )
    return None if plain else f"is {_short(value)}; its placeholders are no plain names"


def folder(value: object) -> str | None:
    """A path below the run's folder."""
    return name_fault(value) if isinstance(value, str) else f"is {_short(value)}; must be a path"


def _short(value: object) -> str:
    shown = repr(value) if not isinstance(value, int) or abs(value) < 10**20 else "a huge number"
    return shown if len(shown) < 60 else f"{shown[:60]} …"


FLAG = one_of(True, False)
SINGLE = optional(lambda value: None if isinstance(value, str | bool) else number(-COUNT, COUNT)(value))
MESSAGE = table({"message": message, "values": table({}), "hint": optional(line())}, ("message", "values"))
AXES = dict.fromkeys(("data", "tensor", "pipeline"), bounded(1, RANKS))
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
SHAPE = table({"layers": bounded(1, LAYERS)}, other=bounded(0, SIZE))
COUNTED = ("accumulation_steps", "micro_batch", "log_interval", "iterations")


def _rule(value: object) -> str | None:
    if fault := RULE(value):
        return fault
    keys = kinds()[value["kind"]].keys  # type: ignore[index]
    return next((f"has no {key}" for key in keys if value.get(key) is None), None)  # type: ignore[attr-defined]


def _layout(value: object) -> str | None:
    fault = table(AXES, tuple(AXES), one_of(1))(value)
    ranks = 0 if fault else math.prod(value.values())  # type: ignore[attr-defined]
    return fault or (f"has {ranks} ranks; at most {RANKS} are read" if ranks > RANKS else None)


CONFIG = table(
    {
        "case": NAME,
        "model": NAME,
        "layout": _layout,
        "shape": SHAPE,
        **dict.fromkeys(COUNTED, bounded(1, ITERATIONS)),
        **dict.fromkeys(
            ("optimizer", "schedule"), mapping(lambda value: None if isinstance(value, list) else SINGLE(value))
        ),
        "data": optional(table({})),
        "baseline": table({}),
        "peer": table({}),
    },
    other=SINGLE,
)
UNIT = table(
    {
        "name": NAME,
        "model": NAME,
        "config": CONFIG,
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
GPU = table({}, ("name",), optional(line()))
ENVIRONMENT = table(
    {
        **dict.fromkeys(("host", "system", "kernel", "cpu", "controller_python"), optional(line())),
        **dict.fromkeys(("cpu_count", "cpu_affinity", "memory_mib", "git_changed_files"), optional(bounded(0, COUNT))),
        "git_commit": optional(text(r"[0-9a-f]{0,64}", "a commit")),
        "gpus": several(GPU, RANKS),
        "locks_sha256": mapping(line()),
        "machine": table(
            dict.fromkeys(("id", "start"), text(r"[0-9a-f]{16}", "16 hexadecimal digits")), ("id", "start")
        ),
        **dict.fromkeys(("cluster", "stack", "kit", "jit_cache"), optional(table({}))),
    }
)
DESCRIPTION = table(
    {
        "id": IDENTIFIER,
        "created": number(0, YEAR_2100),
        "command": line(),
        "plan": PLAN,
        "environment": ENVIRONMENT,
        "goals": mapping(table({"limit": number(), "meaning": MESSAGE}, ("limit", "meaning"))),
    }
)
"""`run.json`."""

FIGURE = optional(number(-COUNT, COUNT))
"""A figure of an attempt (`repro.runs.attempts`)."""
