"""What the tables of a host's page are made of: names of models, cells of numbers, statuses, links to runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import cache

from repro.planning.unit import Unit
from repro.published.cases import load_catalogue
from repro.report import numbers
from repro.report.document import Cell, Figure
from repro.report.host.rows import MET, MISSED, OLD, OPEN, HostRow
from repro.report.host.run import KeptRun
from repro.report.run.programs import PROGRAMS
from repro.report.tables import NONE
from repro.runs.files import read_toml
from repro.utils.i18n import N_, Translate
from repro.utils.paths import DATA
from repro.utils.stats import Interval

STATUSES = {
    MET: (N_("met"), "good"),
    MISSED: (N_("missed"), "bad"),
    OPEN: (N_("undecided"), "muted"),
    OLD: (N_("older code"), "muted"),
}
NAMES = DATA / "names.toml"
Written = Callable[[float], str]
"""How a number is written."""


def name(text: str) -> str:
    """A model, a report's family or a precision as pages write it."""
    return _names().get(text, text)


@cache
def _names() -> dict[str, str]:
    return read_toml(NAMES)


def family(report: str) -> str:
    """What a report is of, by its id; the id itself if no such report is in the catalogue."""
    return next((published.family for published in load_catalogue().reports if published.id == report), report)


def subject(_: Translate, unit: Unit, programs: Sequence[str] = ()) -> str:
    """What trains: the model and its precision, and the program where a host has several."""
    parts = [name(family(unit.report)), name(unit.precision)]
    return ", ".join([*parts, *([_(PROGRAMS[unit.program])] if len(programs) > 1 else [])])


def listed(_: Translate, parts: Iterable[str]) -> str:
    """An enumeration: the last two of several joined by "and"; empty if there is nothing."""
    *first, last = [*parts] or [""]
    return _("{first} and {last}").format(first=_(", ").join(first), last=last) if first else last


def link(kept_run: KeptRun) -> str:
    """A run's short name, linked to its row in the table of runs."""
    return f"[{kept_run.label}](#{kept_run.run.id})"


def links(_: Translate, kept_runs: Iterable[KeptRun]) -> str:
    """The runs' short names, each linked and each once, oldest first."""
    return _(", ").join(dict.fromkeys(map(link, sorted(kept_runs, key=lambda kept_run: kept_run.age))))


def runs_of(_: Translate, row: HostRow) -> Cell:
    """The runs that a row counts, and those that it does not since their code is not the newest run's."""
    text = links(_, row.runs)
    if row.superseded:
        text = _("{runs}; superseded: {others}").format(
            runs=text, others=links(_, (measurement.kept_run for measurement in row.superseded))
        )
    return Cell(text)


def outof(good: int, of: int) -> Cell:
    """A number of successes out of all."""
    return Cell(f"{good} / {of}", good / of if of else math.nan, tone="good" if good == of else "bad")


def least_to_most(values: Iterable[float], written: Written = numbers.ratio) -> Cell:
    """The lowest and the highest of several values; one if they read the same."""
    ordered = sorted(values)
    return Cell(numbers.span(map(written, ordered)), ordered[0]) if ordered else NONE


def spread(row: HostRow, written: Written = numbers.ratio) -> Cell:
    """The interval of a row over its sessions, or how many sessions there are, where these give none."""
    interval = row.ratio.interval if row.ratio else None
    if isinstance(interval, Interval):
        return Cell(f"{written(interval.low)}–{written(interval.high)}", interval.low)
    return Cell(f"– (n = {len(row.sessions)})", float("-inf"))


def goal(row: HostRow) -> Cell:
    """A row's target; a dash without one."""
    return Cell(str(row.target), row.target.at_least) if row.target else NONE


def status(_: Translate, row: HostRow) -> Cell:
    """How a row stands to its target; a dash without one."""
    if not row.target:
        return Cell(numbers.NOTHING)
    title, tone = STATUSES[row.status]
    return Cell(_(title), tone=tone)


def tally(_: Translate, rows: Iterable[HostRow]) -> str:
    """How many of the rows that have a target met it, missed it, or leave it undecided; empty without a target."""
    states = [row.status for row in rows if row.target]
    parts = [
        _("{n} {what}").format(what=_(STATUSES[state][0]), n=states.count(state))
        for state in STATUSES
        if state in states
    ]
    return _("; ").join(parts)


def verdicts(_: Translate, rows: Sequence[HostRow]) -> Cell:
    """The tally of a group's rows; without numbers if they all stand alike."""
    states = {row.status for row in rows if row.target}
    if len(states) == 1 and len(rows) == 1:
        return status(_, rows[0])
    tones = {STATUSES[state][1] for state in states}
    return Cell(tally(_, rows) or numbers.NOTHING, tone=tones.pop() if len(tones) == 1 else "")


def goals(rows: Sequence[HostRow]) -> Cell:
    """The targets of a group's rows."""
    return Cell(", ".join(dict.fromkeys(str(row.target) for row in rows if row.target)) or numbers.NOTHING)


def figures_of(drawn: list[Figure], name: str) -> list[Figure]:
    """The figures of that name among those that were drawn."""
    return [figure for figure in drawn if figure.id == f"figure-{name}"]
