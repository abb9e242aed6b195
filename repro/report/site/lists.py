"""The pages that list others: the published reports, and the hosts with their runs."""

from __future__ import annotations

from collections.abc import Sequence

from repro.published.audit.engine import Audit
from repro.report.document import Document, Section, Text
from repro.report.host.machine import gpus
from repro.report.host.results import MeasuredHost
from repro.report.published import audit as audit_report
from repro.report.published import history
from repro.report.run.kinds import kind_of
from repro.report.tables import Field, count, table
from repro.utils.i18n import Translate, catalogue


def published(language: str, audit: Audit) -> Document:
    """The published reports, and what their sources tell beyond the figures."""
    _ = catalogue(language).gettext
    fields = (
        Field(_("Report"), lambda report: f"[{report.title[language]}](report-{report.id}.html)"),
        Field(_("Date"), lambda report: report.date),
        Field(_("Cases"), lambda report: len(audit.material.cases_of(report)), count),
        Field(_("Findings"), lambda report: len(audit.of(report.id)), count),
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
        "sources. What was measured at all comes first, then errors; typing errors are last."
    )
    sections = (
        audit_report.findings(_, ordered, with_report=True),
        audit_report.noise(_, audit),
        audit_report.checks(_, audit),
    )
    return Document(language, _("Audit"), lead, tuple(section for section in sections if section))


def measured(language: str, hosts: Sequence[MeasuredHost]) -> Document:
    """The hosts and all kept runs."""
    _ = catalogue(language).gettext
    lead = _(
        "Runs that this project made and kept. Every page is computed from the run's raw logs; `make verify` repeats it."
    )
    sections = []
    fields = (
        Field(_("Run"), lambda kept_run: f"[{kept_run.began}](run-{kept_run.run.id}.html)"),
        Field(_("Kind of run"), lambda kept_run: _(kind_of(kept_run.plan).title), filtered=True),
        Field(
            _("Models"),
            lambda kept_run: ", ".join(dict.fromkeys(unit.model for unit in kept_run.plan.units)),
            filtered=True,
        ),
        Field("GPU", lambda kept_run: gpus(kept_run) or "–", filtered=True),
        Field(_("Configurations run"), lambda kept_run: len(kept_run.plan.units), count),
        Field(
            _("Successful attempts"),
            lambda kept_run: sum(attempt["status"] == "ok" for attempt in kept_run.attempts),
            count,
        ),
    )
    for host in hosts:
        text = Text(_("What these runs show together: [page of {host}](host-{host}.html).").format(host=host.name))
        sections.append(Section(host.name, host.name, (text, table(f"runs-{host.name}", host.runs, fields))))
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
        ("model", _("Model")),
        ("reproduce", _("Reproduce")),
    )
