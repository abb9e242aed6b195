"""The page of the claims: one table to search, and for each case how to check it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

from repro.planning.derived import NO_PORT
from repro.planning.plan import verdict_looks
from repro.published.claim_ids import MEMORY, METRICS, SPEEDUP, THROUGHPUT, anchor
from repro.report.document import Block, Cell, Code, Document, Items, Section, Table, Text
from repro.report.numbers import significant
from repro.report.published.audit import SEVERITIES
from repro.report.run.programs import PROGRAMS
from repro.report.run.verdicts import OUTCOMES
from repro.report.site.claims import AS_PUBLISHED, DERIVED, NOT_RUN, OTHERWISE, UNITS, Claim, MeasuredClaim, best
from repro.report.site.speed import short_name
from repro.report.tables import NONE, Field, count, number, table
from repro.utils.i18n import N_, Counted, Translate, catalogue

NAMES = {THROUGHPUT: N_("throughput"), SPEEDUP: N_("speed-up"), MEMORY: N_("memory")}
COVERAGE = {
    AS_PUBLISHED: N_("run as published"),
    OTHERWISE: N_("tuned program only"),
    DERIVED: N_("derived only"),
    NOT_RUN: N_("not run"),
}


def build(language: str, claims: Sequence[Claim], comparisons: Sequence[dict]) -> Document:
    """The page in one language; `comparisons` are the rows of `repro.report.site.comparisons`."""
    _ = catalogue(language).gettext
    lead = _(
        "Every published throughput, speed-up and memory figure: {n} claims of {cases} cases. Each links to the original "
        "at a fixed commit and says how to check it. [claims.csv](reports/claims.csv), for programs, has {rows} rows: these "
        "{n} and the {ratios} ratios to other frameworks of the [second table](#comparisons)."
    ).format(
        n=len(claims),
        cases=len({claim.case.name for claim in claims}),
        rows=len(claims) + len(comparisons),
        ratios=len(comparisons),
    )
    text = Text(
        _(
            "“Modelled” is what the performance model expects on the published V100 cluster; for × 1.10, nine in ten cases lie "
            "between 1/1.10 and 1.10 times that. “Measured” is the newest kept run of exactly this case, by the port of the "
            "published program if that has run, reading files if any did; runs next to which another program used the host's "
            "processors do not count. Only the port on V100s can show whether OneFlow 0.8.0 reaches a published speed."
        )
    )
    cases = [_case(_, list(group)) for _name, group in groupby(claims, key=lambda claim: claim.case.name)]
    sections = (
        Section("claims", _("Claims"), (text, _table(_, claims))),
        _compared(_, comparisons),
        Section("check", _("Case by case: source, evidence, how to check")),
        *cases,
    )
    return Document(language, _("Published figures, claim by claim"), lead, sections)


def _table(_: Translate, claims: Iterable[Claim]) -> Table:
    def best_of(show: Callable[[MeasuredClaim], str]) -> Callable[[Claim], str]:
        return lambda claim: "–" if (measured := best(claim)) is None else show(measured)

    fields = (
        Field(_("Case"), lambda claim: Cell(f"[{claim.case.name}](#{claim.case.name})", anchor=claim.anchor)),
        Field(_("Figure"), lambda claim: _(NAMES[claim.metric]), filtered=True),
        Field(_("Model"), lambda claim: claim.case.model, filtered=True, minor=True),
        Field(_("GPUs"), lambda claim: claim.case.layout.world_size, count, minor=True),
        Field(_("Published"), _published, numeric=True),
        Field(_("Verdict"), lambda claim: _verdict(_, best(claim)), filtered=True),
        Field(_("Audit"), lambda claim: _audit(_, claim), filtered=True, minor=True),
        Field(_("Modelled (V100)"), _expected, numeric=True, minor=True),
        Field(_("Measured"), _measured, numeric=True),
        Field(_("Program"), best_of(lambda measured: _(PROGRAMS[measured.program])), filtered=True, minor=True),
        Field(_("Hardware"), best_of(lambda measured: measured.gpu), filtered=True, minor=True),
    )
    caption = _("Throughput in samples/s (images/s for ResNet50), memory in MiB per GPU, speed-up over one GPU.")
    return table("claims", claims, fields, caption)


def _compared(_: Translate, comparisons: Iterable[dict]) -> Section:
    """OneFlow over other frameworks, as published and as measured."""
    text = Text(
        _(
            "Each ratio follows from the two throughputs that the source prints for the same cluster. “Measured” is "
            "OneFlow over the same program where a kept run has both for this very case, on its own hardware, so that only "
            "the ratio can be compared; pages of hosts have those of shrunk layouts."
        )
    )
    fields = (
        Field(_("Claim"), lambda row: Cell(row["id"], anchor=anchor(row["id"])), filtered=True),
        Field(_("Published"), lambda row: float(row["published"]), _times),
        Field(_("Source"), lambda row: f"[{row['place']}]({row['source']})", minor=True),
        Field(
            _("Audit"),
            lambda row: _consistent(_) if row["audit"] == "consistent" else _("see the audit"),
            filtered=True,
            minor=True,
        ),
        Field(_("Measured"), lambda row: row["measured"] and float(row["measured"]), _times),
        Field(
            _("Program"), lambda row: _(PROGRAMS[row["program"]]) if row["program"] else "–", filtered=True, minor=True
        ),
        Field(_("Hardware"), lambda row: row["hardware"] or "–", filtered=True, minor=True),
    )
    whole = table("comparisons", comparisons, fields)
    return Section("comparisons", _("Compared with other frameworks"), (text, whole))


def _times(ratio: float | None) -> Cell:
    return number(ratio, lambda value: f"×{value:.3f}")


def _consistent(_: Translate) -> Cell:
    return Cell(_("consistent"), tone="good")


def _published(claim: Claim) -> Cell:
    link = f"report-{claim.report.id}.html#{claim.anchor}"
    return Cell(str(claim.published), float(claim.published), link=link)


def _audit(_: Translate, claim: Claim) -> Cell:
    """The worst finding on a figure."""
    order = list(SEVERITIES)
    worst = min((order.index(finding.severity) for finding in claim.findings), default=None)
    if worst is None:
        return _consistent(_)
    return Cell(_(SEVERITIES[order[worst]]), tone="bad" if order[worst] == "error" else "muted")


def _expected(claim: Claim) -> Cell:
    return number(claim.expected, lambda value: f"{_like(value, claim)} (×/÷ {claim.within:.2f})")


def _measured(claim: Claim) -> Cell:
    measured = best(claim)
    if measured is None:
        return NONE
    return Cell(significant(measured.value), measured.value, note=short_name(measured.gpu))


def _like(value: float, claim: Claim) -> str:
    """A value with as many decimals as the published figure has."""
    return f"{value:.{claim.published.decimals}f}"


def _verdict(_: Translate, measured: MeasuredClaim | None) -> Cell:
    if measured is None:
        return Cell(_("not measured"), tone="muted")
    name, tone = OUTCOMES[measured.outcome]
    note = _("{share} confidence").format(share=f"{measured.confidence:.1%}") if measured.confidence else ""
    return Cell(_(name), note=note, tone=tone)


def _case(_: Translate, claims: list[Claim]) -> Section:
    """Everything else about a case, under its name as an anchor."""
    first, case = claims[0], claims[0].case
    original = _("{place} of the original report").format(place=case.source)
    items = [
        _("Source: {link}").format(link=f"[{original}]({first.report.url})" if first.report.url else original),
        _("In this project: [the report with its audit]({page}), `{file}`").format(
            page=f"report-{case.report}.html", file=first.report.path
        ),
        *(
            _("Audit, {figure}: {text} ([{id}](published.html#{anchor}))").format(
                figure=_(NAMES[claim.metric]), text=finding.rule.text(_), id=finding.id, anchor=claim.anchor
            )
            for claim in claims
            for finding in claim.findings
        ),
        *_evidence(_, claims),
        *(_again(_, first) if case.ported else [_(NO_PORT).format(framework=case.framework)]),
    ]
    blocks: list[Block] = [Items(tuple(items)), *([Code(first.command)] if first.command else [])]
    return Section(case.name, case.name, tuple(blocks), level=3, folded=True)


def _again(_: Translate, claim: Claim) -> list[str]:
    """How far a case was run, and what it takes to run it."""
    case = claim.case
    needs = (
        _("Needs: {n} × V100-SXM2-16GB ({nodes} nodes), InfiniBand 100 Gb/s beyond one node")
        if case.nodes > 1
        else _("Needs: {n} × V100-SXM2-16GB on one node")
    )
    return [
        _("Coverage: {state}").format(state=_(COVERAGE[claim.coverage])),
        needs.format(n=case.layout.world_size, nodes=case.nodes),
        _("Takes about {minutes:minute|minutes} for the {repeats} repeats after which a verdict can be reached").format(
            minutes=Counted(round(claim.minutes or 0)), repeats=verdict_looks()[0].repeats
        ),
        _("Expected: “reproduced”, that is a throughput within {share} of {value} {unit}").format(
            share=f"± {claim.allowed:.1%}", value=claim.published, unit=UNITS[THROUGHPUT]
        ),
    ]


def _evidence(_: Translate, claims: Iterable[Claim]) -> list[str]:
    """What was measured for a case, a line per figure and program, with the run and the row of its results."""
    lines = []
    for claim in sorted(claims, key=lambda claim: METRICS.index(claim.metric)):
        for measured in claim.measured:
            lines.append(
                _(
                    "Measured {figure}: {value} {unit}, {program}, {gpu}, median of {n}; run {run}, row `{row}` of results.csv"
                ).format(
                    figure=_(NAMES[claim.metric]),
                    value=_like(measured.value, claim),
                    unit=UNITS[claim.metric],
                    program=_(PROGRAMS[measured.program]),
                    gpu=measured.gpu,
                    n=measured.repeats,
                    run=f"[{measured.kept_run.began}](host-{measured.host}.html#{measured.kept_run.run.id})",
                    row=measured.row,
                )
            )
    return lines
