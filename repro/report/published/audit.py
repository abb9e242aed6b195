"""The audit as sections of a document: findings, comparisons, noise, derived efficiency."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from operator import itemgetter

from repro.published.audit.engine import Audit
from repro.published.audit.findings import RESULTS, Finding
from repro.published.audit.flops import Efficiency
from repro.published.cases import Case
from repro.published.claim_ids import THROUGHPUT, claim_id
from repro.report.document import Cell, Column, Section, Table, Text
from repro.report.method import link
from repro.report.numbers import NOTHING
from repro.report.tables import Field, decimals, figure, percent, percents, table, words
from repro.utils.i18n import N_, Translate
from repro.utils.output import cut

KINDS = {
    "provenance": N_("what was measured"),
    "arithmetic": N_("arithmetic"),
    "inconsistency": N_("contradiction"),
    "editorial": N_("editorial"),
    "stray": N_("stray row"),
    "missing": N_("missing"),
    "typing": N_("typing error"),
}
SEVERITIES = {"error": N_("error"), "warning": N_("doubtful"), "note": N_("note")}
HEADINGS = {"error": "errors in", "warning": "doubtful in", "note": "notes on", "typing": "typing errors in"}
TONES = {"error": "bad", "warning": "", "note": "muted"}
TABLES = {
    "results": N_("results"),
    "all-results": N_("all runs"),
    "cases": N_("table of cases"),
    "logs": N_("table of logs"),
    "environment": N_("environment"),
    "topology": N_("topology"),
    "heading": N_("table heading"),
    "title": N_("title"),
    "text": N_("text"),
    "settings": N_("settings"),
    "peers": N_("other frameworks"),
    "example log": N_("example log"),
    "rows of a log": N_("rows of a log"),
    "figures of another version": N_("figures of another version"),
    "later run": N_("later run"),
    "history": N_("history"),
}
COLUMNS = {
    "case": N_("case"),
    "throughput": N_("throughput"),
    "latency_ms": N_("latency"),
    "memory_mib": N_("memory of the GPU"),
    "speedup": N_("speed-up"),
    "memory_change": N_("memory change"),
    "trainer": N_("trainer"),
    "log": N_("log"),
    "memory_change_percent": N_("memory change in %"),
    "throughput_change_percent": N_("throughput change in %"),
    "network": N_("network"),
    "driver": N_("driver"),
    "cuda": "CUDA",
    "oneflow": "OneFlow",
    "flag": N_("switch"),
    "precision": N_("precision"),
    "script_folders": N_("script folders"),
    "global_batch": N_("global batch size"),
    "warmup_iterations": N_("warm-up"),
    "top_1": N_("top-1 accuracy"),
    "gpu_utilisation": N_("utilisation of the GPU"),
    "iteration": N_("iteration"),
    "loss": N_("loss"),
    "repeats": N_("repeats"),
    "date": N_("date"),
    "unit": N_("unit"),
    "batch": N_("batch size"),
    "node_addresses": N_("addresses of the nodes"),
    "section Test Environment": N_("section Test Environment"),
}


ON_A_PHONE = (N_("Place"), N_("Severity"), N_("Why"))
"""The columns of a finding that a narrow screen shows."""


def place(_: Translate, finding: Finding) -> str:
    """Where a finding is, in words."""
    table, row, column = finding.place.table, finding.place.row, finding.place.column
    parts = (
        _(TABLES.get(table, table)),
        _(COLUMNS[row]) if row in COLUMNS else row,
        _(COLUMNS[column]) if column in COLUMNS else column,
    )
    return " / ".join(part for part in dict.fromkeys(parts) if part)


def findings(_: Translate, audit_findings: tuple[Finding, ...], overview: str = "") -> Section:
    """Findings as a table. On the page of one report, `overview` is the file of the overview of all reports; there it is ""."""
    with_report = not overview
    if not audit_findings:
        return Section(
            "audit",
            _("Audit"),
            (Text(_("Every figure and statement that could be checked is correct.")),),
            anchored=with_report,
        )
    first = (Column(_("Report"), minor=True),) if with_report else ()
    columns = (
        *first,
        *(
            Column(_(title), minor=title not in ON_A_PHONE)
            for title in (*ON_A_PHONE, N_("Printed"), N_("Recomputed"), N_("According to other sources"))
        ),
    )
    rows = tuple(
        (
            *(
                (Cell(_(TABLES[finding.report]) if finding.report in TABLES else finding.report),)
                if with_report
                else ()
            ),
            *_row(_, finding, overview),
        )
        for finding in audit_findings
    )
    text = Text(
        _("{tally} {more}").format(
            tally=tally(_, audit_findings),
            more=_("“Recomputed” is from the report's own figures ({method}).").format(
                method=link(_, "audit", _("what the columns mean"), "../")
            ),
        )
    )
    return Section("audit", _("Audit"), (text, Table("audit", columns, rows)), anchored=with_report)


def tally(_: Translate, audit_findings: tuple[Finding, ...]) -> str:
    """How many findings of each weight, and how many hints at typing errors, which are none."""
    count = Counter(finding.severity for finding in audit_findings if not finding.hint)
    return _(
        "Findings: {all} (errors: {errors}; doubtful: {warnings}; notes: {notes}). Typing errors: {hints}."
    ).format(
        all=count.total(),
        errors=count["error"],
        warnings=count["warning"],
        notes=count["note"],
        hints=sum(finding.hint for finding in audit_findings),
    )


def terminal_lines(result: Audit, width: int) -> list[str]:
    """The audit in English: its totals, then one line per finding, errors first, cut after `width` characters.

    Figures come before words, so that mostly words are cut.
    """
    compared = sum(check.compared for check in result.checks)
    lines = [f"{compared} comparisons", tally(lambda message: message, result.findings)]
    of_heading: dict[tuple[str, str], list[Finding]] = {
        (heading, report): []
        for heading in HEADINGS.values()
        for report in dict.fromkeys(finding.report for finding in result.findings)
    }
    for finding in result.findings:
        of_heading[HEADINGS["typing" if finding.hint else finding.severity], finding.report].append(finding)
    for (heading, report), of_report in of_heading.items():
        if of_report:
            lines += ["", f"{heading} {report}", *(cut(_terminal_line(finding), width) for finding in of_report)]
    return [*lines, "", "in full: reports/published/README.md, or make audit | cat"]


def _terminal_line(finding: Finding) -> str:
    place_texts = (finding.place.table, finding.place.row, finding.place.column)
    where = ", ".join(text for text in (place_texts if place_texts[0] != RESULTS else place_texts[1:]) if text)
    figures = [] if finding.printed == NOTHING else [finding.printed]
    figures += [f"recomputed {finding.recomputed}"] if finding.recomputed else []
    parts = [", ".join(figures), str(finding.rule), str(finding.evidence or "")]
    return f"  {where}: {'; '.join(part for part in parts if part)}"


def _row(_: Translate, finding: Finding, overview: str) -> tuple[Cell, ...]:
    where = place(_, finding)
    if finding.place.table == "history":
        where = f"[{where}]({overview}#{finding.place.row})"
    why = finding.rule.text(_)
    if finding.evidence:
        why = _("{rule}; {evidence}").format(rule=why, evidence=finding.evidence.text(_))
    return (
        Cell(where),
        Cell(_(SEVERITIES[finding.severity]), note=_(KINDS[finding.kind]), tone=TONES[finding.severity]),
        Cell(why),
        Cell(finding.printed, claim=finding.claim),
        *words(finding.recomputed or "–", _elsewhere(_, finding)),
    )


def _elsewhere(_: Translate, finding: Finding) -> str:
    if not finding.source or not finding.elsewhere:
        return "–"
    return _("{value} ({source})").format(value=finding.elsewhere, source=finding.source.text(_))


def checks(_: Translate, result: Audit) -> Section:
    """Number of comparisons and findings per rule."""
    rows = [(_(check.title), check.compared, check.findings) for check in result.checks]
    total = (_("all"), sum(check.compared for check in result.checks), sum(check.findings for check in result.checks))
    fields = (
        Field(_("What was compared"), itemgetter(0)),
        Field(_("Comparisons"), itemgetter(1), decimals(0)),
        Field(_("Findings"), itemgetter(2), decimals(0)),
    )
    return Section("checks", _("What was compared"), (table("checks", [*rows, total], fields),))


def noise(_: Translate, result: Audit, report: str | None = None) -> Section | None:
    """The spread of repeats, and configurations that were published twice."""
    cases = {case.name: case for case in result.material.cases if report in (None, case.report)}
    pairs = [(names, apart) for names, apart in result.noise.duplicates.items() if names[0] in cases]
    spreads = [spread for name, spread in result.noise.repeats.items() if name in cases]
    if not pairs and not spreads:
        return None
    blocks: list = []
    if spreads:
        cvs = [cv for name, cv in result.noise.cvs.items() if name in cases]
        low, high = min(cvs), max(cvs)
        blocks.append(
            Text(
                _("{n} configurations were run {runs} times each, with CVs of {low}% to {high}%.").format(
                    n=len(spreads), runs=spreads[0].samples, low=f"{100 * low:.2f}", high=f"{100 * high:.2f}"
                )
            )
        )
    if pairs:
        fields = (
            Field(_("Case"), lambda pair: pair[0][0]),
            Field(_("Same configuration as"), lambda pair: pair[0][1]),
            Field(_("Throughput (samples/s)"), lambda pair: _throughput(cases[pair[0][0]]), numeric=True),
            Field(_("Second throughput"), lambda pair: _throughput(cases[pair[0][1]]), numeric=True),
            Field(_("Difference"), lambda pair: pair[1], percent),
        )
        blocks += [
            Text(
                _(
                    "These configurations were measured twice, under two names. The difference between the two "
                    "figures, relative to their mean, gives an estimate of run-to-run noise at no extra cost:"
                )
            ),
            table("duplicates", pairs, fields, _("Pairs of equal configurations:")),
        ]
    blocks += _above_ideal(_, result, cases)
    return Section("noise", _("Noise"), tuple(blocks))


def _throughput(case: Case) -> Cell:
    """A case's published throughput, as the claim that it is."""
    return replace(figure(case.published.throughput, 2), claim=claim_id(case.name, THROUGHPUT))


def _above_ideal(_: Translate, result: Audit, cases: dict) -> list:
    """Steps that scale better than the number of GPUs, which only noise or a poor smaller figure explains."""
    rows = []
    for smaller, larger in result.material.scaling_steps():
        ratio = larger.published.throughput / smaller.published.throughput
        ideal = larger.layout.world_size / smaller.layout.world_size
        if smaller.name in cases and ratio > ideal:
            rows.append((smaller.name, larger.name, ratio, ideal))
    if not rows:
        return []
    fields = (
        Field(_("From"), itemgetter(0)),
        Field(_("To"), itemgetter(1)),
        Field(_("Ratio"), itemgetter(2), decimals(3)),
        Field(_("Ideal"), itemgetter(3), decimals(0)),
        Field(_("Above the ideal"), lambda step: step[2] / step[3] - 1, percent),
    )
    return [
        Text(
            _(
                "Steps to the next larger number of GPUs that scale better than ideal. The excess is within the "
                "noise, so it is not a finding:"
            )
        ),
        table("above-ideal", rows, fields, _("Steps above the ideal:")),
    ]


def efficiency(_: Translate, result: Audit, report: str) -> Section | None:
    """TFLOP/s per GPU and share of peak of a report's GPT cases, with the team's own figures."""
    material = result.material
    own = [computed for computed in result.efficiencies if material.catalogue.case(computed.case).report == report]
    if not own:
        return None
    published = {row["case"]: row for row in material.catalogue.report(report).also("efficiency")}
    peak = material.cluster(material.catalogue.report(report))["hardware"]["gpu_peak_tflops"]

    def published_field(title: str, column: str) -> Field:
        def value(computed: Efficiency) -> Cell:
            row = published.get(computed.case, {})
            return _published(result, report, case=computed.case, column=column, value=row.get(column))

        return Field(title, value, numeric=True)

    fields = (
        Field(_("Case"), lambda computed: computed.case),
        Field(_("GPUs"), lambda computed: computed.gpus, decimals(0)),
        Field(_("TFLOP per iteration"), lambda computed: computed.teraflop, decimals(1)),
        Field(_("TFLOP/s per GPU"), lambda computed: computed.tflops_per_gpu, decimals(2)),
        Field(_("Share of peak"), lambda computed: computed.share_of_peak, percents(1)),
        Field(_("PFLOP/s in total"), lambda computed: computed.petaflops, decimals(3)),
        published_field(_("TFLOP/s per GPU, published"), "tflops_per_gpu"),
        published_field(_("Share of peak in %, published"), "percent_of_peak"),
        published_field(_("PFLOP/s in total, published"), "petaflops"),
    )
    text = Text(
        _(
            "F = 96 B s l h² (1 + s/(6h) + V/(16 l h)) floating-point operations per iteration with full activation "
            "checkpointing (arXiv 2104.04473, equation 3), where B is the global batch size, s the sequence length, "
            "l the number of layers and h the hidden size. V is 51200 for all cases, as in the team's own figures, "
            "regardless of how each vocabulary was padded. F is divided by the published latency and the number of "
            "GPUs and compared with the V100's peak of {peak} TFLOP/s. The three columns on the right are the team's "
            "own figures, from `{source}`."
        ).format(peak=f"{peak:g}", source=_efficiency_source(result, report))
    )
    return Section("efficiency", _("Derived efficiency"), (text, table("efficiency", own, fields)))


def _published(result: Audit, report: str, case: str, column: str, value: float | None) -> Cell:
    notes = [finding for finding in result.at(report, "efficiency", case, column)]
    return Cell(
        "–" if value is None else str(value),
        None if value is None else float(value),
        "; ".join(finding.remark() for finding in notes),
    )


def _efficiency_source(result: Audit, report: str) -> str:
    tables = result.material.catalogue.report(report).also_printed
    return next((table["source"].split(",")[0] for table in tables if table["what"] == "efficiency"), "–")
