"""Which pages the site has, and how each is made, in one language at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from repro.perfmodel.constants import load_calibration
from repro.published.audit.engine import Audit, audit
from repro.report import method
from repro.report.charts.figure import FigureSpec, write_figures
from repro.report.document import Document, Figure
from repro.report.host import page as host_page
from repro.report.host.coverage import every_unit, levels
from repro.report.host.figures import coverage_figure
from repro.report.host.results import MeasuredHost, load
from repro.report.perfmodel import page as model_page
from repro.report.published import page as published_page
from repro.report.published.figures import published_figure_specs
from repro.report.site import claims_page, home, reproduce, speed
from repro.report.site.claims import Claim, claims
from repro.report.site.comparisons import comparison_rows
from repro.runs.digests import hosts
from repro.utils.i18n import Translate
from repro.utils.paths import REPORTS, ROOT

Build = Callable[[str, Path], Document]
"""Makes a page in one language; figures go into the folder."""


@dataclass(frozen=True)
class Page:
    """`name` is the file without its ending, `section` the entry of the navigation that it belongs to.

    `base` is the folder from which relative links in its texts start.
    """

    name: str
    section: str
    build: Build
    base: Path = ROOT


@dataclass(frozen=True, eq=False)
class Content:
    """Everything that the site shows, read once."""

    audit: Audit
    hosts: tuple[MeasuredHost, ...]
    claims: tuple[Claim, ...]

    @classmethod
    def load(cls) -> Content:
        result, every = audit(), tuple(load(name) for name in hosts())
        return cls(result, every, tuple(claims(result, every)))


def pages(content: Content) -> list[Page]:
    """All pages; the slowest first, so that they are made first where several are made at once."""
    return [
        Page("model", "model", _model, REPORTS / "model"),
        *(Page(f"host-{host.name}", f"host-{host.name}", _host(host), host.folder) for host in content.hosts),
        *_published(content.audit),
        Page("index", "index", lambda language, folder: _home(content, language, folder)),
        Page("claims", "claims", lambda language, folder: _claims(content, language)),
        Page("method", "method", lambda language, folder: method.build(language), method.FOLDER),
        Page(
            "reproduce", "reproduce", lambda language, folder: reproduce.build(language, content.claims, content.hosts)
        ),
    ]


def navigation(_: Translate, hosts: Sequence[MeasuredHost]) -> tuple[tuple[str, str], ...]:
    """The pages that every page links to, in order."""
    return (
        ("index", _("Home")),
        ("claims", _("Claims")),
        ("published", _("Published")),
        *((f"host-{name}", gpu) for name, gpu in speed.short_names(hosts).items()),
        ("method", _("Method")),
        ("model", _("Performance model")),
        ("reproduce", _("Reproduce")),
    )


def _claims(content: Content, language: str) -> Document:
    return claims_page.build(language, content.claims, comparison_rows(content.audit, content.hosts))


def _published(result: Audit) -> Iterator[Page]:
    for report in result.material.reports:
        yield Page(f"report-{report.id}", "published", _report(result, report.id), published_page.FOLDER)
    yield Page(
        "published", "published", lambda language, folder: published_page.index(result, language), published_page.FOLDER
    )


def _report(result: Audit, name: str) -> Build:
    def build(language: str, folder: Path) -> Document:
        report = result.material.catalogue.report(name)
        spec = published_figure_specs(result.material.cases)[name]
        return published_page.build(result, report, language, write_figures([spec], folder, language))

    return build


def _model(language: str, folder: Path) -> Document:
    story = _story()
    return model_page.build(story, language, model_page.figures(story.results, folder, language))


@cache
def _story() -> model_page.ModelReportData:
    """What the page of the model tells, computed once for both languages."""
    return model_page.tell(load_calibration())


def _host(host: MeasuredHost) -> Build:
    def build(language: str, folder: Path) -> Document:
        drawn = write_figures(host_page.figure_specs(host), folder, language, f"{host.name}-")
        return without_figures_of_runs(host_page.build(host, language, drawn))

    return build


def without_figures_of_runs(document: Document) -> Document:
    """The page without the figures of its sections on single runs, with which it would be too large.

    The page in the repository has them, and `make report RUN=<archive>` draws those of a run.
    """
    return replace(
        document,
        sections=tuple(
            replace(section, blocks=tuple(block for block in section.blocks if not isinstance(block, Figure)))
            if section.id.endswith("-runs")
            else section
            for section in document.sections
        ),
    )


def _home(content: Content, language: str, folder: Path) -> Document:
    return home.build(language, content.audit, content.hosts, content.claims, home_figures(content, language, folder))


def home_figures(content: Content, language: str, folder: Path) -> list[Figure]:
    """The figures of the home page, written into a folder."""
    return write_figures([_coverage(content)], folder, language)


def _coverage(content: Content) -> FigureSpec:
    catalogue = content.audit.material.catalogue
    cases = catalogue.ported
    return coverage_figure(catalogue, levels(every_unit(content.hosts), cases, [case.name for case in cases]))
