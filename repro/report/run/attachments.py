"""Adds to a run's report its figures and the files that a reader may want to open."""

from dataclasses import replace
from pathlib import Path

from repro.report.document import Attachment, Document, Figure, Section
from repro.report.run.data import ReportData
from repro.report.run.kinds import kind_of
from repro.runs.attempts import AttemptRecord
from repro.runs.files import RunPath
from repro.runs.record import Run
from repro.utils.i18n import N_, Translate, catalogue

DRAWING_PAYS_AFTER_S = 30
FILES = (
    ("run.json", N_("Plan and machine")),
    ("attempts.jsonl", N_("All attempts, one line each")),
    ("results.csv", N_("Table of results")),
    ("verdicts.json", N_("Verdicts (machine-readable)")),
)


def drawing_pays(attempts: list[AttemptRecord]) -> bool:
    """Whether a run took so long that the seconds in which figures are drawn do not count."""
    return sum(attempt.wall_s for attempt in attempts) > DRAWING_PAYS_AFTER_S


def illustrated(document: Document, data: ReportData, run: Run, folder: Path, draw: bool) -> Document:
    """The document with a section of figures after its results if they are to be drawn, and with the raw data.

    `folder` is where the report and its figures are written; a run's own files are where the run is. Of a run in an
    archive the raw data is the archive.
    """
    _ = catalogue(document.language).gettext
    figures_after, sections = kind_of(data.plan).figures_after, []
    for section in document.sections:
        sections.append(section)
        if section.id == figures_after and draw:
            sections += _figures(_, document.language, data, run, folder)
    places = {name: folder if run.archived or (folder / name).is_file() else run.path for name, _title in FILES}
    present = [(places[name] / name, title) for name, title in FILES if (places[name] / name).is_file()]
    files = tuple(Attachment(f"file-{path.stem}", path, _(title)) for path, title in present)
    if run.archived:
        files = (Attachment("file-archive", run.path, _("The run's files")), *files)
    return replace(document, sections=(*sections, Section("data", _("Raw data"), files)))


def run_figures(data: ReportData, files: RunPath, folder: Path, language: str) -> list[Figure]:
    """Write the figures of a run, whose files these are, into `folder`; the blocks that show them."""
    from repro.report.charts.figure import write_figures  # takes time to import, which a short run's report saves

    return write_figures(kind_of(data.plan).figures(data, files), folder, language)


def _figures(_: Translate, language: str, data: ReportData, run: Run, folder: Path) -> list[Section]:
    blocks = run_figures(data, run.files, folder / "figures", language)
    return [Section("figures", _("Figures"), tuple(blocks))] if blocks else []
