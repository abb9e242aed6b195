"""The home page: what was published, what was measured, and what may be concluded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from repro.analysis.verdict import DECIDED
from repro.published.audit.engine import Audit
from repro.published.audit.findings import Finding
from repro.published.cases import Case, Report
from repro.published.claim_ids import THROUGHPUT
from repro.report.document import Block, Cell, Code, Document, Figure, Items, Section, Text
from repro.report.host.results import MeasuredHost
from repro.report.names import listed
from repro.report.run.verdicts import meaning
from repro.report.site import speed
from repro.report.site.claims import AS_PUBLISHED, DERIVED, OTHERWISE, Claim
from repro.report.tables import Field, count, table
from repro.utils.i18n import N_, Translate, catalogue

TITLE = N_("Do OneFlow's published training benchmarks hold?")
CITATION = """@misc{oneflow-reproduction,
  title = {Reproducing OneFlow's published training benchmarks},
  author = {The maintainers of the reproduction bundle},
  year = {2026},
  note = {Version 0.2.0}
}"""


def build(
    language: str, audit: Audit, hosts: Sequence[MeasuredHost], claims: Sequence[Claim], drawn: Sequence[Figure]
) -> Document:
    """The page in one language; `drawn` are the figures that it shows."""
    _ = catalogue(language).gettext
    lead = _(
        "In 2020 and 2021 the OneFlow team published how fast their framework trains ResNet50-v1.5, BERT-base and GPT on "
        "1 to 32 V100 GPUs."
    )
    sections = (
        Section(
            "answer",
            _("The answer"),
            (*result(_, audit, hosts, claims), Text(meaning(_)), *drawn),
        ),
        reports(_, language, audit, claims),
        _reproduce(_),
        _citation(_),
    )
    return Document(language, _(TITLE), lead, sections)


def result(_: Translate, audit: Audit, hosts: Sequence[MeasuredHost], claims: Sequence[Claim]) -> list[Block]:
    """The first screen: the answer in a sentence, what it rests on, and what was measured."""
    concluded = (*_concluded(_, hosts, claims), _measured(_, hosts, claims))
    ratios = speed.table(_, hosts)
    shown: tuple[Block, ...] = (ratios, Text(speed.how_to_read(_, hosts))) if ratios else ()
    rest = Items((_audited(_, audit, claims), _published(_, audit)))
    return [Text(short(_, claims)), Items(concluded), *shown, rest]


def short(_: Translate, claims: Sequence[Claim]) -> str:
    """The answer in one sentence."""
    outcomes = _outcomes(claims)
    decided = sum(outcomes[name] for name in DECIDED)
    if decided:
        held = outcomes["reproduced"] + outcomes["faster"]
        return _("**{held} of the {decided} cases with a verdict hold, of {all} published.**").format(
            held=held, decided=decided, all=len({claim.case.name for claim in claims})
        )
    if _wrong(claims):
        return _(
            "**Some published throughputs contradict their own report, and none has been measured again on V100s.**"
        )
    return _(
        "**Whether the published throughputs can be reproduced is open: they have not been run on V100s yet. Checked on "
        "paper, none contradicts the other figures of its report.**"
    )


def _published(_: Translate, audit: Audit) -> str:
    cases = audit.material.cases
    gpus = [case.layout.world_size for case in cases]
    return _(
        "**Published:** {cases} cases in {reports} reports, on {least} to {most} GPUs. The largest throughput is "
        "{throughput} images/s (ResNet50, {gpus} GPUs), a speed-up of {speedup}."
    ).format(
        cases=len(cases),
        reports=len(audit.material.reports),
        least=min(gpus),
        most=max(gpus),
        **_highest(cases),
    )


def _highest(cases: Sequence[Case]) -> dict:
    fastest = max((case for case in cases if case.published.speedup), key=lambda case: float(case.published.throughput))
    return {
        "throughput": fastest.published.throughput,
        "gpus": fastest.layout.world_size,
        "speedup": fastest.published.speedup,
    }


def _audited(_: Translate, audit: Audit, claims: Sequence[Claim]) -> str:
    """How many findings there are, and whether one makes a published throughput wrong."""
    findings = audit.counted()
    errors = sum(finding.severity == "error" for finding in findings)
    wrong = _wrong(claims)
    text = _(
        "**Audited:** {comparisons} comparisons of the published figures gave [{findings} findings](published.html#audit), {errors} of them errors."
    )
    text = text.format(comparisons=sum(check.compared for check in audit.checks), findings=len(findings), errors=errors)
    if findings:
        text = _("{text} {more}").format(text=text, more=_weightiest(_, findings))
    if wrong:
        return text + _(" They put the throughput of {names} in doubt.").format(names=_(", ").join(wrong))
    return text + _(
        " No finding corrects the throughput of a case; [the history](published.html#history) limits what some can be compared with."
    )


def _weightiest(_: Translate, findings: Sequence[Finding]) -> str:
    """The first of the findings, which begin with what was measured at all, in its own words."""
    first = findings[0]
    return _("The most serious, in `{report}`: “{why}”.").format(report=first.report, why=first.rule.text(_))


def _measured(_: Translate, hosts: Sequence[MeasuredHost], claims: Sequence[Claim]) -> str:
    """How many cases were run on what."""
    every = [claim for claim in claims if claim.metric == THROUGHPUT]
    levels = Counter(claim.coverage for claim in every)
    gpus = speed.short_names([host for host in hosts if host.measured]).values()
    if not gpus:
        return _("**Measured:** nothing yet, so there is no verdict.")
    text = _("**Measured:** {ran} of the {cases} cases on {gpus}: {forms}.").format(
        ran=sum(levels[level] for level in (AS_PUBLISHED, OTHERWISE, DERIVED)),
        cases=len({claim.case.name for claim in every}),
        gpus=listed(_, gpus),
        forms=_(", ").join(_forms(_, levels)),
    )
    return _("{text} {more}").format(text=text, more=scaling) if (scaling := speed.scaling(_, hosts)) else text


def _forms(_: Translate, levels: Counter[str]) -> Iterator[str]:
    """How many cases ran in which form; nothing of a form in which none did."""
    forms = {
        AS_PUBLISHED: _("{n} in their published configuration"),
        OTHERWISE: _("{n} only with the tuned program"),
        DERIVED: _("{n} on fewer GPUs or for fewer iterations"),
    }
    return (text.format(n=levels[level]) for level, text in forms.items() if levels[level])


def _concluded(_: Translate, hosts: Sequence[MeasuredHost], claims: Sequence[Claim]) -> list[str]:
    """What a reader may conclude, an item for each statement; none if nothing was measured."""
    if not any(host.measured for host in hosts):
        return []
    outcomes = _outcomes(claims)
    if outcomes:
        text = _(
            "**Verdicts:** {reproduced} reproduced, {faster} faster, {slower} slower, {inconclusive} inconclusive."
        )
        return [text.format(**{name: outcomes[name] for name in (*DECIDED, "inconclusive")})]
    open_still = _("**No case has a verdict:** none was run on V100s.")
    statements = speed.conclusion(_, hosts)
    if not statements:
        return [open_still]
    gpus = listed(_, speed.short_names([host for host in hosts if host.measured]).values())
    text = _(
        "**What can be concluded so far**: on {gpus} a comparison is decided if its 95% interval over sessions (each on one "
        "machine at one time) excludes 1. {first}"
    )
    statements[0] = text.format(gpus=gpus, first=statements[0])
    statements[-1] = _("{text} {more}").format(text=statements[-1], more=open_still)
    return statements


def _wrong(claims: Sequence[Claim]) -> list[str]:
    """The cases whose published throughput the audit found to be an error."""
    return [
        claim.case.name
        for claim in claims
        if claim.metric == THROUGHPUT and any(finding.severity == "error" for finding in claim.findings)
    ]


def _outcomes(claims: Sequence[Claim]) -> Counter[str]:
    """How many cases have each verdict."""
    outcomes = (measured.outcome for claim in claims for measured in claim.measured if claim.metric == THROUGHPUT)
    return Counter(outcome for outcome in outcomes if outcome in (*DECIDED, "inconclusive"))


def reports(_: Translate, language: str, audit: Audit, claims: Sequence[Claim]) -> Section:
    """A row per report: what it published, what the audit found, how much was run."""

    def highest(report: Report) -> str:
        most = max(audit.material.cases_of(report), key=lambda case: float(case.published.throughput))
        return _("{value} on {gpus} GPUs").format(value=most.published.throughput, gpus=most.layout.world_size)

    def run_again(report: Report) -> Cell:
        mine = [claim for claim in claims if claim.report.id == report.id and claim.metric == THROUGHPUT]
        ran = sum(bool(claim.measured) for claim in mine)
        return Cell(f"{ran} / {len(mine)}", ran)

    def errors(report: Report) -> int:
        return sum(finding.severity == "error" for finding in audit.counted(report.id))

    fields = (
        Field(_("Report"), lambda report: f"[{report.title[language]}](report-{report.id}.html)"),
        Field(_("Cases"), lambda report: len(audit.material.cases_of(report)), count),
        Field(_("Highest throughput (samples/s)"), highest, minor=True),
        Field(_("Findings"), lambda report: len(audit.counted(report.id)), count),
        Field(_("Errors"), errors, count),
        Field(_("Run again"), run_again, numeric=True),
    )
    caption = _(
        "The published reports. “Run again” counts cases run in their published configuration, on any GPU and with "
        "either program. Findings on other frameworks' figures are not counted here ({others})."
    ).format(others=len(audit.counted()) - sum(len(audit.counted(report.id)) for report in audit.material.reports))
    text = Text(
        _(
            "Every published figure, with its source, audit result, expectation and measurement, is in the [claims table](claims.html)."
        )
    )
    return Section(
        "reports", _("What was published"), (text, table("reports", audit.material.reports, fields, caption))
    )


def _reproduce(_: Translate) -> Section:
    blocks: tuple[Block, ...] = (
        Text(_("On a fresh Linux machine, one command sets up what it needs, trains and writes the report:")),
        Code("make bench MODEL=gpt"),
        Text(
            _(
                "Without a GPU it tests every step at a tiny scale; on GPUs it runs the published configurations; with "
                "`CLUSTER=` it runs on your nodes. [How to reproduce](reproduce.html) lists hardware, time and expected results."
            )
        ),
    )
    return Section("reproduce", _("Check it yourself"), blocks)


def _citation(_: Translate) -> Section:
    return Section("citation", _("Cite"), (Code(CITATION),))
