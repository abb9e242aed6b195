"""How pages write models, families of reports and precisions, and enumerations."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from repro.published.cases import load_catalogue
from repro.runs.files import read_toml
from repro.runs.unit import Unit
from repro.utils.i18n import Translate
from repro.utils.paths import DATA

NAMES = DATA / "names.toml"


def name(text: str) -> str:
    """A model, a report's family or a precision as pages write it."""
    return _names().get(text, text)


@cache
def _names() -> dict[str, str]:
    return read_toml(NAMES)


def family(report: str) -> str:
    """What a report is of, by its id; the id itself if no such report is in the catalogue."""
    return next((published.family for published in load_catalogue().reports if published.id == report), report)


def subject(unit: Unit) -> str:
    """What trains: the model and its precision."""
    return " ".join((name(family(unit.report)), name(unit.precision)))


def listed(_: Translate, parts: Iterable[str]) -> str:
    """An enumeration: the last two of several joined by "and"; empty if there is nothing."""
    *first, last = [*parts] or [""]
    return _("{first} and {last}").format(first=_(", ").join(first), last=last) if first else last
