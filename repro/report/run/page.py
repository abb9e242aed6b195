"""Builds a run's report in Chinese and English from the run's own files."""

import time
from dataclasses import dataclass
from pathlib import Path

from repro.analysis import steady
from repro.analysis.process_info import program_starts
from repro.analysis.results import most_at_once, parities, result_frame, results_csv, results_of
from repro.analysis.verdict import NOT_HELD, Judgement, judge
from repro.report.document import Cell, Code, Column, Document, Items, Section, Table, Text, markdown
from repro.report.html import html
from repro.report.run.attachments import drawing_pays, illustrated
from repro.report.run.data import ReportData, RunFindings
from repro.report.run.environment import commit_text, environment_section, nodes_section
from repro.report.run.kinds import Kind, kind_of
from repro.report.run.network import network_section
from repro.report.run.programs import deviation_section, program_rows
from repro.report.tables import figure, words
from repro.runs.files import check_plain
from repro.runs.manifest import discard_derived
from repro.runs.plan import PUBLISHED, REDUCED, SMOKE
from repro.runs.record import RUNS, RecordError, Run, write_json, write_text
from repro.utils.i18n import LANGUAGES, N_, Counted, Translate, catalogue

SCALES = {
    SMOKE: N_("smoke: tiny shapes, published layouts shrunk to at most 4 processes, on the CPU"),
    REDUCED: N_("reduced: smaller models than the published ones, with shapes chosen for this kind of run"),
    PUBLISHED: N_("published: the published shapes, on this machine's GPUs"),
}

MIB = 2**20


@dataclass(frozen=True)
class Rendered:
    """The files written by a rendering, and the findings."""

    reports: tuple[Path, ...]
    results: Path
    kind: Kind
    judgement: Judgement
    findings: RunFindings

    @property
    def status(self) -> int:
        """Exit status of the report task with CHECK=1: the verdicts' where speed is judged, else 1 for a problem."""
        if self.kind.judges_speed:
            return self.judgement.status
        return NOT_HELD if self.findings.problems else 0

    def summary(self) -> str:
        """What `status` is for, in a few lines."""
        return self.judgement.summary() if self.kind.judges_speed else self.findings.summary()


def report_folder(run: Run, runs: Path = RUNS) -> Path:
    """Where a run's report is written: its own folder if that is in `runs`, else `runs/<id>`.

    A run that lies elsewhere, or in an archive, may come from others: nothing is written into it. RecordError if a run
    has that folder already, or links are in it.
    """
    if not run.archived and run.folder.absolute().parent.resolve() == runs.resolve():
        return run.folder
    if (runs / run.id / "run.json").exists():
        raise RecordError(
            f"{runs / run.id} is a run's own folder; RUNS=<another folder> is one for the report of {run.path}"
        )
    check_plain(runs / run.id)
    return runs / run.id


def render(
    run: Run, tolerance: float | None = None, figures: bool | None = None, folder: Path | None = None
) -> Rendered:
    """Write the report in both languages, `results.csv` and `verdicts.json` into a folder, by default the run's own.

    Without `figures`, they are drawn if the run took so long that the seconds for drawing do not count.
    """
    folder = folder or run.folder
    if folder == run.path:
        discard_derived(folder)
    folder.mkdir(parents=True, exist_ok=True)
    data = read(run, tolerance)
    write_json(folder / "verdicts.json", data.judgement.as_json())
    table = folder / "results.csv"
    write_text(table, results_csv(data.result_frame))
    written = []
    draw = drawing_pays(data.attempts) if figures is None else figures
    documents = {language: illustrated(build(data, language), data, run, folder, draw) for language in LANGUAGES}
    for language, document in documents.items():
        target = folder / f"report.{language}.md"
        write_text(target, markdown(document, folder))
        written.append(target)
    written.append(folder / "report.html")
    write_text(written[-1], html(documents, folder))
    return Rendered(tuple(written), table, kind=kind_of(data.plan), judgement=data.judgement, findings=data.findings)


def read(run: Run, tolerance: float | None = None) -> ReportData:
    """Everything that a run's report shows; a relative `tolerance` replaces those that the verdicts derive."""
    description, attempts = run.description(), steady.attempts(run)
    plan = description.plan
    frame = result_frame(plan, attempts)
    results = results_of(plan, frame)
    return ReportData(
        description=description,
        attempts=attempts,
        result_frame=frame,
        results=results,
        parities=parities(plan, attempts),
        judgement=judge(run, plan, attempts, results, tolerance),
        starts=program_starts(run.files, plan, attempts),
        findings=kind_of(plan).analyse(run, plan, attempts, results),
        unrecorded=tuple(run.unrecorded()),
    )


def build(data: ReportData, language: str) -> Document:
    """The report in one language."""
    _ = catalogue(language).gettext
    kind, description = kind_of(data.plan), data.description
    sections = (
        _outcome(_, data),
        *kind.sections(_, data),
        *_failures(_, data),
        *_cut(_, data),
        *nodes_section(_, data.plan, data.attempts),
        *network_section(_, data.plan, data.attempts),
        *_unrecorded(_, data),
        *([_skipped(_, data)] if data.plan.skipped else []),
        deviation_section(_, language, data.plan.units),
        environment_section(_, data.environment, data.starts, description.baseline),
        *kind.closing(_, data),
    )
    created = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(description.created))
    lead = _("Generated on {date} by `{command}`, from commit {commit}.").format(
        date=created, command=description.command, commit=commit_text(_, data.environment)
    )
    return Document(
        language,
        _("OneFlow benchmark reproduction: run {id}").format(id=description.id),
        lead,
        sections,
        links=False,
    )


def _outcome(_: Translate, data: ReportData) -> Section:
    plan, results = data.plan, data.results
    failed = sum(attempt.status == "failed" for attempt in data.attempts)
    what = _(
        "{units:configuration|configurations}, {repeats:repeat|repeats} each, covering {cases:published case|published cases}"
    ).format(
        units=Counted(len(plan.units)),
        repeats=Counted(plan.repeats),
        cases=Counted(len({case for unit in plan.units for case in unit.stands_for})),
    )
    scale = _(SCALES[plan.scale])
    derived = sum(bool(unit.derived_from) for unit in plan.units)
    baselines = sum(bool(unit.baseline_of) for unit in plan.units)
    if derived:
        scale += _("; {n:configuration is|configurations are} derived from published cases").format(n=Counted(derived))
    if baselines:
        scale += _("; {n:is a baseline|are baselines}").format(n=Counted(baselines))
    rows = [
        words(_("Planned"), what),
        *program_rows(_, data),
        words(_("Kind of run"), _(kind_of(plan).title)),
        words(_("Scale"), scale),
    ]
    if (together := most_at_once(data.attempts)) > 1:
        apart = all(attempt.nodes for attempt in data.attempts)
        said = (
            _("up to {n} attempts at once, each on nodes of its own and at most one with traffic between nodes")
            if apart
            else _("up to {n} attempts at once, so their speed is meaningless")
        )
        concurrent = said.format(n=Counted(together))
        rows.append(words(_("Concurrency"), concurrent))
    complete = sum(result.complete for result in results)
    rows.append((Cell(_("Succeeded in every repeat")), _share(complete, len(results))))
    for title, shown_parities in (
        (_("Layouts whose losses equal those of a single process"), [p for p in data.parities if not p.unit.follows]),
        (_("Tuned programs whose losses match the ports'"), [p for p in data.parities if p.unit.tuned_of]),
        (_("Baselines whose losses match OneFlow's"), [p for p in data.parities if p.unit.baseline_of]),
    ):
        if shown_parities:
            rows.append((Cell(title), _share(sum(parity.holds for parity in shown_parities), len(shown_parities))))
    rows.append((Cell(_("Failed attempts")), Cell(str(failed), tone="bad" if failed else "good")))
    if interrupted := sum(attempt.status == "interrupted" for attempt in data.attempts):
        rows.append((Cell(_("Interrupted attempts")), Cell(str(interrupted))))
    rows.append((Cell(_("Cases skipped")), Cell(str(len(plan.skipped)))))
    columns = (Column(_("Question")), Column(_("Answer")))
    return Section("outcome", _("Outcome"), (Table("outcome", columns, tuple(rows)),))


def _share(good: int, of: int) -> Cell:
    return Cell(f"{good} / {of}", tone="good" if good == of else "bad")


def _failures(_: Translate, data: ReportData) -> list[Section]:
    bad = [attempt for attempt in data.attempts if attempt.status != "ok"]
    if not bad:
        return []
    sections = [Section("failures", _("Failed and interrupted attempts"))]
    for number, attempt in enumerate(bad, 1):
        interrupted = attempt.status == "interrupted"
        reason = _("stopped by hand") if interrupted or attempt.failure is None else attempt.failure.text(_)
        text = _("{reason}. Its logs: `{folder}`").format(reason=reason, folder=attempt.folder)
        if damaged := attempt.damaged:
            more = _("{n:line of its metrics is|lines of its metrics are} damaged, the first is line {line} of {file}")
            text += "; " + more.format(n=Counted(len(damaged)), line=damaged[0].line, file=damaged[0].file)
        tail = (Code(attempt.log_tail),) if attempt.log_tail else ()
        title = _("{unit}, repeat {n}").format(unit=attempt.unit, n=attempt.repeat)
        sections.append(Section(f"failure-{number}", title, (Text(text), *tail), level=3))
    return sections


def _cut(_: Translate, data: ReportData) -> list[Section]:
    """The logs that are not kept whole; nothing if all are."""
    rows = tuple(
        (Cell(f"{attempt.folder}/{log.path}"), figure(log.printed / MIB, 1), figure(log.written / MIB, 1))
        for attempt in data.attempts
        for log in attempt.cut
    )
    if not rows:
        return []
    text = _(
        "These logs were cut: their beginning and their end are kept, and a line between them says how much is missing. "
        "An attempt fails if its figures would be read from such a file."
    )
    columns = (Column(_("Log")), Column(_("Printed (MiB)"), True), Column(_("Kept (MiB)"), True))
    return [Section("cut", _("Logs that were cut"), (Text(text), Table("cut", columns, rows)))]


def _unrecorded(_: Translate, data: ReportData) -> list[Section]:
    """Attempts that left files but no record; nothing if every attempt has a record."""
    if not data.unrecorded:
        return []
    text = _(
        "These attempts left files but have no line in `attempts.jsonl`: they are still running, were killed "
        "together with their run, or their lines were removed. No figure of this report includes them."
    )
    items = Items(tuple(f"`{folder}`" for folder in data.unrecorded))
    return [Section("unrecorded", _("Attempts without a record"), (Text(text), items))]


def _skipped(_: Translate, data: ReportData) -> Section:
    rows = tuple(words(skipped.case, skipped.reason.text(_)) for skipped in data.plan.skipped)
    return Section("left-out", _("Cases skipped"), (Table("left-out", (Column(_("Case")), Column(_("Reason"))), rows),))
