"""Regenerates the published reports in Chinese and English, with their audit, from the catalogue's data alone."""

from __future__ import annotations

import tempfile
from pathlib import Path

from repro.published.audit.engine import Audit, as_json, audit
from repro.published.cases import Report
from repro.published.comparisons import comparisons
from repro.report import numbers
from repro.report.committed import contents, differences
from repro.report.document import Document, Figure, Section, Table, markdown
from repro.report.published import audit as audit_report
from repro.report.published import context as published_context
from repro.report.published import history as published_history
from repro.report.published import program
from repro.report.published import tables as published_tables
from repro.report.published.figures import published_figures
from repro.report.published.peers import peers
from repro.report.published.tables import Sheet
from repro.report.tables import Field, columns, count, table, words
from repro.utils.i18n import LANGUAGES, Counted, catalogue
from repro.utils.paths import REPORTS

FOLDER = REPORTS / "published"
INDEX = {"en": "README.md", "zh": "README.zh.md"}


def build(result: Audit, report: Report, language: str, figures: list[Figure]) -> Document:
    """One published report in one language, with the figures drawn for it."""
    _ = catalogue(language).gettext
    sheet = Sheet(_, result, report, language)
    sections = (
        _glance(sheet),
        published_tables.results(sheet),
        Section("figures", _("Figures"), tuple(figures)),
        audit_report.findings(_, result.of(report.id), INDEX[language]),
        peers(sheet),
        audit_report.efficiency(_, result, report.id),
        audit_report.noise(_, result, report.id),
        published_tables.repeats(sheet),
        published_tables.tested(sheet),
        published_context.rule(sheet),
        published_context.environment(sheet),
        published_context.settings(sheet),
        published_context.example(sheet),
        published_history.beside(_, language, result.material.history, report.id, INDEX[language]),
        published_context.open_points(sheet),
        program.choices(sheet),
        program.kept_otherwise(sheet, language),
        program.past_kernels(sheet),
        published_context.reproduce(sheet),
        published_context.sources(sheet),
    )
    lead = _(
        "Regenerated from data. Figures and environment are as published, the title is corrected, and audit notes "
        'follow the figures they concern in parentheses. Original title: "{title}".'
    ).format(title=report.title_printed)
    return Document(language, report.title[language], lead, tuple(section for section in sections if section))


def _glance(sheet: Sheet) -> Section:
    """Subject and main results, in a few rows."""
    _, report, cases = sheet._, sheet.report, sheet.cases
    subject = report.claims["subject"]
    best = max(cases, key=lambda case: case.published.throughput)
    gpus = sorted({case.layout.world_size for case in cases})
    rows = [
        (_("Subject"), _(subject)),
        (_("Date"), report.date),
        (_("Language of the original"), {"en": _("English"), "zh": _("Chinese, headings in English")}[report.language]),
        (_("Cases"), str(len(cases))),
        (_("GPUs"), _(", ").join(map(str, gpus))),
        (_("Precision"), _("fp16 mixed precision (AMP)") if report.precision == "amp" else "fp32"),
        (
            _("Highest throughput"),
            _("{value} samples/s ({case})").format(value=best.published.throughput, case=best.name),
        ),
    ]
    steepest = max(
        (case for case in cases if case.published.speedup), default=None, key=lambda case: case.published.speedup or 0
    )
    if steepest:
        rows.append(
            (
                _("Highest speed-up"),
                _("{value} on {gpus} GPUs ({case})").format(
                    value=steepest.published.speedup, gpus=steepest.layout.world_size, case=steepest.name
                ),
            )
        )
    rows += [
        (
            f"{report.framework} / {framework}",
            _("{ratios} ({n:case|cases})").format(
                ratios=numbers.span(f"{ratio:.2f}" for ratio in ratios), n=Counted(len(ratios))
            ),
        )
        for framework, ratios in _over_peers(sheet).items()
    ]
    rows.append((_("Audit"), audit_report.tally(_, sheet.result.of(report.id))))
    rows.append((_("Measured again"), _("[each figure, with what was measured of it](../claims.csv)")))
    glance = Table("glance", columns(_("Item"), _("Value")), tuple(words(*row) for row in rows))
    return Section("glance", _("At a glance"), (glance,))


def _over_peers(sheet: Sheet) -> dict[str, list[float]]:
    """The published throughput over that of other frameworks in the same cases, by framework, in ascending order."""
    ratios: dict[str, list[float]] = {}
    material = sheet.result.material
    for comparison in comparisons(material.catalogue, material.peers):
        if comparison.case and comparison.case.report == sheet.report.id:
            ratios.setdefault(comparison.peer.framework, []).append(comparison.ratio)
    return {framework: sorted(values) for framework, values in ratios.items()}


def index(result: Audit, language: str) -> Document:
    """The overview of all reports, with the whole audit."""
    _ = catalogue(language).gettext
    reports = result.material.reports
    fields = (
        Field(_("Report"), lambda report: report.id),
        Field(_("Title"), lambda report: f"[{report.title[language]}]({report.id}.{language}.md)"),
        Field(_("Date"), lambda report: report.date),
        Field(_("Cases"), lambda report: len(result.material.cases_of(report)), count),
        Field(_("Findings"), lambda report: len(result.counted(report.id)), count),
    )
    lead = _(
        "Published training benchmark reports, regenerated in Chinese and English from data and audited against their own "
        "figures. `make published` rewrites these pages byte for byte, `make audit` prints the findings and writes "
        "`audit.json`, and `make audit LOGS=DIR` recomputes the figures from original logs."
    )
    sections = (
        Section("reports", _("Reports"), (table("reports", reports, fields),)),
        *published_history.sections(_, language, result.material.history),
        audit_report.findings(_, result.findings),
        audit_report.noise(_, result),
        audit_report.checks(_, result),
    )
    title = _("{frameworks}: published benchmarks, audited").format(
        frameworks=_(", ").join(dict.fromkeys(report.framework for report in reports))
    )
    return Document(language, title, lead, tuple(section for section in sections if section))


def render(folder: Path = FOLDER) -> list[Path]:
    """Write the audit, the figures, the reports and the overviews; returns their paths."""
    result = audit()
    figures = folder / "figures"
    figures.mkdir(parents=True, exist_ok=True)
    drawn = published_figures(figures)
    texts = {folder / "audit.json": as_json(result)}
    for report in result.material.reports:
        for language in LANGUAGES:
            document = build(result, report, language, drawn[report.id][language])
            texts[folder / f"{report.id}.{language}.md"] = markdown(document, folder)
    texts |= {folder / INDEX[language]: markdown(index(result, language), folder) for language in LANGUAGES}
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8", newline="\n")
    return sorted([*texts, *figures.glob("*.svg")])


def differing(folder: Path = FOLDER) -> list[Path]:
    """Files in the folder that differ from the data, are missing, or should not exist."""
    with tempfile.TemporaryDirectory() as scratch:
        due = contents(Path(scratch), render(Path(scratch)))
    return differences(folder, due, contents(folder))
