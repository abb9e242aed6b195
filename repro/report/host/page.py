"""Writes the page of a host in both languages, and finds what is no longer as the kept runs give it."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from repro.report.charts.figure import FigureSpec, write_figures
from repro.report.charts.rows import BarChart, Panel
from repro.report.document import Cell, Document, Figure, Section, Table, Text, figure, markdown, words
from repro.report.host.correctness import shown, shown_figures
from repro.report.host.machine import day, gpus, machine, memory, preflight, runs
from repro.report.host.measured import columns, gains, layouts, link, ratios, row_interval, scaling, tally, transfers
from repro.report.host.notes import NOTES, PLACEHOLDER
from repro.report.host.results import Host, results_table
from repro.report.host.rows import Row
from repro.report.host.windows import windows
from repro.report.run.programs import deviation_section
from repro.runs.digests import NAME, lost_commits
from repro.runs.failures import Failure
from repro.runs.files import RecordError
from repro.runs.program_versions import NAME as VERSIONS
from repro.utils.i18n import LANGUAGES, Translate, catalogue

FIGURES, RESULTS = "figures", "results.csv"
INDEX = {"en": "README.md", "zh": "README.zh.md"}
BARS = 4
Named = TypeVar("Named")


def build(host: Host, language: str, drawn: list[Figure]) -> Document:
    """A host's page in one language, with the figures that were drawn for it; what was not run has no section."""
    _ = catalogue(language).gettext
    sections = (
        *_glance(_, host),
        *_counting(_, host),
        *_failures(_, host),
        *gains(_, host),
        *ratios(_, host, drawn),
        *scaling(_, host, drawn),
        *layouts(_, host),
        *windows(_, host),
        *shown(_, host, drawn),
        *memory(_, host),
        *transfers(_, host),
        *_notes(_, host, language),
        *_experiments(_, host, language),
        *_deviations(_, host, language),
        *machine(_, host),
        *preflight(_, host),
        *_evidence(_, host),
        *runs(_, host),
    )
    title = _("Reproduced on {gpus}").format(
        gpus=_(", ").join(dict.fromkeys(filter(None, map(gpus, host.runs)))) or host.name
    )
    days = sorted({day(kept) for kept in host.runs})
    when = _("{first} to {last}").format(first=days[0], last=days[-1]) if len(days) > 1 else "".join(days)
    lead = _(
        "What this project itself measured on {host}, {when}. Unless a section says that it was written by hand, "
        "every number and every sentence about numbers on this page is computed from the files under `runs/`; "
        "`make host-reports HOST={host}` writes it again, and `make host-reports HOST={host} CHECK=1` only compares."
    ).format(host=host.name, when=when or "–")
    return Document(language, title, lead, sections)


def _glance(_: Translate, host: Host) -> list[Section]:
    """The targets, and how many rows reach them; nothing without a row that has a target."""
    lines = [
        (_("OneFlow over PyTorch in the same run: {tally}."), tally(_, host.ratios)),
        (_("Efficiency of data parallelism: {tally}."), tally(_, host.efficiencies)),
        (_("Layouts beside the performance model: {tally}."), tally(_, host.layouts)),
    ]
    texts = tuple(Text(text.format(tally=found)) for text, found in lines if found)
    return [Section("glance", _("Targets at a glance"), texts)] if texts else []


def _counting(_: Translate, host: Host) -> list[Section]:
    """How runs become rows; nothing without a row."""
    every = [*host.gains, *host.ratios, *host.efficiencies, *host.layouts]
    if not every:
        return []
    several, superseded = sum(len(row.runs) > 1 for row in every), sum(bool(row.superseded) for row in every)
    text = _(
        "The tables of ratios, scaling and layouts have one row for each distinct configuration, training program and "
        "baseline, whatever the case was called for which a run had it. Its figure is the geometric mean over runs, "
        "each with the median of its repeats; memory and latency are the median over runs. Its interval follows from "
        "how far the runs lie apart (Student's t on logarithms, each run with equal weight, 95%), which holds the "
        "variance of hosts and days along with that of repeats. With a single run there is only the interval within "
        'that run, which decides nothing about other hosts: its target has the status "one run".'
    )
    rule = _(
        "Of the runs that have a configuration, those count whose code of the programs is the newest run's; the others "
        "are listed as superseded. Here {several} of {rows} rows are over several runs, and {superseded} leave superseded "
        "runs out. A run keeps its label: it is its place in [{list}](../{list}), to which lines are only ever added."
    ).format(list=NAME, several=several, rows=len(every), superseded=superseded)
    older = _(
        "Code is told apart by the digest that a run recorded. Runs from before digests were recorded are looked up in "
        "[{file}](../{file}), which has what git calls the folders of the programs at their commits."
    ).format(file=VERSIONS)
    texts = [text, rule, *([older] if (host.folder.parent / VERSIONS).is_file() else [])]
    return [Section("counting", _("How runs count"), tuple(map(Text, texts)))]


def _failures(_: Translate, host: Host) -> list[Section]:
    """Every attempt that failed, which no ratio counts; nothing if all succeeded."""
    cells = tuple(
        words(link(kept), attempt["unit"], str(attempt["repeat"]), Failure.from_json(attempt["failure"]).text(_))
        for kept in host.runs
        for attempt in kept.attempts
        if attempt["status"] == "failed"
    )
    if not cells:
        return []
    text = Text(_("A configuration that never succeeded is in no other table of this page."))
    table = Table("failures", columns(_("Run"), _("Configuration"), _("Repeat"), _("Reason")), cells)
    return [Section("failures", _("Failed attempts"), (text, table))]


def _notes(_: Translate, host: Host, language: str) -> list[Section]:
    """The hand-written text in that language, with links to the runs that it names; nothing if there is none."""
    written = host.notes.texts.get(language)
    if not written:
        return []

    def given(found: re.Match) -> str:
        if found["run"]:
            return link(_one(host, language, found[0], [k for k in host.runs if k.run.id.startswith(found["run"])]))
        rows = host.ratios if found["of"] == "ratio" else host.efficiencies
        named = [row for row in rows if found["unit"] in {each.unit.name for each in row.results}]
        row = _one(
            host,
            language,
            found[0],
            [each for each in named if found["of"] != "ratio" or each.base.label == found["base"]],
        )
        return f"{row.ratio.value:.3f} [{row_interval(_, row).text}]" if row.ratio else "–"

    written = PLACEHOLDER.sub(given, written.strip())
    paragraphs = tuple(Text(" ".join(part.split())) for part in written.split("\n\n"))
    note = Text(
        _(
            "This section was written by hand; its figures are of the rows above, put in as the page is written. Text that "
            "has a figure of its own, counts cases or compares is refused."
        )
    )
    return [Section("notes", _("How it reads"), (note, *paragraphs))]


def _one(host: Host, language: str, placeholder: str, meant: list[Named]) -> Named:
    """The only one that a placeholder of the notes means; RecordError if it means none or several."""
    if len(meant) != 1:
        raise RecordError(
            f"{host.folder / NOTES}: the text in {language} has {placeholder}, which {len(meant)} kept runs or rows are "
            "called; give as much of a run's id as only one has, or a row's configuration and baseline"
        )
    return meant[0]


def _evidence(_: Translate, host: Host) -> list[Section]:
    """What was held against the runs before this page was written; nothing without runs."""
    if not host.runs:
        return []
    text = _(
        "Whenever this page is written, throughput, latency, memory and losses of all {n} successful attempts are "
        "computed again from the logs and metrics in the archives; if one differed from what the run recorded, there "
        "would be no page. [{list}](../{list}) has the SHA-256 of every archive since it was kept. "
        "`make verify HOST={host}` repeats this and looks up every run's commit in the history."
    ).format(n=sum(len(result.throughputs) for kept in host.runs for result in kept.results), list=NAME, host=host.name)
    listed = lost_commits(host.folder.parent / NAME)
    made_from: dict[str, list[str]] = {}
    for kept in host.runs:
        made_from.setdefault(kept.description["environment"]["git_commit"], []).append(link(kept))
    lost = [
        _("The history does not hold commit {commit}: nobody can look up the code of {runs}.").format(
            commit=commit[:12], runs=_(", ").join(links)
        )
        for commit, links in made_from.items()
        if commit in listed
    ]
    return [Section("evidence", _("What holds these figures"), tuple(map(Text, (text, *lost))))]


def _experiments(_: Translate, host: Host, language: str) -> list[Section]:
    """The experiments made by hand; nothing if none are written down."""
    if not host.notes.experiments:
        return []
    note = _(
        "This section was written by hand too. Each figure is of a single run of the trainer, of fewer iterations "
        "than published, that is not kept; both of a row are of like hosts, mostly of the same."
    )
    titles = columns(_("Case"), _("Change"), numeric=(_("GPUs"), _("Without it (samples/s)"), _("With it (samples/s)")))
    rows = tuple(
        (
            *words(each.case, each.described(language)),
            figure(each.gpus, 0),
            figure(each.without_it, 1),
            figure(each.with_it, 1),
            Cell(_("yes")) if each.stays else Cell(_("no")),
        )
        for each in host.notes.experiments
    )
    table = Table("experiments", (*titles, *columns(_("In the trainers now"))), rows)
    return [Section("experiments", _("What was tried by hand"), (Text(note), table))]


def _deviations(_: Translate, host: Host, language: str) -> list[Section]:
    """What the programs of all runs cannot keep of the published ones; nothing without a run."""
    units = [unit for kept in host.runs for unit in kept.plan.units]
    return [deviation_section(_, language, units)] if units else []


def figure_specs(host: Host) -> list[FigureSpec]:
    """Ratios to PyTorch and efficiencies as bars, and what runs of other kinds show; none without rows for them."""
    found = []
    compared = host.ratios
    if compared:
        found.append(
            _bars(
                "ratios",
                compared,
                lambda row: row.base.label,
                lambda _: (
                    _("OneFlow and PyTorch"),
                    _("OneFlow throughput / PyTorch throughput in the same run"),
                    (_("equal"), 1.0),
                    _("Ratios of medians; above the line OneFlow is faster."),
                ),
            )
        )
    scaled = host.efficiencies
    if scaled:
        found.append(
            _bars(
                "efficiency",
                scaled,
                lambda row: row.unit.label,
                lambda _: (
                    _("Efficiency of data parallelism"),
                    _("throughput relative to one GPU times the number of GPUs"),
                    (_("ideal"), 1.0),
                    _("Each against one GPU in the same run."),
                ),
            )
        )
    return [*found, *shown_figures(host)]


def _bars(name: str, rows: list[Row], kind: Callable[[Row], str], texts: Callable[[Translate], tuple]) -> FigureSpec:
    """A bar for each row, grouped by unit and runs; `kind` names the bar within its group."""
    kinds = tuple(dict.fromkeys(map(kind, rows)))[:BARS]
    values: dict[str, dict[str, float]] = {}
    for row in rows:
        if row.ratio:
            group = f"{row.unit.follows or row.unit.name} · {', '.join(kept.label for kept in row.runs)}"
            values.setdefault(group, {})[kind(row)] = row.ratio.value

    def chart(_: Translate) -> BarChart:
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


def render(host: Host) -> list[Path]:
    """Write a host's page, its figures and its table of results into its folder; the paths of pages and table."""
    shutil.rmtree(host.folder / FIGURES, ignore_errors=True)
    return _write(host, host.folder)


def _write(host: Host, folder: Path) -> list[Path]:
    (folder / FIGURES).mkdir()
    specs = figure_specs(host)
    drawn = {each: write_figures(specs, folder / FIGURES, each) for each in LANGUAGES}
    texts = {file: markdown(build(host, language, drawn[language]), folder) for language, file in INDEX.items()}
    texts[RESULTS] = results_table(host)
    for file, text in texts.items():
        (folder / file).write_text(text, encoding="utf-8", newline="\n")
    return [folder / file for file in texts]


def differing(host: Host) -> list[Path]:
    """The page's files of a host that are not what its runs give, those that are missing, and those too many."""
    with tempfile.TemporaryDirectory() as scratch:
        _write(host, Path(scratch))
        expected = _pages(Path(scratch))
    there = _pages(host.folder)
    there.pop(NOTES, None)
    both = expected.keys() | there.keys()
    return sorted(host.folder / path for path in both if expected.get(path) != there.get(path))


def _pages(folder: Path) -> dict[str, bytes]:
    """The content of everything in a host's folder but its runs."""
    paths = [path for path in (*folder.glob("*"), *folder.glob(f"{FIGURES}/*")) if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
