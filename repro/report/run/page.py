"""Builds a run's report in Chinese and English from the run's own files."""

import time
from dataclasses import dataclass
from pathlib import Path

from repro.analysis.process_info import program_starts
from repro.analysis.results import most_at_once, parities, result_frame, results_csv, results_of
from repro.analysis.verdict import Judgement, judge
from repro.planning.plan import BASELINE_PARITY_TOLERANCE, PARITY_ITERATIONS, PARITY_TOLERANCE, Plan
from repro.published.cases import Rule, load_catalogue
from repro.report.document import (
    Cell,
    Code,
    Column,
    Document,
    Section,
    Table,
    Text,
    figure,
    markdown,
    percent,
    scientific,
    words,
)
from repro.report.html import html
from repro.report.run.attachments import drawing_pays, illustrated
from repro.report.run.baselines import within_sections
from repro.report.run.environment import environment_section
from repro.report.run.expectation import expectation_sections
from repro.report.run.kinds import SCALES, Shown, correctness_section, shown
from repro.report.run.verdicts import verdict_sections
from repro.runs.failures import Failure
from repro.runs.manifest import discard_derived
from repro.runs.record import Run, write_json, write_text
from repro.utils.i18n import LANGUAGES, catalogue


@dataclass(frozen=True)
class Rendered:
    """The files that a rendering wrote."""

    reports: tuple[Path, ...]
    results: Path
    judgement: Judgement
    shown: Shown | None


@dataclass(frozen=True)
class ReportData:
    """What a report tells of, read once for both languages."""

    description: dict
    plan: Plan
    attempts: list[dict]
    results: list
    parities: list
    judgement: Judgement
    starts: dict
    shown: Shown | None


def render(run: Run, tolerance: float | None = None, figures: bool | None = None) -> Rendered:
    """Write the report in both languages, `results.csv` and `verdicts.json` into the run's folder.

    Figures are drawn if asked for, and unasked if the run took so long that their seconds do not count.
    """
    discard_derived(run.folder)
    description, attempts = run.description(), run.attempts()
    plan = Plan.from_json(description["plan"])
    frame = result_frame(plan, attempts)
    results = results_of(plan, frame)
    judgement = judge(run, plan, attempts, results, tolerance)
    starts = program_starts(run.folder, plan, attempts)
    story = ReportData(
        description, plan, attempts, results, parities(plan, attempts), judgement, starts, shown(run, plan, attempts)
    )
    write_json(run.folder / "verdicts.json", judgement.as_json())
    table = run.folder / "results.csv"
    write_text(table, results_csv(frame))
    written = []
    draw = drawing_pays(attempts) if figures is None else figures
    documents = {each: illustrated(build(story, each), story, run.folder, draw) for each in LANGUAGES}
    for language, document in documents.items():
        target = run.folder / f"report.{language}.md"
        write_text(target, markdown(document, run.folder))
        written.append(target)
    written.append(run.folder / "report.html")
    write_text(written[-1], html(documents, run.folder))
    return Rendered(tuple(written), table, judgement, story.shown)


def build(story: ReportData, language: str) -> Document:
    """The report in one language."""
    _ = catalogue(language).gettext
    environment = environment_section(_, story.description["environment"], story.starts)
    sections = (
        [
            _outcome(_, story),
            correctness_section(_, story.shown, story.description),
            *_failures(_, story),
            *([_skipped(_, story)] if story.plan.skipped else []),
            environment,
        ]
        if story.shown
        else [
            _outcome(_, story),
            *verdict_sections(_, story.judgement),
            *([_no_claim(_)] if story.plan.scale == "smoke" else _beside_published(_, story)),
            *within_sections(_, story.plan.scale, story.results),
            *expectation_sections(_, story.plan.scale, story.results, story.description["environment"]["gpus"]),
            _results(_, story),
            *([_parity(_, story)] if story.parities else []),
            *_failures(_, story),
            *([_skipped(_, story)] if story.plan.skipped else []),
            environment,
            _method(_, story),
        ]
    )
    description = story.description
    created = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(description["created"]))
    lead = _("Made on {date} by `{command}`, from commit {commit}.").format(
        date=created, command=description["command"], commit=_commit(_, description["environment"])
    )
    return Document(
        language, _("OneFlow benchmark reproduction: run {id}").format(id=description["id"]), lead, tuple(sections)
    )


def _commit(_, environment: dict) -> str:
    commit = (environment["git_commit"] or "?")[:12]
    changed = environment["git_changed_files"]
    return _("{commit} with {n} changed files").format(commit=commit, n=changed) if changed else commit


def _outcome(_, story: ReportData) -> Section:
    plan, results = story.plan, story.results
    failed = sum(attempt["status"] == "failed" for attempt in story.attempts)
    what = _("configurations: {units}; repeats of each: {repeats}; published cases they stand for: {cases}").format(
        units=len(plan.units), repeats=plan.repeats, cases=sum(len(unit.stands_for) for unit in plan.units)
    )
    scale = {
        "smoke": _("smoke: tiny shapes, the published layouts shrunk to at most 4 processes, on the CPU"),
        "published": _("published: the published shapes, on this machine's GPUs"),
        **{scale: _(text) for scale, text in SCALES.items()},
    }[plan.scale]
    derived = sum(bool(unit.derived_from) for unit in plan.units)
    baselines = sum(bool(unit.baseline_of) for unit in plan.units)
    if derived:
        scale += _("; {n} configurations are derived from published cases").format(n=derived)
    if baselines:
        scale += _("; {n} are PyTorch peers").format(n=baselines)
    rows = [
        words(_("What ran"), what),
        words(_("Scale"), scale),
        (Cell(_("Succeeded in every repeat")), _share(sum(r.complete for r in results), len(results))),
        (Cell(_("Failed attempts")), Cell(str(failed), tone="bad" if failed else "good")),
        (Cell(_("Cases left out")), Cell(str(len(plan.skipped)))),
    ]
    if (together := most_at_once(story.attempts)) > 1:
        beside = _("up to {n} attempts at once, so that their speeds say nothing").format(n=together)
        rows.insert(2, words(_("Side by side"), beside))
    for title, found in (
        (_("Peers that print OneFlow's losses"), [p for p in story.parities if p.unit.baseline_of]),
        (_("Layouts that print the losses of one process"), [p for p in story.parities if not p.unit.baseline_of]),
    ):
        if found:
            rows.insert(3, (Cell(title), _share(sum(p.holds for p in found), len(found))))
    return Section("outcome", _("Outcome"), (Table("outcome", _columns(_("Question"), _("Answer")), tuple(rows)),))


def _share(good: int, of: int) -> Cell:
    return Cell(f"{good} / {of}", tone="good" if good == of else "bad")


def _columns(*titles: str, numeric: tuple[str, ...] = ()) -> tuple[Column, ...]:
    return tuple(Column(title) for title in titles) + tuple(Column(title, numeric=True) for title in numeric)


def _no_claim(_) -> Section:
    return Section(
        "no-claim",
        _("Why this run makes no claim on speed"),
        (
            Text(
                _(
                    "A smoke run answers whether the whole path works on this machine: the pinned OneFlow starts, every layout "
                    "trains, the losses agree, the logs can be read by the published rules. Its models are thousands of times "
                    "smaller than the published ones and its devices are CPU processes, so its samples/s and speed-ups say nothing "
                    "about the published ones. They stand below only so that a reader can see that figures were measured and how "
                    "far they scatter; they are never compared with published figures, and no verdict is drawn from them."
                )
            ),
        ),
    )


def _beside_published(_, story: ReportData) -> list[Section]:
    if not any(result.unit.stands_for for result in story.results):
        return []
    published = {case.name: case.published for case in load_catalogue().cases}
    rows = []
    for result in (each for each in story.results if each.unit.stands_for):
        printed = published[result.unit.name]
        rows.append(
            (
                Cell(result.unit.name),
                figure(result.throughput, 2),
                figure(printed.throughput, 2),
                figure(result.speedup, 2),
                figure(printed.speedup, 2),
                figure(result.memory_mib, 0),
                figure(printed.memory_mib, 0),
            )
        )
    columns = _columns(
        _("Case"),
        numeric=(
            _("Measured (samples/s)"),
            _("Published (samples/s)"),
            _("Measured speed-up"),
            _("Published speed-up"),
            _("Measured memory (MiB)"),
            _("Published memory (MiB)"),
        ),
    )
    note = Text(
        _("On other hardware than the published V100s, what may be compared is the scaling, not the samples/s.")
    )
    return [Section("published", _("Beside the published figures"), (note, Table("published", columns, tuple(rows))))]


def _results(_, story: ReportData) -> Section:
    memory = _("the resident memory of rank 0's process")
    if story.plan.device != "cpu":
        memory = _("the GPU's memory in use")
    text = Text(
        _(
            "Throughput is read from rank 0's log by the rule of the report that the case comes from; it is the "
            "median over the repeats. CV is the standard deviation of the repeats over their mean. Memory is "
            "{kind}."
        ).format(kind=memory)
    )
    columns = _columns(
        _("Configuration"),
        numeric=(
            _("Ranks"),
            _("Global batch"),
            _("Repeats"),
            _("Throughput (samples/s)"),
            "CV",
            _("Latency (ms)"),
            _("Memory (MiB)"),
            _("Speed-up"),
            _("First row after (s)"),
        ),
    )
    rows = tuple(
        (
            Cell(r.unit.name),
            figure(r.unit.world_size, 0),
            figure(r.unit.global_batch, 0),
            Cell(f"{len(r.throughputs)}/{r.planned}", len(r.throughputs)),
            figure(r.throughput, 2),
            percent(r.cv),
            figure(r.latency_ms, 2),
            figure(r.memory_mib, 0),
            figure(r.speedup, 2),
            figure(r.first_row_s, 1),
        )
        for r in story.results
    )
    blocks = [text, Table("results", columns, rows)]
    if story.plan.scale == "smoke":
        stands = tuple(
            words(r.unit.name, ", ".join(r.unit.stands_for) or _("reference for parity only"))
            for r in story.results
            if not r.unit.baseline_of
        )
        blocks += [
            Text(_("Every published case runs as the configuration that it shrinks to:")),
            Table("stands-for", _columns(_("Configuration"), _("Stands for")), stands),
        ]
    return Section("results", _("Results"), tuple(blocks))


def _parity(_, story: ReportData) -> Section:
    text = Text(
        _(
            "Initial weights and data depend only on the seed, so every layout must print the losses of one process. "
            "Compared are the first {n} iterations in fp32 with dropout off; the largest relative difference may be "
            "{tolerance}. ResNet50's batch statistics belong to a shard, so its reference is one process that keeps the "
            "shards apart."
        ).format(n=PARITY_ITERATIONS, tolerance=f"{PARITY_TOLERANCE:.0e}")
    )
    baselines = Text(
        _(
            "A peer in PyTorch begins with the same weights and data; it is compared with OneFlow's losses, and may differ "
            "by {tolerance}: its kernels round differently."
        ).format(tolerance=f"{BASELINE_PARITY_TOLERANCE:.0e}")
    )
    columns = (
        *_columns(
            _("Configuration"),
            _("Reference"),
            numeric=(
                _("Loss at iteration {n}").format(n=PARITY_ITERATIONS),
                _("Reference's loss"),
                _("Largest relative difference"),
            ),
        ),
        Column(_("Holds")),
    )
    rows = tuple(
        (
            *words(p.unit.name, p.reference),
            figure(p.last_loss, 6),
            figure(p.last_reference_loss, 6),
            scientific(p.difference),
            Cell(_("yes"), tone="good") if p.holds else Cell(_("NO"), tone="bad"),
        )
        for p in story.parities
    )
    texts = (text, baselines) if any(p.unit.baseline_of for p in story.parities) else (text,)
    return Section("parity", _("Same losses in every layout"), (*texts, Table("parity", columns, rows)))


def _failures(_, story: ReportData) -> list[Section]:
    bad = [attempt for attempt in story.attempts if attempt["status"] != "ok"]
    if not bad:
        return []
    sections = [Section("failures", _("Failed attempts"))]
    for number, attempt in enumerate(bad, 1):
        interrupted = attempt["status"] == "interrupted"
        reason = _("stopped by hand") if interrupted else Failure.from_json(attempt["failure"]).text(_)
        said = _("{reason}. Its logs: `{folder}`").format(reason=reason, folder=attempt["folder"])
        tail = (Code(attempt["log_tail"]),) if attempt.get("log_tail") else ()
        title = _("{unit}, repeat {n}").format(unit=attempt["unit"], n=attempt["repeat"])
        sections.append(Section(f"failure-{number}", title, (Text(said), *tail), level=3))
    return sections


def _skipped(_, story: ReportData) -> Section:
    rows = tuple(words(s["case"], Failure.from_json(s).text(_)) for s in story.plan.skipped)
    return Section("left-out", _("Cases left out"), (Table("left-out", _columns(_("Case"), _("Reason")), rows),))


def _method(_, story: ReportData) -> Section:
    reports = {case.name: case.report for case in load_catalogue().cases}
    rules = {}
    for unit in story.plan.units:
        for name in (*unit.stands_for, *unit.derived_from):
            rules.setdefault(reports.get(name, name), Rule(**unit.rule))
    rows = tuple(words(report, rule_text(_, rule), rule.source) for report, rule in rules.items())
    text = Text(
        _(
            "Every attempt keeps its configuration, command, logs and metrics in its own folder under `units/`; "
            "`results.csv` holds the table of results, `attempts.jsonl` one line for each attempt."
        )
    )
    table = Table("method", _columns(_("Report"), _("Rule"), _("Source of the rule")), rows)
    return Section("method", _("How it was measured"), (table, text))


def rule_text(_, rule: Rule) -> str:
    """A measuring rule in words."""
    text = {
        "mean_rows": _("mean of the printed throughput of all rows after the first {skip_first}"),
        "stamps": _(
            "samples between the time stamps of printed rows {first_row} and {last_row}, over the time between"
        ),
        "last_rows": _("mean of the last {rows} printed rows, for throughput and latency"),
    }[rule.kind].format(**rule.parameters)
    if rule.repeats > 1:
        text += _("; median of {n} runs").format(n=rule.repeats)
    return text
