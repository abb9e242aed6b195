"""What the tables of a host's page are made of: names of models, cells of numbers, statuses, links to runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from repro.models.programs import PUBLISHED, TUNED
from repro.report import numbers
from repro.report.charts.figure import gpus_text
from repro.report.document import Cell, Figure
from repro.report.host.configurations import Configuration
from repro.report.host.rows import MET, MISSED, OLD, OPEN, HostRow
from repro.report.host.run import KeptRun
from repro.report.names import subject
from repro.report.tables import NONE
from repro.utils.i18n import N_, Translate
from repro.utils.stats import Interval

STATUSES = {
    MET: (N_("met"), "good"),
    MISSED: (N_("missed"), "bad"),
    OPEN: (N_("undecided"), "muted"),
    OLD: (N_("older code"), "muted"),
}
SHORT_PROGRAMS = {PUBLISHED: N_("Port"), TUNED: N_("Tuned")}
"""The programs in the heads of columns."""
Written = Callable[[float], str]
"""How a number is written."""


def link(kept_run: KeptRun) -> str:
    """When a run began, linked to its row in the table of runs."""
    return f"[{kept_run.began}](#{kept_run.run.id})"


def links(_: Translate, kept_runs: Iterable[KeptRun]) -> str:
    """The runs, each linked and each once, oldest first; the day is said once for all runs of it."""
    by_day: dict[str, dict[str, str]] = {}
    for kept_run in sorted(kept_runs, key=lambda kept_run: kept_run.age):
        by_day.setdefault(kept_run.day, {})[kept_run.run.id] = f"[{kept_run.time}](#{kept_run.run.id})"
    return _("; ").join(f"{day} {_(', ').join(runs.values())}" for day, runs in by_day.items())


def runs_of(_: Translate, row: HostRow) -> Cell:
    """The runs that a row counts, and how many it does not since their code is not the newest run's."""
    text = links(_, row.runs)
    if row.superseded:
        text = _("{runs}; superseded: {n}").format(runs=text, n=len(row.superseded))
    return Cell(text)


def outof(good: int, of: int) -> Cell:
    """A number of successes out of all."""
    return Cell(f"{good} / {of}", good / of if of else math.nan, tone="good" if good == of else "bad")


def least_to_most(ratios: Iterable[float]) -> Cell:
    """The lowest and the highest of several ratios; one if they read the same."""
    ordered = sorted(ratios)
    return Cell(numbers.span(map(numbers.ratio, ordered)), ordered[0]) if ordered else NONE


def differences(_: Translate, values: Iterable[float]) -> Cell:
    """The same of relative differences, with their signs."""
    ordered = sorted(values)
    first, last = (numbers.signed_percentage(value) for value in (ordered[0], ordered[-1]))
    return Cell(first if first == last else _("{first} to {last}").format(first=first, last=last), ordered[0])


def interval(row: HostRow, written: Written = numbers.ratio) -> str:
    """The interval of a row over its sessions; empty where these give none."""
    return "–".join(map(written, ends(row) or ()))


def ends(row: HostRow) -> tuple[float, float] | None:
    """The ends of the interval of a row over its sessions; None where these give none."""
    over_sessions = row.ratio.interval if row.ratio else None
    return (over_sessions.low, over_sessions.high) if isinstance(over_sessions, Interval) else None


def marks(_: Translate, row: HostRow) -> list[str]:
    """What a row's figure is marked with: that it is of older code, or of a host that another program used as well."""
    return [text for text, marked in ((_("older code"), not row.current), (_("shared host"), row.shared)) if marked]


def with_interval(_: Translate, row: HostRow | None, written: Written = numbers.ratio) -> Cell:
    """A row's ratio, with its interval, how many sessions it is of, whether it is of the steady state, and its marks."""
    if row is None or row.ratio is None:
        return NONE
    sessions = _("n\u00a0=\u00a0{n}").format(n=len(row.sessions))
    by_rule = _("steady; by the rule {ratio}").format(ratio=written(row.by_rule)) if row.in_steady_state else ""
    parts = filter(None, (interval(row, written), sessions, by_rule, *marks(_, row)))
    return Cell(written(row.ratio.value), row.ratio.value, note=_(", ").join(parts))


def titled(_: Translate, configuration: Configuration) -> Cell:
    """A configuration's name, with its model, its precision and its number of GPUs."""
    unit = configuration.unit
    return Cell(configuration.name, note=_(", ").join((subject(unit), gpus_text(_, unit.world_size))))


def percentage(_: Translate, configuration: Configuration, program: str) -> Cell:
    """The row of one of OneFlow's programs in per cent; a dash without one."""
    return with_interval(_, configuration.of(program), numbers.percentage)


def goal(_: Translate, row: HostRow | None) -> Cell:
    """A row's goal and how the row stands to it; a dash without one."""
    if row is None or not row.goal:
        return NONE
    title, tone = STATUSES[row.status]
    return Cell(str(row.goal), row.goal.at_least, note=_(title), tone=tone)


def figures_of(drawn: list[Figure], name: str) -> list[Figure]:
    """The figures among those that were drawn whose names begin so."""
    return [figure for figure in drawn if figure.id.startswith(f"figure-{name}")]
