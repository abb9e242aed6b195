"""The pages that list others: the published reports, and the hosts with their runs."""

from __future__ import annotations

from collections.abc import Sequence

from repro.published.audit.engine import Audit
from repro.report.document import Block, Document, Items, Section, Text
from repro.report.host import answer
from repro.report.host.answer import believed, gpus_text, how_to_read
from repro.report.host.results import MeasuredHost
from repro.report.published import audit as audit_report
from repro.report.published import history
from repro.report.tables import Field, count, table
from repro.utils.i18n import Translate, catalogue


def published(language: str, audit: Audit) -> Document:
    """The published reports, and what their sources tell beyond the figures."""
    _ = catalogue(language).gettext
    fields = (
        Field(_("Report"), lambda report: f"[{report.title[language]}](report-{report.id}.html)"),
        Field(_("Date"), lambda report: report.date),
        Field(_("Cases"), lambda report: len(audit.material.cases_of(report)), count),
        Field(_("Findings"), lambda report: len(audit.counted(report.id)), count),
        Field(_("Source"), lambda report: f"[{_('original')}]({report.url})" if report.url else "–"),
    )
    lead = _("The published reports, regenerated in Chinese and English from data, with the audit next to the figures.")
    sections = [Section("reports", _("Reports"), (table("reports", audit.material.reports, fields),))]
    if audit.material.history:
        text = Text(
            _("Programs, logs and earlier versions say more than the reports: [sources and texts](history.html).")
        )
        sections.append(
            Section(
                "history",
                _("What the figures alone do not show"),
                (text, history.table(_, language, audit.material.history)),
            )
        )
    return Document(language, _("Published reports"), lead, tuple(sections))


def audited(language: str, audit: Audit) -> Document:
    """The whole audit, errors first."""
    _ = catalogue(language).gettext
    severities = list(audit_report.SEVERITIES)
    ordered = tuple(sorted(audit.findings, key=lambda finding: (finding.rank, severities.index(finding.severity))))
    lead = _(
        "Every figure and statement of the published reports, checked against the report's own figures and against other "
        "sources. Findings that question what was measured come first, then errors; typing errors are last."
    )
    sections = (
        audit_report.findings(_, ordered, with_report=True, folder="reports/"),
        audit_report.noise(_, audit),
        audit_report.checks(_, audit),
    )
    return Document(language, _("Audit"), lead, tuple(section for section in sections if section))


def measured(language: str, hosts: Sequence[MeasuredHost]) -> Document:
    """The hosts, each with its result in words."""
    _ = catalogue(language).gettext
    lead = _(
        "Runs that this project made and kept. Every page is computed from the run's raw logs; `make verify` recomputes "
        "what was measured, and `make site CHECK=1` the pages."
    )
    sections = []
    for host in hosts:
        items = answer.in_words(_, host)
        texts = (
            answer.measured(_, host),
            believed(_, host),
            _("Figures, tables and every run: [page of {host}](host-{host}.html).").format(host=host.name),
        )
        blocks: list[Block] = [Text(text)] if (text := how_to_read(_, host, "reports/")) else []
        blocks += [Items(items)] if items else []
        blocks += [Text(text) for text in texts if text]
        sections.append(Section(host.name, gpus_text(_, host) or host.name, tuple(blocks)))
    if not hosts:
        sections.append(Section("none", _("No run"), (Text(_("No run has been kept yet.")),)))
    return Document(language, _("Measurements"), lead, tuple(sections))


def navigation(_: Translate) -> tuple[tuple[str, str], ...]:
    """The pages that every page links to, in order."""
    return (
        ("index", _("Home")),
        ("claims", _("Claims")),
        ("published", _("Published")),
        ("audit", _("Audit")),
        ("measured", _("Measurements")),
        ("method", _("Method")),
        ("model", _("Model")),
        ("reproduce", _("Reproduce")),
    )
