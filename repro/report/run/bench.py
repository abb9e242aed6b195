"""The sections of a bench's report: verdicts, figures compared with the published ones, results, parity, and the rule."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repro.analysis.bench import examine
from repro.planning.plan import BASELINE_PARITY_TOLERANCE, PARITY_ITERATIONS, PARITY_TOLERANCE
from repro.published.rules import Rule
from repro.report.document import Block, Cell, Section, Table, Text
from repro.report.run.baselines import within_sections
from repro.report.run.data import ReportData
from repro.report.run.expectation import expectation_sections
from repro.report.run.inputs import input_sections
from repro.report.run.kinds import Kind, register
from repro.report.run.programs import PROGRAMS
from repro.report.run.verdicts import verdict_sections
from repro.report.tables import Field, columns, count, decimals, holds, percents, scientific, table, words
from repro.runs.files import RunPath
from repro.runs.plan import BENCH, SMOKE
from repro.runs.unit import Unit
from repro.utils.i18n import N_, Translate

if TYPE_CHECKING:
    from repro.report.charts.figure import FigureSpec


def bench_sections(_: Translate, data: ReportData) -> list[Section]:
    """The measurements, compared with published and modelled figures."""
    scale, results = data.plan.scale, data.results
    return [
        *verdict_sections(_, data.judgement),
        *([_no_claim(_)] if scale == SMOKE else _beside_published(_, data)),
        *within_sections(_, scale, results),
        *expectation_sections(_, scale, results, data.environment.gpus, len(data.environment.hosts)),
        *input_sections(_, data),
        _results(_, data),
        *([_parity(_, data)] if data.parities else []),
    ]


def _no_claim(_: Translate) -> Section:
    return Section(
        "no-claim",
        _("Why this run says nothing about speed"),
        (
            Text(
                _(
                    "A smoke run only checks that everything works on this machine: the pinned OneFlow starts, every "
                    "layout trains, the losses agree, and the logs can be read by the published rules. Its models "
                    "are thousands of times smaller than the published ones and run on CPU processes, so its "
                    "samples/s and speed-ups say nothing about the published figures. They are shown only as "
                    "evidence that something was measured and how much it varies; they are not compared with "
                    "published figures, and no verdict is based on them."
                )
            ),
        ),
    )


def _beside_published(_: Translate, data: ReportData) -> list[Section]:
    pairs = [(result, case.published) for result in data.results if (case := result.unit.published_case)]
    if not pairs:
        return []
    fields = (
        Field(_("Case"), lambda pair: pair[0].unit.name),
        Field(_("Training program"), lambda pair: _(PROGRAMS[pair[0].unit.program])),
        Field(_("Measured (samples/s)"), lambda pair: pair[0].throughput, decimals(2)),
        Field(_("Published (samples/s)"), lambda pair: pair[1].throughput, decimals(2)),
        Field(_("Measured speed-up"), lambda pair: pair[0].speedup, decimals(2)),
        Field(_("Published speed-up"), lambda pair: pair[1].speedup, decimals(2)),
        Field(_("Measured memory (MiB)"), lambda pair: pair[0].memory_mib, count),
        Field(_("Published memory (MiB)"), lambda pair: pair[1].memory_mib, count),
    )
    note = Text(_("On hardware other than the published V100s, compare scaling, not samples/s."))
    return [Section("published", _("Compared with the published figures"), (note, table("published", pairs, fields)))]


def _results(_: Translate, data: ReportData) -> Section:
    method = _(
        "Throughput is read from rank 0's log by the rule of the case's report and is the median over the repeats. CV "
        "is the standard deviation of the repeats divided by their mean. The steady state is the median of all windows "
        "between printed rows except the first two; no verdict is based on it."
    )
    heading, memory = _("GPU memory (MiB)"), _(" “GPU memory” is what the driver counts as in use.")
    if data.plan.device == "cpu":
        heading, memory = _("Memory (MiB)"), _(" “Memory” is the resident memory of rank 0's process.")
    fields = (
        Field(_("Configuration"), lambda r: r.unit.name),
        Field(_("Ranks"), lambda r: r.unit.world_size, count),
        Field(_("Global batch size"), lambda r: r.unit.global_batch, count),
        Field(_("Repeats"), lambda r: Cell(f"{len(r.throughputs)}/{r.planned}", len(r.throughputs)), numeric=True),
        Field(_("Throughput (samples/s)"), lambda r: r.throughput, decimals(2)),
        Field("CV", lambda r: r.cv, percents(2)),
        Field(_("Steady state (samples/s)"), lambda r: r.steady, decimals(2)),
        Field(_("Latency (ms)"), lambda r: r.latency_ms, decimals(2)),
        Field(heading, lambda r: r.memory_mib, count),
        Field(_("Speed-up"), lambda r: r.speedup, decimals(2)),
        Field(_("Time to first log row (s)"), lambda r: r.first_row_s, decimals(1)),
    )
    blocks: list[Block] = [Text(method + memory), table("results", data.results, fields, _("Results"))]
    if data.plan.scale == SMOKE:
        alone = [r for r in data.results if not r.unit.follows]
        cases = (
            Field(_("Configuration"), lambda r: r.unit.name),
            Field(_("Published cases"), lambda r: ", ".join(r.unit.stands_for) or _stands_for_nothing(_, r.unit)),
        )
        blocks += [
            Text(_("Each published case runs as the configuration it shrinks to:")),
            table("stands-for", alone, cases, _("Published cases")),
        ]
    return Section("results", _("Results"), tuple(blocks))


def _stands_for_nothing(_: Translate, unit: Unit) -> str:
    return _("the port's reader, not compared with anything") if unit.reads_files else _("reference for parity only")


def _parity(_: Translate, data: ReportData) -> Section:
    text = Text(
        _(
            "Initial weights and data depend only on the seed, so every layout must print the same losses as a "
            "single process. The first {n} iterations are compared in fp32 with dropout off; the largest relative "
            "difference allowed is {tolerance}. ResNet50 computes its batch statistics per shard, so its reference "
            "is a single process that keeps the shards separate."
        ).format(n=PARITY_ITERATIONS, tolerance=f"{PARITY_TOLERANCE:.0e}")
    )
    baselines = Text(
        _(
            "Baselines start from the same weights and data. Their losses are compared with OneFlow's and "
            "may differ by {tolerance}, since their kernels round differently."
        ).format(tolerance=f"{BASELINE_PARITY_TOLERANCE:.0e}")
    )
    fields = (
        Field(_("Configuration"), lambda p: p.unit.name),
        Field(_("Reference"), lambda p: p.reference),
        Field(_("Loss at iteration {n}").format(n=PARITY_ITERATIONS), lambda p: p.last_loss, decimals(6)),
        Field(_("Reference loss"), lambda p: p.last_reference_loss, decimals(6)),
        Field(_("Largest relative difference"), lambda p: p.difference, scientific),
        Field(_("Agrees"), lambda p: holds(_, p.holds)),
    )
    tuned = Text(_("The tuned program must print the same losses as the port in the same layout."))
    texts = [text]
    texts += [tuned] if any(p.unit.tuned_of for p in data.parities) else []
    texts += [baselines] if any(p.unit.baseline_of for p in data.parities) else []
    return Section("parity", _("Same losses in every layout"), (*texts, table("parity", data.parities, fields)))


def method_section(_: Translate, data: ReportData) -> Section:
    """Which rule each report's cases were measured by, and where the rule is from."""
    rules: dict[str, Rule] = {}
    for unit in data.plan.units:
        if unit.stands_for or unit.derived_from:
            rules.setdefault(unit.report, unit.rule)
    rows = tuple(words(report, rule_text(_, rule), _(rule.source)) for report, rule in rules.items())
    text = Text(
        _(
            "Each attempt has its own folder under `units/` with its configuration, command, logs and metrics. "
            "`results.csv` is the table of results, `attempts.jsonl` has one line per attempt."
        )
    )
    rules_table = Table("method", columns(_("Report"), _("Rule"), _("Source of the rule")), rows)
    return Section("method", _("How it was measured"), (rules_table, text))


def rule_text(_: Translate, rule: Rule) -> str:
    """A measuring rule in words."""
    text = _(rule.words).format(**rule.parameters)
    if rule.repeats > 1:
        text += _("; median of {n} runs").format(n=rule.repeats)
    return text


def _figures(data: ReportData, files: RunPath) -> list[FigureSpec]:
    from repro.report.run.figures import bench_figures  # a short run is not drawn, see repro.report.run.attachments

    return bench_figures(data, files)


register(
    Kind(
        BENCH,
        N_("bench: cases measured by the rules of their reports"),
        analyse=lambda run, plan, attempts, results: examine(plan, attempts, results),
        sections=bench_sections,
        figures=_figures,
        figures_after="results",
        closing=lambda _, data: [method_section(_, data)],
        judges_speed=True,
    )
)
