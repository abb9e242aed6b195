"""Writes the page of a host in both languages, and finds what is no longer as the kept runs give it."""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path

from repro.analysis.relations import variant
from repro.report.charts.figure import FigureSpec, write_figures
from repro.report.charts.rows import BarChart, Panel
from repro.report.document import Cell, Document, Section, Table, Text, figure, markdown, words
from repro.report.host.correctness import shown
from repro.report.host.keep import REPRODUCED
from repro.report.host.machine import day, gpus, machine, memory, preflight, runs
from repro.report.host.measured import columns, layouts, link, ratios, scaling, tally, transfers
from repro.report.host.notes import READING
from repro.report.host.results import TARGETS, Host, Row, load
from repro.runs.failures import Failure
from repro.runs.record import RecordError
from repro.utils.i18n import LANGUAGES, catalogue

INDEX = {"en": "README.md", "zh": "README.zh.md"}
BARS = 4
NAMED = re.compile(r"\{([\w-]+)\}")
"""How a reading names a run: by how its id, and no other, begins."""


def build(host: Host, language: str, drawn: list) -> Document:
    """A host's page in one language, with the figures that were drawn in it; what is not there has no section."""
    _ = catalogue(language).gettext
    sections = (
        *_glance(_, host),
        *_failures(_, host, language),
        *ratios(_, host, language, drawn),
        *scaling(_, host, language, drawn),
        *layouts(_, host, language),
        *shown(_, host, language),
        *memory(_, host, language),
        *transfers(_, host, language),
        *_reading(_, host, language),
        *_trials(_, host, language),
        *machine(_, host),
        *preflight(_, host),
        *runs(_, host, language),
    )
    title = _("Reproduced on {gpus}").format(
        gpus=_(", ").join(dict.fromkeys(filter(None, map(gpus, host.runs)))) or host.name
    )
    days = sorted({day(told) for told in host.runs})
    when = _("{first} to {last}").format(first=days[0], last=days[-1]) if len(days) > 1 else "".join(days)
    lead = _(
        "What this project itself measured on {host}, {when}. Unless a section says that it was written by hand, "
        "every number and every sentence about numbers on this page is computed from the files under `runs/`; "
        "`make reproduced HOST={host}` writes it anew, and `make reproduced HOST={host} CHECK=1` only compares."
    ).format(host=host.name, when=when or "–")
    return Document(language, title, lead, sections)


def _glance(_, host: Host) -> list[Section]:
    """The targets, and how many rows reach them; nothing without a row that has a target."""
    said = [
        (_("OneFlow over PyTorch in the same run: {tally}."), tally(_, host.ratios())),
        (_("Efficiency of data parallelism: {tally}."), tally(_, host.efficiencies())),
        (_("Layouts beside the performance model: {tally}."), tally(_, host.layouts())),
    ]
    texts = tuple(Text(text.format(tally=found)) for text, found in said if found)
    return [Section("glance", _("Targets at a glance"), texts)] if texts else []


def _failures(_, host: Host, language: str) -> list[Section]:
    """Every attempt that failed, which no ratio counts; nothing if all succeeded."""
    cells = tuple(
        words(
            link(told, language), attempt["unit"], str(attempt["repeat"]), Failure.from_json(attempt["failure"]).text(_)
        )
        for told in host.runs
        for attempt in told.attempts
        if attempt["status"] == "failed"
    )
    if not cells:
        return []
    text = Text(_("A configuration that never succeeded is in no other table of this page."))
    table = Table("failures", columns(_("Run"), _("Configuration"), _("Repeat"), _("Reason")), cells)
    return [Section("failures", _("Failed attempts"), (text, table))]


def _reading(_, host: Host, language: str) -> list[Section]:
    """What a person wrote to it, in that language, with links to the runs that it names; nothing if nobody did."""
    written = host.reading.texts.get(language)
    if not written:
        return []

    def linked(name: re.Match) -> str:
        meant = [told for told in host.runs if told.run.id.startswith(name[1])]
        if len(meant) != 1:
            raise RecordError(
                f"{host.folder / READING}: the text in {language} names the run {name[1]}, with which "
                f"{len(meant)} kept runs begin; give as much of an id as only one has"
            )
        return link(meant[0], language)

    written = NAMED.sub(linked, written.strip())
    paragraphs = tuple(Text(" ".join(part.split())) for part in written.split("\n\n"))
    note = Text(_("This section was written by hand, after the figures above."))
    return [Section("reading", _("How it reads"), (note, *paragraphs))]


def _trials(_, host: Host, language: str) -> list[Section]:
    """The changes that were tried by hand; nothing if none are written down."""
    if not host.reading.trials:
        return []
    note = _(
        "This section was written by hand too. Each figure is of a single run of the trainer, of fewer iterations "
        "than published, that is not kept; both of a row are of like hosts, mostly of the same."
    )
    titles = columns(_("Case"), _("Change"), numeric=(_("GPUs"), _("Without it (samples/s)"), _("With it (samples/s)")))
    rows = tuple(
        (
            *words(trial.case, trial.told(language)),
            figure(trial.gpus, 0),
            figure(trial.without_it, 1),
            figure(trial.with_it, 1),
            Cell(_("yes")) if trial.stays else Cell(_("no")),
        )
        for trial in host.reading.trials
    )
    table = Table("trials", (*titles, *columns(_("In the trainers now"))), rows)
    return [Section("trials", _("What was tried by hand"), (Text(note), table))]


def figure_specs(host: Host) -> list[FigureSpec]:
    """Ratios to PyTorch and efficiencies as bars; none without rows for them."""
    found = []
    compared = host.ratios()
    if compared:
        found.append(
            _bars(
                "ratios",
                compared,
                lambda row: variant(row.base.unit),
                lambda _: (
                    _("OneFlow beside PyTorch"),
                    _("throughput of OneFlow over that of PyTorch in the same run"),
                    (_("equal"), 1.0),
                    _("Ratios of medians; beyond the line OneFlow is faster."),
                ),
            )
        )
    scaled = host.efficiencies()
    if scaled:
        found.append(
            _bars(
                "efficiency",
                scaled,
                _program,
                lambda _: (
                    _("Efficiency of data parallelism"),
                    _("share of the throughput that one GPU promises"),
                    (_("ideal"), 1.0),
                    _("Each against one GPU in the same run."),
                ),
            )
        )
    return found


def _program(row: Row) -> str:
    return variant(row.result.unit) if row.result.unit.baseline_of else "OneFlow"


def _bars(name: str, rows: list[Row], kind, texts) -> FigureSpec:
    """A bar for each row: beside each other those of one unit in one run, by `kind`."""
    kinds = tuple(dict.fromkeys(map(kind, rows)))[:BARS]
    values: dict[str, dict[str, float]] = {}
    for row in rows:
        unit = row.result.unit.baseline_of or row.result.unit.name
        values.setdefault(f"{unit} · {row.told.label}", {})[kind(row)] = row.ratio.value

    def chart(_):
        title, subtitle, limit, _caption = texts(_)
        bars = tuple(tuple(each.get(one) for one in kinds) for each in values.values())
        return BarChart(
            title,
            subtitle,
            tuple(values),
            (Panel("", bars),),
            kinds,
            limit=limit,
            decimals=3,
            emphasis=frozenset(range(len(values))),
        )

    return FigureSpec(name, chart, lambda _: texts(_)[3])


def render(name: str, reproduced: Path = REPRODUCED, data: Path = TARGETS) -> list[Path]:
    """Write a host's page and figures into its folder; the paths of the pages."""
    host = load(name, reproduced, data)
    figures = host.folder / "figures"
    shutil.rmtree(figures, ignore_errors=True)
    figures.mkdir()
    return _write(host, host.folder, figures)


def _write(host: Host, folder: Path, figures: Path) -> list[Path]:
    drawn = {each: write_figures(figure_specs(host), figures, each) for each in LANGUAGES}
    for language, file in INDEX.items():
        text = markdown(build(host, language, drawn[language]), folder)
        (folder / file).write_text(text, encoding="utf-8", newline="\n")
    return [folder / file for file in INDEX.values()]


def differing(name: str, reproduced: Path = REPRODUCED, data: Path = TARGETS) -> list[Path]:
    """The page's files of a host that are not what its runs give, those that are missing, and those too many."""
    with tempfile.TemporaryDirectory() as scratch:
        elsewhere = Path(scratch) / "reproduced"
        elsewhere.mkdir()
        (elsewhere / name).mkdir()
        for given in ("runs", READING):
            (elsewhere / name / given).symlink_to((reproduced / name / given).resolve())
        render(name, elsewhere, data)
        due = _pages(elsewhere / name)
    there = _pages(reproduced / name)
    return sorted(reproduced / name / path for path in due.keys() | there.keys() if due.get(path) != there.get(path))


def _pages(folder: Path) -> dict[str, bytes]:
    """The content of everything in a host's folder but its runs."""
    paths = [path for path in (*folder.glob("*"), *folder.glob("figures/*")) if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
