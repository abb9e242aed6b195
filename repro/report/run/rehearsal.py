"""The sections of a rehearsal: how each case ended, and what a rehearsal cannot see."""

from __future__ import annotations

from repro.analysis.rehearsal import Rehearsal, Rehearsed, rehearsed
from repro.perfmodel.hardware import describe
from repro.perfmodel.memory import stage_memories
from repro.perfmodel.predict import Expectation, default_calibration, expect
from repro.perfmodel.work import ModelJob
from repro.perfmodel.workload import stages
from repro.planning.plan import PARITY_ITERATIONS, PARITY_TOLERANCE
from repro.planning.rehearsal import KIND, SAMPLES_PER_RANK, changed_settings
from repro.planning.trainer_config import config_of
from repro.published.cases import Case, load_catalogue
from repro.published.census import operator_types
from repro.report.document import Block, Cell, Section, Table, Text
from repro.report.run.data import ReportData
from repro.report.run.kinds import Kind, register
from repro.report.tables import Field, columns, count, factor, holds, scientific, table, words
from repro.utils.i18n import N_, Translate

PUBLISHED_CLUSTER = "v100x32"


def rehearsal_sections(_: Translate, data: ReportData) -> list[Section]:
    """How each case ended; then what was not rehearsed, computed or listed."""
    rehearsal: Rehearsal = data.findings
    named = {case.name: case for case in load_catalogue().cases}
    cases = [named[name] for training in rehearsal.trainings for name in training.cases if name in named]
    return [
        Section("rehearsal", _("Every case at its full world size"), (*_texts(_), _trainings(_, rehearsal))),
        Section("not-rehearsed", _("Not rehearsed"), (*_not_rehearsed(_, data, named), _memory(_, cases))),
    ]


def _texts(_: Translate) -> tuple[Block, ...]:
    return (
        Text(
            _(
                "Each training has the published layout with all its ranks, the published accumulation, iterations, data "
                "path, log lines and measuring rule. Widths are tiny, and ranks are processes on the CPU, so speed and "
                "memory say nothing about GPUs. Cases that differ only in what is tiny here share a training."
            )
        ),
        Text(
            _(
                "Where every layout reads the same samples, the first {n} printed losses must be those of one process "
                "within {tolerance}. The records of ResNet50 and BERT are dealt to the ranks, so each layout reads others; "
                "their losses are not compared."
            ).format(n=PARITY_ITERATIONS, tolerance=f"{PARITY_TOLERANCE:.0e}")
        ),
    )


def _trainings(_: Translate, rehearsal: Rehearsal) -> Table:
    fields = (
        Field(_("Published cases"), lambda training: _cases(_, training)),
        Field(_("Program"), lambda training: training.unit.program),
        Field(_("Layout"), lambda training: str(training.unit.config.layout)),
        Field(_("Ranks"), lambda training: training.unit.world_size, count),
        Field(_("Ended"), lambda training: _ended(_, training)),
        Field(_("Seconds"), lambda training: training.seconds, count),
        Field(_("Memory of all ranks (MiB)"), lambda training: training.memory_mib, count),
        Field(
            _("Difference from one process"),
            lambda training: training.parity and training.parity.difference,
            scientific,
        ),
        Field(_("Agrees"), lambda training: holds(_, training.parity.holds) if training.parity else "–"),
    )
    return table("trainings", rehearsal.trainings, fields)


def _cases(_: Translate, training: Rehearsed) -> Cell:
    shrunk = _("shrunk") if training.unit.derived_from else ""
    return Cell(", ".join(training.cases) or training.unit.name, note=shrunk)


def _ended(_: Translate, training: Rehearsed) -> Cell:
    return Cell(training.failure.text(_), tone="bad") if training.failure else holds(_, True)


def _not_rehearsed(_: Translate, data: ReportData, named: dict[str, Case]) -> tuple[Block, ...]:
    """What is not seen: settings that were changed, and operators of the port that no rank ran."""
    rows = []
    for report, (case, ran) in _reports(data, named).items():
        changed = "; ".join(f"{name} {before} → {now}" for name, (before, now) in changed_settings(case).items())
        absent = sorted(operator_types(report, config_of(case, "cuda")) - ran)
        rows.append(words(report, changed, ", ".join(absent) or "–"))
    text = _(
        "A rehearsal sees no GPU: no CUDA kernel, no NCCL, no mixed precision, no memory of a GPU. The table has what "
        "else differs, by the first case of each report, and the operators of the port that run on CUDA "
        "only: other operators take their place on the CPU. Models that are only data parallel have at most {n} samples "
        "per rank."
    ).format(n=SAMPLES_PER_RANK)
    titles = columns(_("Report"), _("Setting: published → rehearsed"), _("Operators that no rank ran"))
    return Text(text), Table("changed", titles, tuple(rows), _("Changed for the rehearsal:"))


def _reports(data: ReportData, named: dict[str, Case]) -> dict[str, tuple[Case, set[str]]]:
    """By report, its first case of this run and the types of operators that its trainings had."""
    by_report: dict[str, tuple[Case, set[str]]] = {}
    ran = {attempt.unit: attempt.operators or {} for attempt in data.attempts if attempt.status == "ok"}
    for training in data.findings.trainings:
        for name in training.cases:
            if name in named:
                _case, operators = by_report.setdefault(named[name].report, (named[name], set()))
                operators |= set(ran.get(training.unit.name, ()))
    return by_report


def _memory(_: Translate, cases: list[Case]) -> Table:
    """The performance model's memory of each pipeline stage on the published GPUs."""
    cluster, constants = describe(PUBLISHED_CLUSTER), default_calibration().constants

    def per_stage(case: Case) -> str:
        job = ModelJob.of(case)
        memories = stage_memories(job, stages(job), constants)
        return ", ".join(f"{memory.total_mib:.0f}" for memory in memories)

    def fits(row: tuple[Case, Expectation]) -> Cell:
        _case, expected = row
        surely = expected.memory_mib * (1 + expected.memory_uncertainty) <= cluster.gpu.memory_mib
        return Cell(_("tight"), tone="bad") if expected.fits and not surely else holds(_, surely)

    fields = (
        Field(_("Case"), lambda row: row[0].name),
        Field(_("MiB per stage (modelled)"), lambda row: per_stage(row[0])),
        Field(_("Memory of a V100 (MiB)"), lambda row: cluster.gpu.memory_mib, count),
        Field(_("Uncertainty"), lambda row: row[1].memory_uncertainty, factor),
        Field(_("Fits"), fits),
    )
    rows = [(case, expect(case, cluster)) for case in cases]
    return table("memory", rows, fields, _("GPU memory, MODELLED for the published cluster:"))


register(
    Kind(
        KIND,
        N_("rehearsal: published layouts at full world size and length, tiny widths, on processors"),
        analyse=lambda run, plan, attempts, results: rehearsed(plan, attempts, run.files),
        sections=rehearsal_sections,
        figures=lambda data, files: [],
        figures_after="rehearsal",
        side_by_side=True,
    )
)
