"""The first screen of a host's page: what was measured, how the targets stand, and what may be concluded."""

from __future__ import annotations

from collections.abc import Iterable

from repro.models.programs import PUBLISHED
from repro.report.charts.coverage import AS_PUBLISHED, DERIVED
from repro.report.document import Block, Cell, Figure, Section, Table, Text
from repro.report.host.cells import STATUSES, columns, figures_of, goals
from repro.report.host.coverage import levels_of, units_run
from repro.report.host.machine import day
from repro.report.host.results import Host
from repro.report.host.rows import LEAST_RUNS, MET, MISSED, OPEN, Row
from repro.report.run.programs import PROGRAMS
from repro.utils.i18n import N_, Translate

KINDS = {
    "ratio": N_("throughput of OneFlow over that of PyTorch"),
    "efficiency": N_("scaling efficiency"),
    "expectation": N_("throughput over the performance model's"),
}
"""What a target is of."""


def gpus_text(_: Translate, host: Host) -> str:
    """The GPUs of all runs: each kind with the numbers of them that runs had."""
    found: dict[str, set[int]] = {}
    for kept in host.runs:
        names = [gpu["name"] for gpu in kept.gpus]
        for each in dict.fromkeys(names):
            found.setdefault(each, set()).add(names.count(each))
    return _(", ").join(_one_kind(_, each, sorted(counts)) for each, counts in found.items())


def _one_kind(_: Translate, name: str, counts: list[int]) -> str:
    if counts == [1]:
        return _("{name} (1 GPU)").format(name=name)
    *first, last = map(str, counts)
    numbers = _("{first} and {last}").format(first=_(", ").join(first), last=last) if first else last
    return _("{name} ({numbers} GPUs)").format(name=name, numbers=numbers)


def when(_: Translate, host: Host) -> str:
    """The days on which runs began, UTC."""
    days = sorted({day(kept) for kept in host.runs})
    return _("{first} to {last}").format(first=days[0], last=days[-1]) if len(days) > 1 else "".join(days)


def _programs(_: Translate, kinds: Iterable[str]) -> str:
    return _(" and ").join(_(PROGRAMS[kind]) for kind in kinds)


def measured(_: Translate, host: Host) -> str:
    """What was measured on what, in one sentence."""
    levels = list(levels_of(host).values())
    exact, derived = levels.count(AS_PUBLISHED), levels.count(DERIVED)
    attempts = [attempt["status"] for kept in host.runs for attempt in kept.attempts]
    text = _(
        "On {gpus}, {when}: {ran} of the {all} published cases with the {programs}, {exact} of them in their published "
        "configuration and {derived} shrunk or otherwise derived, in {runs} runs with {attempts} attempts, of which "
        "{failed} failed."
    )
    return text.format(
        gpus=gpus_text(_, host) or host.name,
        when=when(_, host) or "–",
        ran=exact + derived,
        all=len(levels),
        programs=_programs(_, host.programs) or "–",
        exact=exact,
        derived=derived,
        runs=len(host.runs),
        attempts=len(attempts),
        failed=attempts.count("failed"),
    )


def decided(_: Translate, rows: list[Row]) -> str:
    """How many targets are met, missed and undecided, and why they are undecided."""
    if not rows:
        return _("No target is set for what was measured here.")
    statuses = [row.status for row in rows]
    single = [row for row in rows if row.status == OPEN and len(row.runs) < LEAST_RUNS]
    within = sum(row.target.holds(row.ratio.value) for row in rows if row.target and row.ratio)
    text = _("Of {n} targets, {met} are met, {missed} missed and {undecided} undecided")
    text = text.format(
        n=len(rows), met=statuses.count(MET), missed=statuses.count(MISSED), undecided=statuses.count(OPEN)
    )
    if single:
        text += _(", {single} of them because a single run decides nothing").format(single=len(single))
    return text + _("; by the measured value alone, {within} would be met.").format(within=within)


def concluded(_: Translate, host: Host) -> str:
    """What may be concluded from this page, and what may not."""
    verdicts = [each for kept in host.measured for each in kept.judgement.verdicts]
    compared = sum(each.outcome != "none" for each in verdicts)
    can = []
    if host.ratios:
        can.append(_("how fast OneFlow is compared with PyTorch"))
    if host.efficiencies:
        can.append(_("how it scales"))
    if any(not each.unit.baseline_of and each.memory_mib for kept in host.measured for each in kept.results):
        can.append(_("how much memory it takes"))
    cannot = []
    if verdicts and not compared:
        cannot.append(
            _("whether a published throughput is reproduced (none of {n} results is comparable with one)").format(
                n=len(verdicts)
            )
        )
    if host.programs and PUBLISHED not in host.programs:
        cannot.append(_("how fast the published program is, which did not run"))
    parts = []
    if can:
        listed = _(", ").join(can)
        parts.append(
            _("This shows, for the {programs} in these configurations: {what}").format(
                programs=_programs(_, host.programs), what=listed
            )
        )
    if cannot:
        parts.append(_("it does not show {what}").format(what=_(", nor ").join(cannot)))
    elif compared:
        parts.append(
            _("{compared} of {n} results were judged against a published throughput").format(
                compared=compared, n=len(verdicts)
            )
        )
    return _("; ").join(parts) + _(".") if parts else ""


def answer(_: Translate, host: Host, drawn: list[Figure]) -> list[Section]:
    """The targets and what may be concluded, with the two figures that show it; nothing without a measured speed."""
    if not units_run(host):
        return []
    texts = [text for text in (decided(_, host.aimed), concluded(_, host)) if text]
    blocks: list[Block] = [*map(Text, texts), *figures_of(drawn, "ratios"), *figures_of(drawn, "efficiency")]
    return [Section("answer", _("Result"), tuple(blocks))]


def targets(_: Translate, host: Host, language: str) -> list[Section]:
    """Every target that applies to a row: who set it and why; nothing without one."""
    aimed = host.aimed
    if not aimed:
        return []
    rows = []
    for target in dict.fromkeys(row.target for row in aimed if row.target):
        mine = [row for row in aimed if row.target == target]
        where = ", ".join(f"{key} {value}" for key, value in target.where.items())
        counts = [sum(row.status == each for row in mine) for each in STATUSES]
        rows.append(
            (
                Cell(_(KINDS[target.of]) + (f" ({where})" if where else "")),
                goals(mine),
                Cell(" / ".join(map(str, counts)), counts[0]),
                Cell(target.by.get(language, "–")),
                Cell(target.why.get(language, "–")),
            )
        )
    caption = _(
        "Targets are goals of whoever set them, not of the published reports. One is met if the 95% interval of a row "
        "over its runs is within it, missed if the interval is outside, and undecided otherwise."
    )
    titles = columns(
        _("What"),
        _("Target"),
        _("Met / missed / undecided"),
        _("Set by"),
        _("Why"),
    )
    return [Section("targets", _("Who set the targets, and why?"), (Table("targets", titles, tuple(rows), caption),))]
