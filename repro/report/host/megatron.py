"""GPT by layout on a host's page: OneFlow over Megatron-Core in the same run, and the published ratios beside it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache, partial

from repro.analysis.relations import layout_text
from repro.models.programs import KINDS
from repro.models.variants import MEGATRON
from repro.published.cases import load_catalogue
from repro.published.comparisons import Comparison, comparisons
from repro.published.figures import load_peers
from repro.report import numbers, tables
from repro.report.charts.figure import FigureSpec
from repro.report.charts.figure import gpus_text as gpus_count
from repro.report.charts.forest import ForestChart, ForestPoint, ForestRow
from repro.report.charts.series import AS_PUBLISHED, NAMES, styles
from repro.report.document import Block, Cell, Figure, Section
from repro.report.host import cells
from repro.report.host.cells import SHORT_PROGRAMS, figures_of
from repro.report.host.configurations import configuration_name
from repro.report.host.results import MeasuredHost
from repro.report.host.rows import HostRow
from repro.report.method import link
from repro.report.run.programs import PROGRAMS
from repro.report.tables import Field
from repro.runs.unit import Unit
from repro.utils.i18n import Translate

FUSED, UNFUSED = MEGATRON
"""Megatron-Core as its users run it, and computing as Megatron-LM did in 2021, which is the base of the figure."""
PEER = "Megatron-LM"


@dataclass
class LayoutRow:
    """A configuration of GPT: OneFlow's programs over each of Megatron-Core's variants, and these over each other.

    `over` has the rows by program and variant; `today` is that of `FUSED` over `UNFUSED`, None where a run had one alone.
    """

    name: str
    unit: Unit
    over: dict[tuple[str, str], HostRow] = field(default_factory=dict)
    today: HostRow | None = None

    @property
    def shape(self) -> str:
        """The model as the names of cases have it: hidden size x layers."""
        shape = self.unit.config.shape
        return f"{shape['hidden_size']}x{shape['layers']}"

    @property
    def published(self) -> Comparison | None:
        """The published comparison of the case that this is or was derived from, in its precision."""
        case = self.unit.case_in_precision
        return _published().get(case.name) if case else None


@cache
def _published() -> dict[str, Comparison]:
    """The published comparisons with Megatron-LM by case."""
    every = comparisons(load_catalogue(), load_peers())
    return {one.case.name: one for one in every if one.case and one.peer.framework == PEER}


def layout_rows(host: MeasuredHost) -> list[LayoutRow]:
    """The configurations that ran beside Megatron-Core with the newest code, by model, number of GPUs and layout."""
    by_name: dict[str, LayoutRow] = {}
    for row in host.ratios:
        if row.current and row.base.label in MEGATRON:
            name = configuration_name(row)
            mine = by_name.setdefault(name, LayoutRow(name, row.unit))
            mine.over[row.unit.program, row.base.label] = row
    for row in host.megatrons:
        if (name := configuration_name(row)) in by_name:
            by_name[name].today = row
    return sorted(by_name.values(), key=_order)


def _order(row: LayoutRow) -> tuple:
    shape, layout = row.unit.config.shape, row.unit.config.layout
    sizes = -layout.data, -layout.tensor, -layout.pipeline
    return row.unit.precision, shape["hidden_size"], shape["layers"], row.unit.world_size, sizes, row.unit.global_batch


def by_layout(_: Translate, host: MeasuredHost, drawn: list[Figure]) -> list[Section]:
    """The section: the figure, then a row for each configuration; nothing without a run of Megatron-Core."""
    rows = layout_rows(host)
    if not rows:
        return []
    variants = [name for name in (UNFUSED, FUSED) if any(name == over for row in rows for _program, over in row.over)]
    programs = [program for program in KINDS if any(program == of for row in rows for of, _over in row.over)]
    fields = [
        Field(_("Layout"), partial(_layout, _)),
        *(
            Field(
                _("{program} / {baseline}").format(program=_(SHORT_PROGRAMS[program]), baseline=variant),
                partial(_over, _, program=program, variant=variant),
                numeric=True,
                minor=variant == UNFUSED,
            )
            for variant in variants
            for program in programs
        ),
    ]
    if any(row.today for row in rows):
        title = _("{program} / {baseline}").format(program=FUSED, baseline=UNFUSED)
        fields.append(Field(title, lambda row: cells.with_interval(_, row.today), numeric=True, minor=True))
    if any(row.published for row in rows):
        fields.append(Field(_("OneFlow / Megatron-LM, published (V100)"), partial(_published_cell, _), numeric=True))
    caption = _(
        "Throughput over that of Megatron-Core in the same run, by data x tensor x pipeline parallel sizes; {baselines}. "
        "Published: OneFlow over Megatron-LM in the original case; {method}."
    ).format(
        baselines=link(_, "programs", _("what the baselines are")),
        method=link(_, "comparable", _("what can be compared")),
    )
    table = tables.table("megatron", rows, fields, caption)
    blocks: tuple[Block, ...] = (*figures_of(drawn, "megatron"), table)
    return [Section("megatron", _("How does GPT compare with Megatron, by layout?"), blocks)]


def _layout(_: Translate, row: LayoutRow) -> Cell:
    text = _("{layout}, batch size {n}").format(layout=layout_text(row.unit), n=row.unit.global_batch)
    return Cell(text, note=_(", ").join((row.name, gpus_count(_, row.unit.world_size))))


def _over(_: Translate, row: LayoutRow, program: str, variant: str) -> Cell:
    return cells.with_interval(_, row.over.get((program, variant)))


def _published_cell(_: Translate, row: LayoutRow) -> Cell:
    published = row.published
    if published is None:
        return tables.NONE
    return Cell(numbers.ratio(published.ratio), published.ratio, note=gpus_count(_, published.peer.gpus))


def megatron_figure(host: MeasuredHost) -> list[FigureSpec]:
    """Both programs, Megatron-Core today and the published ratio by layout, over `UNFUSED`; none without a row of this."""
    rows = layout_rows(host)
    drawn = [row for row in rows if any(over == UNFUSED for _program, over in row.over)]
    if not drawn:
        return []
    programs = [program for program in KINDS if any((program, UNFUSED) in row.over for row in drawn)]
    series = [*(NAMES[program] for program in programs)]
    series += [FUSED] if any(row.today for row in drawn) else []
    series += [AS_PUBLISHED] if any(row.published for row in drawn) else []

    def points(row: LayoutRow) -> tuple[ForestPoint, ...]:
        measured = {NAMES[program]: row.over.get((program, UNFUSED)) for program in programs} | {FUSED: row.today}
        marks = [
            ForestPoint(series.index(name), of.ratio.value, cells.ends(of))
            for name, of in measured.items()
            if of and of.ratio
        ]
        if row.published:
            marks.append(ForestPoint(series.index(AS_PUBLISHED), row.published.ratio, None, printed=True))
        return tuple(marks)

    def chart(_: Translate) -> ForestChart:
        named = {NAMES[program]: _("OneFlow, {program}").format(program=_(PROGRAMS[program])) for program in programs}
        named |= {FUSED: FUSED, AS_PUBLISHED: _("published OneFlow / Megatron-LM, V100")}
        groups: dict[str, list[ForestRow]] = {}
        for row in drawn:
            heading = _("{shape} (hidden size x layers)").format(shape=row.shape)
            groups.setdefault(heading, []).append(ForestRow(_layout(_, row).text, points(row)))
        return ForestChart(
            _("GPT by layout, compared with Megatron"),
            _("throughput / that of {baseline} in the same run, logarithmic scale").format(baseline=UNFUSED),
            groups=tuple((heading, tuple(mine)) for heading, mine in groups.items()),
            series=tuple(named[name] for name in series),
            styles=styles(series),
        )

    def caption(_: Translate) -> str:
        text = _(
            "1: as fast as Megatron-Core computing as Megatron-LM did in 2021. Bars are 95% intervals over sessions; a hollow "
            "mark is a single session. The published ratios are of the original cases, on 1 to 32 V100s."
        )
        if more := len(rows) - len(drawn):
            left_out = _("Configurations that are in the table only: {n}.").format(n=more)
            text = _("{text} {more}").format(text=text, more=left_out)
        return text

    return [FigureSpec("megatron", chart, caption)]
