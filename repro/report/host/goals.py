"""The last question of a host's page: the goals that the project set itself, and how the rows stand to them."""

from __future__ import annotations

from functools import partial

from repro.report.charts.figure import gpus_text as gpus_count
from repro.report.document import Section, Table, Text
from repro.report.host.cells import STATUSES, name, status, with_interval
from repro.report.host.results import MeasuredHost
from repro.report.host.rows import LEAST_SESSIONS, MET, MISSED, OLD, OPEN, HostRow, RatioTarget
from repro.report.run.programs import PROGRAMS
from repro.report.tables import Field, count, table
from repro.utils.i18n import N_, Translate

KINDS = {
    "ratio": N_("throughput of OneFlow over that of PyTorch"),
    "efficiency": N_("scaling efficiency"),
    "expectation": N_("throughput over the performance model's"),
}
"""What a target is of."""


def decided(_: Translate, rows: list[HostRow]) -> str:
    """How many targets are met, missed and undecided, and why they are undecided or do not count."""
    if not rows:
        return _("No target is set for what was measured here.")
    old = sum(row.status == OLD for row in rows)
    rows = [row for row in rows if row.status != OLD]
    statuses = [row.status for row in rows]
    single = sum(row.status == OPEN and len(row.sessions) < LEAST_SESSIONS for row in rows)
    within = sum(row.target.holds(row.ratio.value) for row in rows if row.target and row.ratio)
    if not rows:
        text = _("No target is decided.")
    elif single == len(rows):
        text = _(
            "No target is decided: all {n} rest on a single session each, and {least} are needed. {within} of the "
            "measured values are within their target."
        )
    else:
        text = _(
            "Targets: {met} met, {missed} missed, {undecided} undecided, {single} of these because they rest "
            "on a single session. {within} of the {n} measured values are within their target."
        )
    if old:
        text += _(" Rows that were measured with older code of their program only do not count: {old}.")
    return text.format(
        old=old,
        n=len(rows),
        least=LEAST_SESSIONS,
        met=statuses.count(MET),
        missed=statuses.count(MISSED),
        undecided=statuses.count(OPEN),
        single=single,
        within=within,
    )


def targets(_: Translate, host: MeasuredHost, language: str) -> list[Section]:
    """How the goals stand, each with its reason, then row by row; nothing without one."""
    aimed = host.aimed
    if not aimed:
        return []
    groups = [[row for row in aimed if row.target == target] for target in dict.fromkeys(row.target for row in aimed)]
    setters = {row.target.by.get(language) for row in aimed if row.target}
    fields = (
        Field(_("What"), lambda rows: _what(_, _target(rows))),
        Field(_("Goal"), lambda rows: str(_target(rows))),
        *(
            Field(_(title), partial(_count_of, status), count)
            for status, (title, _tone) in STATUSES.items()
            if any(row.status == status for row in aimed)
        ),
        *([Field(_("Set by"), lambda rows: _target(rows).by.get(language, "–"))] if len(setters) > 1 else []),
        Field(_("Why"), lambda rows: _target(rows).why.get(language, "–"), minor=True),
    )
    caption = _(
        "These are goals of whoever set them, not of the published reports. One is met if the 95% interval of a row "
        "over sessions is within it, missed if the interval is outside, and undecided otherwise."
    )
    return [
        Section(
            "targets", _("Goals we set ourselves"), (Text(decided(_, aimed)), table("targets", groups, fields, caption))
        ),
        Section("target-rows", _("Every row with a goal"), (_every_row(_, aimed),), level=3, folded=True),
    ]


def _target(rows: list[HostRow]) -> RatioTarget:
    """The target that rows have in common."""
    assert rows[0].target is not None  # only rows with a target are grouped by it
    return rows[0].target


def _count_of(status: str, rows: list[HostRow]) -> int:
    return sum(row.status == status for row in rows)


def _what(_: Translate, target: RatioTarget) -> str:
    where = _(", ").join(_condition(_, key, value) for key, value in target.where.items())
    what = _(KINDS[target.of])
    return _("{what} ({where})").format(what=what, where=where) if where else what


def _every_row(_: Translate, aimed: list[HostRow]) -> Table:
    fields = (
        Field(_("Configuration"), lambda row: row.unit.name),
        Field(_("What"), lambda row: _(KINDS[row.target.of])),
        Field(_("Value"), lambda row: with_interval(_, row), numeric=True),
        Field(_("Goal"), lambda row: str(row.target)),
        Field(_("Verdict"), lambda row: status(_, row)),
    )
    return table("target-rows", aimed, fields)


def _condition(_: Translate, key: str, value: object) -> str:
    """What narrows a target, as tables write it."""
    if isinstance(value, int):
        return gpus_count(_, value)
    return _(PROGRAMS[str(value)]) if key == "program" else name(str(value))
