"""Writes the page of a host in both languages, and finds what is no longer as the kept runs give it."""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path
from typing import TypeVar

from repro.report import numbers
from repro.report.charts.figure import write_figures
from repro.report.committed import Contents, contents, differences
from repro.report.document import Cell, Document, Figure, Section, Table, Text, markdown
from repro.report.host.answer import answer, gpus_text, measured
from repro.report.host.cells import interval, link
from repro.report.host.correctness import shown
from repro.report.host.evidence import evidence
from repro.report.host.figures import figure_specs
from repro.report.host.goals import goals
from repro.report.host.independence import independence
from repro.report.host.machine import machine, preflight, runs
from repro.report.host.measured import comparisons, layouts, memory, scaling, speed, transfers
from repro.report.host.megatron import by_layout
from repro.report.host.notes import NOTES, PLACEHOLDER
from repro.report.host.peak import peak
from repro.report.host.results import MeasuredHost, results_table
from repro.report.names import listed
from repro.report.numbers import short
from repro.report.tables import Field, columns, count, table, words
from repro.runs.files import RecordError
from repro.utils.i18n import LANGUAGES, Translate, catalogue

FIGURES, RESULTS = "figures", "results.csv"
INDEX = {"en": "README.md", "zh": "README.zh.md"}
Named = TypeVar("Named")


def build(host: MeasuredHost, language: str, drawn: list[Figure]) -> Document:
    """A host's page in one language, with the figures that were drawn for it; what was not run has no section.

    First the answer, then a short table for each question, followed by its details, folded; at last, folded too, how
    the figures came about.
    """
    _ = catalogue(language).gettext
    sections = (
        *answer(_, host, drawn),
        *speed(_, host),
        *by_layout(_, host, drawn),
        *peak(_, host),
        *transfers(_, host),
        *scaling(_, host, drawn),
        *memory(_, host),
        *shown(_, host, drawn),
        *layouts(_, host),
        *goals(_, host, language),
        *comparisons(_, host),
        *_notes(_, host, language),
        *_experiments(_, host, language),
        *_failures(_, host),
        *_deviations(_, host, language),
        *machine(_, host),
        *preflight(_, host),
        *independence(_, host),
        *evidence(_, host),
        *runs(_, host),
    )
    title = _("Measurements on {gpus}").format(gpus=gpus_text(_, host) or host.name)
    return Document(language, title, measured(_, host), sections)


def _failures(_: Translate, host: MeasuredHost) -> list[Section]:
    """Every attempt that failed, which no ratio counts; nothing if all succeeded."""
    cells = tuple(
        words(link(kept_run), attempt.unit, str(attempt.repeat), attempt.failure.text(_) if attempt.failure else "–")
        for kept_run in host.runs
        for attempt in kept_run.attempts
        if attempt.status == "failed"
    )
    if not cells:
        return []
    caption = _("Every failed attempt. Configurations with no successful run appear only here.")
    failures = Table("failures", columns(_("Run"), _("Configuration"), _("Repeat"), _("Reason")), cells, caption)
    return [Section("failures", _("Failed attempts"), (failures,), folded=True)]


def _notes(_: Translate, host: MeasuredHost, language: str) -> list[Section]:
    """The hand-written text in that language, with links to the runs that it names; nothing if there is none."""
    written = host.notes.texts.get(language)
    if not written:
        return []

    def given(match: re.Match) -> str:
        if match["run"]:
            begin = [kept_run for kept_run in host.runs if kept_run.run.id.startswith(match["run"])]
            whole = [kept_run for kept_run in begin if kept_run.run.id == match["run"]]
            return link(_one(host, language, match[0], whole or begin))
        rows = host.ratios if match["of"] == "ratio" else host.efficiencies
        named = [row for row in rows if match["unit"] in {result.unit.name for result in row.results}]
        row = _one(
            host,
            language,
            match[0],
            [candidate for candidate in named if match["of"] != "ratio" or candidate.base.label == match["base"]],
        )
        if not row.ratio:
            return numbers.NOTHING
        written = numbers.ratio if match["of"] == "ratio" else numbers.percentage
        value, n = written(row.ratio.value), len(row.sessions)
        if not (over_sessions := interval(row, written)):
            return _("{value} (n = {n})").format(value=value, n=n)
        return _("{value} ({interval}, n = {n})").format(value=value, interval=over_sessions, n=n)

    written = PLACEHOLDER.sub(given, written.strip())
    paragraphs = tuple(Text(" ".join(part.split())) for part in written.split("\n\n"))
    note = Text(_("This section was written by hand; its figures are filled in from the tables above."))
    return [Section("notes", _("Commentary"), (note, *paragraphs), folded=True)]


def _one(host: MeasuredHost, language: str, placeholder: str, meant: list[Named]) -> Named:
    """The only one that a placeholder of the notes means; RecordError if it means none or several."""
    if len(meant) != 1:
        raise RecordError(
            f"{host.folder / NOTES}: the text in {language} has {placeholder}, which {len(meant)} kept runs or rows are "
            "called; give as much of a run's id as only one has, or a row's configuration and baseline"
        )
    return meant[0]


def _experiments(_: Translate, host: MeasuredHost, language: str) -> list[Section]:
    """The experiments made by hand; nothing if none are written down."""
    if not host.notes.experiments:
        return []
    caption = _(
        "Experiments made and written down by hand. Each figure is from a single run of the trainer, with fewer iterations "
        "than published, that was not kept; both figures of a row are from equal hosts, mostly from the same one."
    )
    fields = (
        Field(_("Case"), lambda experiment: experiment.case),
        Field(_("Change"), lambda experiment: experiment.described(language)),
        Field(_("GPUs"), lambda experiment: experiment.gpus, count),
        Field(_("Without it (samples/s)"), lambda experiment: experiment.without_it, _shortened),
        Field(_("With it (samples/s)"), lambda experiment: experiment.with_it, _shortened),
        Field(_("In the trainers now"), lambda experiment: _("yes") if experiment.stays else _("no")),
    )
    experiments = table("experiments", host.notes.experiments, fields, caption)
    return [Section("experiments", _("What was tried by hand"), (experiments,), folded=True)]


def _shortened(throughput: float) -> Cell:
    return Cell(short(throughput), throughput)


def _deviations(_: Translate, host: MeasuredHost, language: str) -> list[Section]:
    """Where it is said how the programs differ from the published ones; nothing without a run."""
    units = [unit for kept_run in host.runs for unit in kept_run.plan.units if not unit.baseline_of]
    reports = sorted({unit.report for unit in units if host.catalogue.report(unit.report).ported})
    if not reports:
        return []
    links = listed(_, (f"[{report}](../../published/{report}.{language}.md)" for report in reports))
    text = _(
        "The page of each report has every deviation of the port and every option of both programs: {reports}."
    ).format(reports=links)
    return [Section("deviations", _("Deviations from the published programs"), (Text(text),), folded=True)]


def render(host: MeasuredHost) -> list[Path]:
    """Write a host's page, its figures and its table of results into its folder; the paths of pages and table."""
    shutil.rmtree(host.folder / FIGURES, ignore_errors=True)
    return _write(host, host.folder)


def _write(host: MeasuredHost, folder: Path) -> list[Path]:
    (folder / FIGURES).mkdir()
    specs = figure_specs(host)
    drawn = {language: write_figures(specs, folder / FIGURES, language) for language in LANGUAGES}
    texts = {file: markdown(build(host, language, drawn[language]), folder) for language, file in INDEX.items()}
    texts[RESULTS] = results_table(host)
    for file, text in texts.items():
        (folder / file).write_text(text, encoding="utf-8", newline="\n")
    return [folder / file for file in texts]


def differing(host: MeasuredHost) -> list[Path]:
    """The page's files of a host that are not what its runs give, those that are missing, and those too many."""
    with tempfile.TemporaryDirectory() as scratch:
        _write(host, Path(scratch))
        expected = _pages(Path(scratch))
    there = _pages(host.folder)
    there.pop(Path(NOTES), None)
    return differences(host.folder, expected, there)


def _pages(folder: Path) -> Contents:
    """The content of everything in a host's folder but its runs."""
    return contents(folder, (*folder.glob("*"), *folder.glob(f"{FIGURES}/*")))
