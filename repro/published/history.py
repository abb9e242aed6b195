"""Findings from the sources of the published reports beyond their figures, and open questions: `history.toml`.

Every number in a text is in a quoted source of its entry or follows from such numbers by a stated calculation.
"""

from __future__ import annotations

import ast
import calendar
import math
import operator
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from repro.published.cases import CaseError, Catalogue
from repro.published.validators import Faults, any_table, listed, one_of, text
from repro.utils.paths import DATA

FILE = DATA / "history.toml"
STATES = ("settled", "open")
SLUG = text(r"[a-z0-9]+(?:-[a-z0-9]+)*", "words in lower case, joined by hyphens")
REFERENCE = re.compile(
    r"(?P<repository>[\w.-]+/[\w.-]+)@(?P<commit>[0-9a-f]{40})(?::(?P<path>[^#\s]+)(?:#L(?P<first>\d+)(?:-L(?P<last>\d+))?)?)?"
    r"|repro/data/\S+\.toml"
)
KEYS = {
    "slug": SLUG,
    "state": one_of(*STATES),
    "reports": listed(text()),
    **dict.fromkeys(("title", "text", "meaning"), any_table),
    "source": listed(any_table),
}
OPTIONAL = {"cases": listed(text()), "derived": listed(any_table), "finding": one_of(True)}
TEXTS = dict.fromkeys(("en", "zh"), text())
SOURCE = {"at": text(f"(?:{REFERENCE.pattern})", "repository@commit:path#lines with all 40 digits"), "quote": text()}
SOURCE_OPTIONAL = {"date": text(r"\d{4}-\d\d-\d\d(?: \d\d:\d\d)?", "a date, YYYY-MM-DD, with hours and minutes or not")}
DERIVED = dict.fromkeys(("value", "by"), text())
NUMBER = re.compile(r"(?<![A-Za-z0-9_.])(?<![A-Za-z]-)\d+(?:\.\d+)?(?![A-Za-z0-9_])")
MONTHS = list(calendar.month_name)[1:]
OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}


@dataclass(frozen=True)
class HistorySource:
    """A place in a repository at a commit, a quote from it, and the date of the commit if it matters."""

    at: str
    quote: str
    date: str = ""

    @property
    def link(self) -> str:
        """Where the place can be read; of a file of this project, its path."""
        match = REFERENCE.fullmatch(self.at)
        if match is None or not match["repository"]:
            return self.at
        root = f"https://github.com/{match['repository']}"
        if not match["path"]:
            return f"{root}/commit/{match['commit']}"
        lines = self.at.partition("#")[2]
        return f"{root}/blob/{match['commit']}/{match['path']}" + (f"#{lines}" if lines else "")


@dataclass(frozen=True)
class HistoryEntry:
    """One point that sources settle ("settled") or leave "open", with texts by language and the consequence for
    comparisons.

    `derived` maps a number in a text to its calculation. A `finding` of the audit says what was measured at all.
    """

    slug: str
    state: str
    reports: tuple[str, ...]
    title: dict[str, str]
    text: dict[str, str]
    meaning: dict[str, str]
    sources: tuple[HistorySource, ...]
    cases: tuple[str, ...] = ()
    derived: tuple[tuple[str, str], ...] = ()
    finding: bool = False


def load_history(catalogue: Catalogue, file: Path = FILE) -> tuple[HistoryEntry, ...]:
    """All entries, in the order of the file; CaseError with one line per fault if the file is invalid."""
    try:
        data = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise CaseError(f"{file}: {error}") from error
    faults = _faults(file.name, data, catalogue)
    if faults:
        raise CaseError(*faults)
    entries = tuple(_entry(entry) for entry in data["entry"])
    faults = [f"{file.name}: {entry.slug}: {fault}" for entry in entries for fault in unfounded(entry)]
    if faults:
        raise CaseError(*faults)
    return entries


def _faults(name: str, data: dict, catalogue: Catalogue) -> list[str]:
    findings = Faults(name)
    findings.keys("file", data, {"entry": listed(any_table)})
    if findings.lines:
        return list(findings.lines)
    known_names = {
        "reports": {report.id for report in catalogue.reports},
        "cases": {case.name for case in catalogue.cases},
    }
    seen: set[str] = set()
    for number, entry in enumerate(data["entry"], 1):
        place = f"entry {entry.get('slug', number)}"
        if not findings.keys(place, entry, KEYS, OPTIONAL):
            continue
        for part in ("title", "text", "meaning"):
            findings.keys(place, entry[part], TEXTS, prefix=f"{part}.")
        for language, title in entry["title"].items():
            if "[" in title or "]" in title:
                findings.say(
                    place, f"title.{language}", "has a bracket; titles are shown as links, so write it without"
                )
        for source in entry["source"]:
            findings.keys(place, source, SOURCE, SOURCE_OPTIONAL, prefix="source.")
        for derived in entry.get("derived", ()):
            findings.keys(place, derived, DERIVED, prefix="derived.")
        for key, names in known_names.items():
            for missing in sorted(set(entry.get(key, ())) - names):
                findings.say(place, key, f"{missing!r} is unknown")
        if entry["slug"] in seen:
            findings.say(place, "slug", "is that of another entry too")
        seen.add(entry["slug"])
    return list(findings.lines)


def _entry(data: dict) -> HistoryEntry:
    return HistoryEntry(
        slug=data["slug"],
        state=data["state"],
        reports=tuple(data["reports"]),
        title=data["title"],
        text=data["text"],
        meaning=data["meaning"],
        sources=tuple(HistorySource(**source) for source in data["source"]),
        cases=tuple(data.get("cases", ())),
        derived=tuple((derived["value"], derived["by"]) for derived in data.get("derived", ())),
        finding=data.get("finding", False),
    )


def numbers(text: str) -> set[float]:
    """The numbers of a text, with months as numbers; digits within a name or a commit are none."""
    for month, name in enumerate(MONTHS, 1):
        text = re.sub(rf"\b{name}\b", str(month), text)
    return {float(number) for number in NUMBER.findall(text)}


def unfounded(entry: HistoryEntry) -> Iterator[str]:
    """Faults in an entry's numbers, one line each.

    A number is wrong if no source has it, if its calculation yields another value, or if only one language has it.
    Dates of reports and sources count as sources.
    """
    sourced = set[float]().union(*(numbers(source.quote) for source in entry.sources))
    dates = " ".join((*entry.reports, *(source.date for source in entry.sources)))
    sourced |= {float(digits) for digits in re.findall(r"\d+", dates)}
    for value, by in entry.derived:
        decimals = len(value.partition(".")[2])
        if f"{calculate(by):.{decimals}f}" != value:
            yield f"{by} is {calculate(by):.{decimals + 2}f}, not {value}"
        sourced.add(float(value))
    for part in ("title", "text", "meaning"):
        english, chinese = (numbers(getattr(entry, part)[language]) for language in ("en", "zh"))
        if english != chinese:
            yield f"{part}: only one language has {_shown(english ^ chinese)}"
        if without := english - sourced:
            yield f"{part}: no source has {_shown(without)}"


def _shown(values: set[float]) -> str:
    return ", ".join(f"{value:g}" for value in sorted(values))


def calculate(expression: str) -> float:
    """The value of sums, products and logarithms of numbers; ValueError for anything else."""

    def value(node: ast.expr) -> float:
        match node:
            case ast.Constant(value=int() | float() as number):
                return number
            case ast.BinOp(left=left, op=sign, right=right) if type(sign) in OPERATORS:
                return OPERATORS[type(sign)](value(left), value(right))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -value(operand)
            case ast.Call(func=ast.Name(id="log"), args=[argument], keywords=[]):
                return math.log(value(argument))
        raise ValueError(f"{expression!r}: only numbers, + - * / and log can be calculated")

    return value(ast.parse(expression, mode="eval").body)
