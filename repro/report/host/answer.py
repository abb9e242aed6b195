"""The first screen of a host's page: what was measured, how the targets stand, and what may be concluded."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce

from repro.models.programs import PUBLISHED
from repro.report.charts.coverage import AS_PUBLISHED, DERIVED
from repro.report.charts.figure import gpus_text as gpus_count
from repro.report.document import Block, Cell, Figure, Section, Table, Text
from repro.report.host.cells import STATUSES, figures_of, goals, listed, name
from repro.report.host.coverage import levels_of, units_run
from repro.report.host.machine import day
from repro.report.host.results import MeasuredHost
from repro.report.host.rows import LEAST_SESSIONS, MET, MISSED, OLD, OPEN, HostRow
from repro.report.run.programs import PROGRAMS
from repro.report.tables import columns
from repro.utils.i18n import N_, Translate

KINDS = {
    "ratio": N_("throughput of OneFlow over that of PyTorch"),
    "efficiency": N_("scaling efficiency"),
    "expectation": N_("throughput over the performance model's"),
}
"""What a target is of."""


def gpus_text(_: Translate, host: MeasuredHost) -> str:
    """The GPUs of all runs: each model with the numbers of GPUs that runs used."""
    counts_by_gpu: dict[str, set[int]] = {}
    for kept_run in host.runs:
        names = [gpu["name"] for gpu in kept_run.gpus]
        for gpu_name in dict.fromkeys(names):
            counts_by_gpu.setdefault(gpu_name, set()).add(names.count(gpu_name))
    return _(", ").join(_one_kind(_, gpu_name, sorted(counts)) for gpu_name, counts in counts_by_gpu.items())


def _one_kind(_: Translate, gpu: str, counts: list[int]) -> str:
    if counts == [1]:
        return _("{name} (1 GPU)").format(name=gpu)
    return _("{name} ({numbers} GPUs)").format(name=gpu, numbers=listed(_, map(str, counts)))


def when(_: Translate, host: MeasuredHost) -> str:
    """The days on which runs began, UTC."""
    days = sorted({day(kept_run) for kept_run in host.runs})
    return _("{first} to {last}").format(first=days[0], last=days[-1]) if len(days) > 1 else "".join(days)


def _programs(_: Translate, kinds: Iterable[str]) -> str:
    return listed(_, (_(PROGRAMS[kind]) for kind in kinds))


def measured(_: Translate, host: MeasuredHost) -> str:
    """What was measured on what, in one sentence."""
    levels = list(levels_of(host).values())
    exact, derived = levels.count(AS_PUBLISHED), levels.count(DERIVED)
    attempts = [attempt.status for kept_run in host.runs for attempt in kept_run.attempts]
    text = _(
        "Measured on {gpus}, {when}: {ran} of the {all} published cases ran, {exact} in their published configuration and "
        "{derived} shrunk or otherwise derived ({programs}){against} (runs: {runs}; attempts: "
        "{attempts}, failed: {failed}, interrupted: {interrupted})."
    )
    return text.format(
        gpus=gpus_text(_, host) or host.name,
        when=when(_, host) or "–",
        ran=exact + derived,
        all=len(levels),
        programs=listed(_, _ran_with(_, host)) or "–",
        exact=exact,
        derived=derived,
        against=_against(_, host),
        runs=len(host.runs),
        attempts=len(attempts),
        failed=attempts.count("failed"),
        interrupted=attempts.count("interrupted"),
    )


def _ran_with(_: Translate, host: MeasuredHost) -> Iterable[str]:
    """The number of cases that ran, in any form, with each program."""
    for program in host.programs:
        units = [unit for unit in units_run(host) if (unit.program or PUBLISHED) == program]
        cases = {case for unit in units for case in (*unit.stands_for, *unit.derived_from)}
        yield _("{n} with the {program}").format(n=len(cases), program=_(PROGRAMS[program]))


def _against(_: Translate, host: MeasuredHost) -> str:
    """Which PyTorch OneFlow was compared with; empty if with none."""
    starts = [start for kept_run in host.measured for start in kept_run.starts.values()]
    versions = dict.fromkeys(
        str(start["versions"]["torch"]) for start in starts if "torch" in (start.get("versions") or {})
    )
    return _(", some compared with PyTorch {versions}").format(versions=listed(_, versions)) if versions else ""


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


def concluded(_: Translate, host: MeasuredHost) -> str:
    """What may be concluded from this page, and what may not; empty if there is nothing to conclude from."""
    every = [*host.gains, *host.ratios, *host.efficiencies, *host.layouts]
    verdicts = [verdict for kept_run in host.measured for verdict in kept_run.judgement.verdicts]
    judged = sum(verdict.outcome != "none" for verdict in verdicts)
    ours = [result for kept_run in host.measured for result in kept_run.results if not result.unit.baseline_of]
    kinds = (
        (host.ratios, _("speed relative to PyTorch")),
        (host.gains, _("gain of the tuned program")),
        (host.efficiencies, _("scaling")),
        ([result for result in ours if result.memory_mib], _("memory")),
    )
    can = [text for rows, text in kinds if rows]
    if not can:
        return ""
    single = sum(len(row.sessions) < LEAST_SESSIONS for row in every)
    sentences = [
        _("The measurements show, for the {programs}: {what}.").format(
            programs=_programs(_, host.programs), what=listed(_, can)
        ),
        (
            _("All {rows} rows come from a single session each.")
            if single == len(every)
            else _("{single} of {rows} rows come from a single session.")
        ).format(single=single, rows=len(every)),
    ]
    if verdicts and not judged:
        text = _(
            "They do not show whether a published throughput is reproduced: of {n} results, none was measured under the "
            "published conditions."
        )
        sentences.append(text.format(n=len(verdicts)))
    elif verdicts:
        text = _("Published throughputs with a verdict: {judged} of {n} results.")
        sentences.append(text.format(judged=judged, n=len(verdicts)))
    if host.programs and PUBLISHED not in host.programs:
        sentences.append(_("They do not show how fast the port of the published program is, which did not run."))
    return reduce(lambda text, more: _("{text} {more}").format(text=text, more=more), sentences)


def answer(_: Translate, host: MeasuredHost, drawn: list[Figure]) -> list[Section]:
    """The targets and what may be concluded, with the two figures that show it; nothing without a measured speed."""
    if not units_run(host):
        return []
    texts = [text for text in (decided(_, host.aimed), concluded(_, host)) if text]
    blocks: list[Block] = [*map(Text, texts), *figures_of(drawn, "ratios"), *figures_of(drawn, "efficiency")]
    return [Section("answer", _("Result"), tuple(blocks))]


def targets(_: Translate, host: MeasuredHost, language: str) -> list[Section]:
    """Every target that applies to a row: who set it and why; nothing without one."""
    aimed = host.aimed
    if not aimed:
        return []
    rows = []
    for target in dict.fromkeys(row.target for row in aimed if row.target):
        mine = [row for row in aimed if row.target == target]
        where = _(", ").join(_condition(_, key, value) for key, value in target.where.items())
        counts = [sum(row.status == status for row in mine) for status in STATUSES]
        rows.append(
            (
                Cell(
                    _("{what} ({where})").format(what=_(KINDS[target.of]), where=where)
                    if where
                    else _(KINDS[target.of])
                ),
                goals(mine),
                Cell(" / ".join(map(str, counts)), counts[0]),
                Cell(target.by.get(language, "–")),
                Cell(target.why.get(language, "–")),
            )
        )
    caption = _(
        "Targets are goals of whoever set them, not of the published reports. One is met if the 95% interval of a row "
        "over sessions is within it, missed if the interval is outside, and undecided otherwise. A row of older code, "
        "whose program has been measured with newer code since, but not in this configuration, decides nothing."
    )
    titles = columns(
        _("What"),
        _("Target"),
        _("Met / missed / undecided / older code"),
        _("Set by"),
        _("Why"),
    )
    return [Section("targets", _("Who set the targets, and why?"), (Table("targets", titles, tuple(rows), caption),))]


def _condition(_: Translate, key: str, value: object) -> str:
    """What narrows a target, as tables write it."""
    if isinstance(value, int):
        return gpus_count(_, value)
    return _(PROGRAMS[str(value)]) if key == "program" else name(str(value))
