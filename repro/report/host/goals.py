"""The last question of a host's page: the goals that the project set itself, and how the rows stand to them."""

from __future__ import annotations

from repro.report.charts.figure import gpus_text as gpus_count
from repro.report.document import Section, Text
from repro.report.host.cells import STATUSES
from repro.report.host.results import MeasuredHost
from repro.report.host.rows import LEAST_SESSIONS, MET, MISSED, OLD, OPEN, HostRow, RatioGoal
from repro.report.method import link
from repro.report.names import name
from repro.report.run.programs import PROGRAMS
from repro.report.tables import Field, table
from repro.utils.i18n import N_, Counted, Translate

KINDS = {
    "ratio": N_("OneFlow / baseline"),
    "efficiency": N_("scaling efficiency"),
    "peak": N_("model FLOPs utilization"),
    "expectation": N_("measured / expected"),
}
"""What a goal is of."""


def decided(_: Translate, rows: list[HostRow]) -> str:
    """How many goals are met, missed and undecided, and why they are undecided or do not count."""
    old = sum(row.status == OLD for row in rows)
    rows = [row for row in rows if row.status != OLD]
    statuses = [row.status for row in rows]
    single = sum(row.status == OPEN and len(row.sessions) < LEAST_SESSIONS for row in rows)
    within = sum(row.goal.holds(row.ratio.value) for row in rows if row.goal and row.ratio)
    if not rows:
        text = _("No goal is decided.")
    elif single == len(rows):
        text = _(
            "No goal is decided: each value rests on a single session, and {least} are needed. Within their goal: "
            "{within} of {n:measured value|measured values}."
        )
    else:
        text = _(
            "Goals: {met} met, {missed} missed, {undecided} undecided, {single} of these from "
            "a single session. Within their goal: {within} of {n:measured value|measured values}."
        )
    if old:
        text += _(" Rows that were measured with older code of their program only do not count: {old}.")
    return text.format(
        old=old,
        n=Counted(len(rows)),
        least=LEAST_SESSIONS,
        met=statuses.count(MET),
        missed=statuses.count(MISSED),
        undecided=statuses.count(OPEN),
        single=single,
        within=within,
    )


def goals(_: Translate, host: MeasuredHost, language: str) -> list[Section]:
    """How the goals stand, each with its reason, then row by row; nothing without one."""
    aimed = host.aimed
    if not aimed:
        return []
    groups = [[row for row in aimed if row.goal == goal] for goal in dict.fromkeys(row.goal for row in aimed)]
    setters = {row.goal.by.get(language) for row in aimed if row.goal}
    fields = (
        Field(_("What"), lambda rows: _what(_, _goal(rows))),
        Field(_("Goal"), lambda rows: str(_goal(rows))),
        Field(_("Verdict"), lambda rows: _tally(_, rows)),
        *([Field(_("Set by"), lambda rows: _goal(rows).by.get(language, "–"))] if len(setters) > 1 else []),
        Field(_("Why"), lambda rows: _goal(rows).why.get(language, "–"), minor=True),
    )
    caption = _("None of these was published ({method}).").format(
        method=link(_, "goals", _("when a goal is met, missed or undecided"))
    )
    return [
        Section(
            "goals", _("Goals we set ourselves"), (Text(decided(_, aimed)), table("goals", groups, fields, caption))
        ),
    ]


def _goal(rows: list[HostRow]) -> RatioGoal:
    """The goal that rows have in common."""
    assert rows[0].goal is not None  # only rows with a goal are grouped by it
    return rows[0].goal


def _tally(_: Translate, rows: list[HostRow]) -> str:
    """How many rows meet the goal, miss it, or leave it undecided."""
    states = [row.status for row in rows]
    texts = (
        _("{n} {what}").format(what=_(title), n=states.count(state))
        for state, (title, _tone) in STATUSES.items()
        if state in states
    )
    return _("; ").join(texts)


def _what(_: Translate, goal: RatioGoal) -> str:
    where = _(", ").join(_condition(_, key, value) for key, value in goal.where.items())
    what = _(KINDS[goal.of])
    return _("{what} ({where})").format(what=what, where=where) if where else what


def _condition(_: Translate, key: str, value: object) -> str:
    """What narrows a goal, as tables write it."""
    if isinstance(value, int):
        return gpus_count(_, value)
    return _(PROGRAMS[str(value)]) if key == "program" else name(str(value))
