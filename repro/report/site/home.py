"""The home page: what was published, what was measured, and what may be concluded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from repro.analysis.verdict import DECIDED
from repro.published.audit.engine import Audit
from repro.published.cases import Case
from repro.published.claim_ids import THROUGHPUT
from repro.report.document import Block, Cell, Code, Column, Document, Figure, Items, Section, Table, Text
from repro.report.host.results import MeasuredHost
from repro.report.run.verdicts import meaning
from repro.report.site.claims import AS_PUBLISHED, DERIVED, OTHERWISE, Claim
from repro.report.tables import figure
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
        "1 to 32 V100 GPUs. This site says what was published, whether it is consistent, and what has been measured again."
    )
    sections = (
        Section(
            "answer",
            _("The answer"),
            (Text(short(_, claims)), Items(tuple(answer(_, audit, hosts, claims))), Text(meaning(_)), *drawn),
        ),
        reports(_, language, audit, claims),
        _reproduce(_),
        _citation(_),
    )
    return Document(language, _(TITLE), lead, sections)


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
        "**The published throughputs are consistent. Whether they can be reproduced is open: they have not been run on V100s yet.**"
    )


def answer(_: Translate, audit: Audit, hosts: Sequence[MeasuredHost], claims: Sequence[Claim]) -> list[str]:
    """Three sentences: published, audited, measured; each follows from the data."""
    return [_published(_, audit), _audited(_, audit, claims), _measured(_, hosts, claims)]


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
    findings = [finding for finding in audit.findings if not finding.hint]
    errors = sum(finding.severity == "error" for finding in findings)
    wrong = _wrong(claims)
    text = _(
        "**Audited:** {comparisons} comparisons of the published figures gave [{findings} findings](audit.html), {errors} of them errors."
    )
    text = text.format(comparisons=sum(check.compared for check in audit.checks), findings=len(findings), errors=errors)
    if wrong:
        return text + _(" They put the throughput of {names} in doubt.").format(names=_(", ").join(wrong))
    return text + _(" None changes the throughput of a case.")


def _measured(_: Translate, hosts: Sequence[MeasuredHost], claims: Sequence[Claim]) -> str:
    """How many cases were run on what, and whether any has a verdict."""
    every = [claim for claim in claims if claim.metric == THROUGHPUT]
    count = Counter(claim.coverage for claim in every)
    gpus = dict.fromkeys(kept_run.gpus[0]["name"] for host in hosts for kept_run in host.measured if kept_run.gpus)
    if not gpus:
        return _("**Measured:** nothing yet, so there is no verdict.")
    text = _(
        "**Measured:** {published} cases with a port of the published program, {tuned} only with the tuned program and {derived} "
        "only in a derived form (fewer GPUs or iterations); GPUs: {gpus}."
    ).format(gpus=_(", ").join(gpus), published=count[AS_PUBLISHED], tuned=count[OTHERWISE], derived=count[DERIVED])
    outcomes = _outcomes(claims)
    if not outcomes:
        return text + _(" No V100 was available, so **no case has a verdict on its published speed yet**.")
    return text + _(
        " Verdicts: {reproduced} reproduced, {faster} faster, {slower} slower, {inconclusive} inconclusive."
    ).format(**{name: outcomes[name] for name in (*DECIDED, "inconclusive")})


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
    rows = []
    for report in audit.material.reports:
        cases = audit.material.cases_of(report)
        findings = audit.of(report.id)
        most = max(cases, key=lambda case: float(case.published.throughput))
        ran = sum(
            claim.report.id == report.id and claim.metric == THROUGHPUT and bool(claim.measured) for claim in claims
        )
        rows.append(
            (
                Cell(f"[{report.title[language]}](report-{report.id}.html)"),
                figure(len(cases), 0),
                Cell(_("{value} on {gpus} GPUs").format(value=most.published.throughput, gpus=most.layout.world_size)),
                figure(len(findings), 0),
                figure(sum(finding.severity == "error" for finding in findings), 0),
                Cell(f"{ran} / {len(cases)}", ran),
            )
        )
    columns = (
        Column(_("Report")),
        Column(_("Cases"), numeric=True),
        Column(_("Highest throughput (samples/s)")),
        Column(_("Findings"), numeric=True),
        Column(_("Errors"), numeric=True),
        Column(_("Run again"), numeric=True),
    )
    caption = _(
        "The published reports. “Run again” counts cases run in their published configuration, on any GPU and with "
        "either program. Findings on other frameworks' figures are in no row: {others}."
    ).format(others=len(audit.findings) - sum(len(audit.of(report.id)) for report in audit.material.reports))
    text = Text(
        _(
            "Every published figure, with its source, audit result, expectation and measurement, is in the [claims table](claims.html)."
        )
    )
    return Section("reports", _("What was published"), (text, Table("reports", columns, tuple(rows), caption)))


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
