"""The sections of a host's page on speed and memory, with a row for each configuration, and every comparison at the end."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from repro.analysis.cross_hardware import TOLERANCES, HardwareComparison, published_scaling
from repro.analysis.relations import layout_text
from repro.models.programs import KINDS, PUBLISHED, TUNED
from repro.models.variants import MEGATRON
from repro.published.cases import Case
from repro.published.claim_ids import MEMORY, SPEEDUP, THROUGHPUT, claim_id
from repro.report import numbers, tables
from repro.report.charts.figure import gpus_text as gpus_count
from repro.report.document import Block, Cell, Figure, Section, Table
from repro.report.host import cells
from repro.report.host.cells import SHORT_PROGRAMS, Written, figures_of, least_to_most
from repro.report.host.configurations import (
    Configuration,
    baselines,
    configuration_name,
    configurations,
)
from repro.report.host.coverage import same_configuration
from repro.report.host.results import MeasuredHost
from repro.report.host.rows import HostRow
from repro.report.method import link
from repro.report.names import subject
from repro.report.run.programs import PROGRAMS
from repro.report.run.verdicts import COMPARED
from repro.report.tables import Field, count, share
from repro.runs.unit import Unit
from repro.utils.grouping import by_key
from repro.utils.i18n import Translate
from repro.utils.stats import relative_difference


def speed(_: Translate, host: MeasuredHost) -> list[Section]:
    """OneFlow compared with PyTorch, and the tuned program with the port: a row for each configuration."""
    rows = over_pytorch(host)
    if not rows:
        return []
    pairs = [
        (program, baseline)
        for baseline in baselines(rows)
        for program in KINDS
        if any(row.unit.program == program and row.base.label == baseline for row in rows)
    ]
    gains = {configuration_name(row): row for row in current(host.gains)}
    fields = [
        Field(_("Configuration"), lambda configuration: cells.titled(_, configuration)),
        *(
            Field(
                _("{program} / {baseline}").format(program=_(SHORT_PROGRAMS[program]), baseline=baseline),
                partial(_compared, _, program=program, baseline=baseline),
                numeric=True,
                minor=baseline != pairs[0][1],
            )
            for program, baseline in pairs
        ),
    ]
    if gains:
        title = _("{program} / {baseline}").format(
            program=_(SHORT_PROGRAMS[TUNED]), baseline=_(SHORT_PROGRAMS[PUBLISHED])
        )
        fields.append(
            Field(
                title,
                lambda configuration: cells.with_interval(_, gains.get(configuration.name)),
                numeric=True,
                minor=True,
            )
        )
    caption = _(
        "Throughput over that of the baseline in the same run, in parentheses the 95% interval over sessions and their "
        "number n; {baselines}, {steady}."
    ).format(
        baselines=link(_, "programs", _("what the baselines are")),
        steady=link(_, "throughput", _("what “steady” marks")),
    )
    compared = tables.table("speed", configurations(rows), fields, caption)
    return [Section("speed", _("How fast compared with PyTorch?"), (compared,))]


def current(rows: Iterable[HostRow]) -> list[HostRow]:
    """The rows that were measured with the newest code of their program."""
    return [row for row in rows if row.current]


def over_pytorch(host: MeasuredHost) -> list[HostRow]:
    """The rows of OneFlow over PyTorch with the newest code; those over Megatron-Core are by layout, on their own."""
    return [row for row in current(host.ratios) if row.base.label not in MEGATRON]


def comparable(rows: Iterable[HostRow]) -> list[HostRow]:
    """The rows of OneFlow with the newest code, alone on its host, in the precision of the case that it is or is derived from."""
    return [row for row in current(rows) if row.unit.case_in_precision and not row.shared]


def ratio_span(rows: Iterable[HostRow], written: Written) -> str:
    """The lowest and the highest ratio of rows, as `written` gives them."""
    return numbers.span(map(written, sorted(row.ratio.value for row in rows if row.ratio)))


def span_by_rule(rows: Sequence[HostRow], written: Written) -> str:
    """The same by the report's rule, where one of the rows shows the steady state instead; "" where none does."""
    if not any(row.in_steady_state for row in rows):
        return ""
    return numbers.span(map(written, sorted(row.by_rule for row in rows if row.ratio)))


def _compared(_: Translate, configuration: Configuration, program: str, baseline: str) -> Cell:
    return cells.with_interval(_, configuration.of(program, baseline))


def comparisons(_: Translate, host: MeasuredHost) -> list[Section]:
    """Every comparison with its throughputs and runs, also those of older code; nothing without one."""
    kinds = (
        (host.ratios, numbers.ratio),
        (host.gains, numbers.ratio),
        (host.efficiencies, numbers.percentage),
    )
    rows = [(row, written) for every, written in kinds for row in every]
    if not rows:
        return []
    fields = (
        Field(_("Configuration"), lambda pair: _named(_, pair[0])),
        Field(_("Compared with"), lambda pair: _base(_, pair[0])),
        Field("samples/s", lambda pair: pair[0].throughput, tables.measured, minor=True),
        Field(_("Compared with (samples/s)"), lambda pair: pair[0].base_throughput, tables.measured, minor=True),
        Field(_("Ratio or efficiency"), lambda pair: cells.with_interval(_, *pair), numeric=True),
        Field(_("Goal"), lambda pair: cells.goal(_, pair[0]), minor=True),
    )
    caption = _(
        "All comparisons with their throughputs, also those that were measured only with older code of their program."
    )
    table = tables.table("comparisons", rows, fields, caption)
    blocks = (
        table,
        _runs_of_comparisons(_, [*(row for row, _written in rows), *host.megatrons, *host.layouts, *host.peaks]),
    )
    return [Section("comparisons", _("Every comparison, with its runs"), blocks, folded=True)]


def _runs_of_comparisons(_: Translate, rows: list[HostRow]) -> Table:
    """Which runs the comparisons of each configuration count, said once where they count the same."""

    def compared(configuration: Configuration, group: list[HostRow]) -> str:
        if len(group) == len(configuration.rows):
            return _("all of them")
        return _(", ").join(dict.fromkeys(_over(_, row) for row in group))

    groups = [
        (configuration.name, compared(configuration, group), runs)
        for configuration in configurations(rows)
        for runs, group in by_key(configuration.rows, lambda row: cells.runs_of(_, row)).items()
    ]
    fields = (
        Field(_("Configuration"), lambda group: group[0]),
        Field(_("What is compared"), lambda group: group[1]),
        Field(_("Runs"), lambda group: group[2], minor=True),
    )
    caption = _("The runs that count for them, which are named by their start (UTC).")
    return tables.table("comparisons-runs", groups, fields, caption)


def _over(_: Translate, row: HostRow) -> str:
    """What a row compares, without its configuration; of a row over nothing, and over no baseline, what trains alone."""
    if not row.bases:
        return _short(_, row.unit)
    return _("{program} / {baseline}").format(program=_short(_, row.unit), baseline=_base(_, row))


def _base(_: Translate, row: HostRow) -> str:
    """What a row is over: the same on another number of GPUs, or another program."""
    other = row.base.world_size != row.unit.world_size
    return gpus_count(_, row.base.world_size) if other else _short(_, row.base)


def _short(_: Translate, unit: Unit) -> str:
    """A baseline, or a program of OneFlow's."""
    return unit.label if unit.baseline_of else _(SHORT_PROGRAMS[unit.program])


def _named(_: Translate, row: HostRow) -> str:
    """A configuration with what trains it."""
    return _("{name} ({program})").format(name=configuration_name(row), program=_short(_, row.unit))


def _folded(identity: str, title: str, *blocks: Block) -> Section:
    return Section(identity, title, blocks, level=3, folded=True)


def scaling(_: Translate, host: MeasuredHost, drawn: list[Figure]) -> list[Section]:
    """Data parallelism relative to one GPU in the same run, and the published efficiency: a row for each configuration."""
    rows = host.efficiencies
    ours = [row for row in current(rows) if not row.unit.baseline_of]
    if not ours:
        return []
    by_name: dict[str, dict[str, HostRow]] = {}
    for row in rows:
        if row.unit.baseline_of:
            by_name.setdefault(configuration_name(row), {})[row.unit.label] = row
    shown = configurations(ours)
    beside = list(dict.fromkeys(label for one in shown for label in by_name.get(one.name, {})))
    programs = [program for program in KINDS if any(row.unit.program == program for row in ours)]
    fields = (
        Field(_("Configuration"), lambda one: cells.titled(_, one)),
        *(
            Field(
                _(SHORT_PROGRAMS[program]),
                partial(cells.percentage, _, program=program),
                numeric=True,
            )
            for program in programs
        ),
        *(Field(label, partial(_beside, _, by_name, label), numeric=True, minor=True) for label in beside),
        Field(_("Published (V100)"), lambda one: _published_cell(_, one.unit, host.catalogue.ported), numeric=True),
    )
    caption = _(
        "Throughput over that of one GPU times the number of GPUs. Published: that of the original case, on the number of V100s "
        "in parentheses ({method})."
    ).format(method=link(_, "comparable", _("what can be compared")))
    table = tables.table("scaling", shown, fields, caption)
    return [Section("scaling", _("How does it scale?"), (table, *figures_of(drawn, "efficiency")))]


def _beside(_: Translate, by_name: dict[str, dict[str, HostRow]], label: str, configuration: Configuration) -> Cell:
    return cells.with_interval(_, by_name.get(configuration.name, {}).get(label), numbers.percentage)


def published_efficiency(unit: Unit, cases: Iterable[Case]) -> tuple[float, int] | None:
    """The published efficiency of the case that a unit is or was derived from, and its number of GPUs; None without."""
    case = unit.case_in_precision
    if case is None:
        return None
    efficiency = published_scaling(case, cases)
    return None if efficiency is None else (efficiency, case.layout.world_size)


def _published_cell(_: Translate, unit: Unit, cases: Iterable[Case]) -> Cell:
    published = published_efficiency(unit, cases)
    case = unit.case
    if published is None or case is None:
        return tables.NONE
    efficiency, gpus = published
    return Cell(
        numbers.percentage(efficiency), efficiency, note=gpus_count(_, gpus), claim=claim_id(case.name, SPEEDUP)
    )


def layouts(_: Translate, host: MeasuredHost) -> list[Section]:
    """Layouts on several GPUs; compared with the performance model where it judges them."""
    rows = host.layouts
    if not rows:
        return []
    return [*_expectations(_, [row for row in rows if row.ratio]), _every_layout(_, rows)]


def _expectations(_: Translate, rows: list[HostRow]) -> list[Section]:
    """Throughput over the performance model's; nothing where it judges none."""
    if not rows:
        return []
    fields = (
        Field(_("Model"), lambda mine: _with_program(_, mine[0].unit)),
        Field(_("GPUs"), lambda mine: mine[0].unit.world_size, count),
        Field(
            _("Measured / expected"),
            lambda mine: least_to_most(row.ratio.value for row in mine if row.ratio),
            numeric=True,
        ),
    )
    caption = _(
        "Throughput over what the performance model expects, lowest to highest of the layouts ({method})."
    ).format(method=link(_, "expectation"))
    groups = by_key(rows, lambda row: (_with_program(_, row.unit), row.unit.world_size)).values()
    table = tables.table("expectation", groups, fields, caption)
    return [Section("expectation", _("Does the performance model carry over?"), (table,))]


def _with_program(_: Translate, unit: Unit) -> str:
    return _(", ").join((subject(unit), _(PROGRAMS[unit.program])))


def _every_layout(_: Translate, rows: list[HostRow]) -> Section:
    fields = [
        Field(_("Configuration"), lambda row: _named(_, row)),
        Field(_("Layout"), lambda row: layout_text(row.unit), minor=True),
        Field(_("Global batch size"), lambda row: row.unit.global_batch, count, minor=True),
        Field(_("Throughput (samples/s)"), lambda row: _marked(_, row), numeric=True),
        Field(_("Expected (samples/s)"), lambda row: row.expected, tables.measured),
        Field(_("Measured / expected"), lambda row: cells.with_interval(_, row), numeric=True),
        Field(_("Goal"), lambda row: cells.goal(_, row)),
        Field(_("GPU memory (MiB)"), lambda row: row.memory_mib, count),
    ]
    caption = _(
        "Each layout, its throughput by the report's rule, and what the performance model expects of it, where it judges "
        "({method})."
    ).format(method=link(_, "expectation"))
    return _folded("layouts", _("Every layout on several GPUs"), tables.table("layouts", rows, fields, caption))


def _marked(_: Translate, row: HostRow) -> Cell:
    """The throughput of a row with its marks."""
    return replace(tables.measured(row.throughput), note=_(", ").join(cells.marks(_, row)))


class CaseRows(NamedTuple):
    """A case, and the row of each program that says most about it."""

    case: Case
    by_program: dict[str, HostRow]


def _rows_of_cases(host: MeasuredHost, cases_of: Callable[[HostRow], Iterable[str]]) -> list[CaseRows]:
    """The cases that rows with the newest code have, in the order of the catalogue."""
    by_case: dict[str, dict[str, HostRow]] = {}
    for row in sorted(host.configurations, key=_weight):
        if not row.unit.baseline_of and host.is_current(row.runs[-1], row.unit):
            for name in cases_of(row):
                by_case.setdefault(name, {})[row.unit.program] = row
    return [CaseRows(case, by_case[case.name]) for case in host.catalogue.ported if case.name in by_case]


def _weight(row: HostRow) -> tuple:
    """Orders rows of one case and program: what reads its input as the published program did, then the most sessions, is last."""
    unit = row.unit
    return unit.reads_files, bool(unit.stands_for), not row.shared, len(row.sessions), row.runs[-1].age


def memories(host: MeasuredHost) -> list[CaseRows]:
    """The cases whose memory was published and that ran in their published configuration.

    The number of iterations may differ: it does not change what a training allocates.
    """

    def cases_of(row: HostRow) -> list[str]:
        case = same_configuration(row.unit)
        return [case.name] if case and case.published.memory_mib and row.memory_mib else []

    return _rows_of_cases(host, cases_of)


def memory(_: Translate, host: MeasuredHost) -> list[Section]:
    """Memory compared with the published figures, a row for each case, and with PyTorch, one for each configuration."""
    return [*_memory_published(_, host), *_memory_pytorch(_, host)]


def _memory_published(_: Translate, host: MeasuredHost) -> list[Section]:
    rows = memories(host)
    if not rows:
        return []
    fields = _case_fields(
        _,
        rows,
        lambda row: replace(count(published_mib(row.case)), claim=claim_id(row.case.name, MEMORY)),
        _memory_cell,
    )
    caption = _(
        "Memory per GPU in MiB, median over runs, of cases that ran in their published layout, precision and batch size; in "
        "parentheses the difference from the published figure ({method})."
    ).format(method=link(_, "memory", _("how it is counted")))
    table = tables.table("memory", rows, fields, caption)
    return [Section("memory", _("How much memory?"), (table,))]


def _case_fields(
    _: Translate,
    rows: Sequence[CaseRows],
    published: Callable[[CaseRows], Cell],
    measured: Callable[[CaseRows, str], Cell],
) -> tuple[Field, ...]:
    """A case, what was published of it, and what each program that any of the rows has gave; a dash without."""

    def of_program(row: CaseRows, program: str) -> Cell:
        return measured(row, program) if program in row.by_program else tables.NONE

    programs = [program for program in KINDS if any(program in row.by_program for row in rows)]
    return (
        Field(_("Case"), lambda row: Cell(row.case.name, note=gpus_count(_, row.case.layout.world_size))),
        Field(_("Published (V100)"), published, numeric=True),
        *(
            Field(_(SHORT_PROGRAMS[program]), partial(of_program, program=program), numeric=True)
            for program in programs
        ),
    )


def published_mib(case: Case) -> float:
    """The published memory of a case that has one."""
    return float(case.published.memory_mib or math.nan)


def _memory_cell(row: CaseRows, program: str) -> Cell:
    mib = row.by_program[program].memory_mib or math.nan
    return replace(count(mib), note=numbers.signed_percentage(relative_difference(mib, published_mib(row.case))))


SHOWN_ON_PHONES = 3
"""Columns of memory that a narrow screen has room for."""


def _memory_pytorch(_: Translate, host: MeasuredHost) -> list[Section]:
    """Memory of the programs and the baselines; nothing if none is known."""
    ratios = current(host.ratios)
    every = {row.measurements[-1].configuration: row.memory_mib for row in host.configurations}
    columns_mib: dict[str, dict[str, float]] = {}
    for row in ratios:
        for title, side in ((_(SHORT_PROGRAMS[row.unit.program]), row.results[-1]), (row.base.label, row.bases[-1])):
            mib = every.get(row.measurements[-1].configuration_of(side))
            if mib is not None:
                columns_mib.setdefault(title, {})[configuration_name(row)] = mib
    if not columns_mib:
        return []
    fields = [
        Field(_("Configuration"), lambda one: cells.titled(_, one)),
        *(
            Field(
                title,
                partial(lambda one, by_name: by_name.get(one.name), by_name=by_name),
                count,
                minor=place >= SHOWN_ON_PHONES,
            )
            for place, (title, by_name) in enumerate(columns_mib.items())
        ),
    ]
    caption = _("Memory per GPU in MiB, median over runs ({method}).").format(
        method=link(_, "memory", _("how it is counted"))
    )
    table = tables.table("memory-pytorch", configurations(ratios), fields, caption)
    return [_folded("memory-pytorch", _("Memory compared with the baselines"), table)]


def transfers(_: Translate, host: MeasuredHost) -> list[Section]:
    """Throughput over the published V100s', and which relative figures carry over; nothing without a published case."""
    blocks: list[Block] = []
    if rows := factors(host):
        blocks.append(_factor_table(_, rows))
    if groups := by_key(_independent_of_speed(host), lambda comparison: comparison.kind):
        fields = (
            Field(_("What"), lambda mine: _(COMPARED[mine[0].kind])),
            Field(
                _("Comparisons that agree"),
                lambda mine: cells.outof(sum(comparison.agrees for comparison in mine), len(mine)),
                numeric=True,
            ),
            Field(_("Tolerance"), lambda mine: TOLERANCES[mine[0].kind], share),
            Field(
                _("Difference"),
                lambda mine: cells.differences(_, (comparison.difference for comparison in mine)),
                numeric=True,
                minor=True,
            ),
        )
        caption = _("Figures that do not depend on how fast the GPU is, for the port, one per case ({method}).").format(
            method=link(_, "comparable", _("what can be compared"))
        )
        blocks.append(tables.table("transfers", groups.values(), fields, caption))
    return (
        [Section("transfers", _("How does it compare with the published V100 results?"), tuple(blocks))]
        if blocks
        else []
    )


def _independent_of_speed(host: MeasuredHost) -> list[HardwareComparison]:
    """What of the port does not depend on how fast a GPU is; memory as its table has it."""
    memory_of_port = [
        HardwareComparison("memory", case.name, None, published_mib(case), mib, TOLERANCES["memory"])
        for case, by_program in memories(host)
        if (row := by_program.get(PUBLISHED)) and (mib := row.memory_mib)
    ]
    others = [comparison for comparison in host.comparisons if comparison.kind != "memory"]
    return sorted((*others, *memory_of_port), key=lambda comparison: list(TOLERANCES).index(comparison.kind))


def factors(host: MeasuredHost) -> list[CaseRows]:
    """The cases that ran in their published configuration and measuring rule."""
    return _rows_of_cases(host, lambda row: row.unit.stands_for)


def factor(case: Case, row: HostRow) -> float:
    """A row's throughput over the published one of its case."""
    return row.throughput / float(case.published.throughput)


def _factor_table(_: Translate, rows: list[CaseRows]) -> Table:
    def measured_cell(row: CaseRows, program: str) -> Cell:
        of_program = row.by_program[program]
        note = _("× {factor}, n\u00a0=\u00a0{n}").format(
            factor=numbers.significant(factor(row.case, of_program)), n=len(of_program.sessions)
        )
        return replace(tables.measured(of_program.throughput), note=_(", ").join((note, *cells.marks(_, of_program))))

    def published_cell(row: CaseRows) -> Cell:
        throughput = row.case.published.throughput
        return Cell(str(throughput), float(throughput), claim=claim_id(row.case.name, THROUGHPUT))

    fields = _case_fields(_, rows, published_cell, measured_cell)
    caption = _(
        "Throughput in samples/s of cases that ran in their published configuration, in parentheses over the published one: a "
        "factor of hardware, libraries and program together, no verdict ({method})."
    ).format(method=link(_, "comparable", _("what can be compared")))
    return tables.table("factors", rows, fields, caption)
