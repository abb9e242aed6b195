"""The figures of a host's page: ratios, efficiencies over the published ones, memory, coverage, and what runs show."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from repro.analysis.cross_hardware import WORK_PER_GPU, case_row
from repro.models.programs import KINDS, PUBLISHED, TUNED
from repro.published.cases import Case, Catalogue
from repro.report.charts.coverage import CoverageChart
from repro.report.charts.figure import FigureSpec
from repro.report.charts.forest import ForestChart, ForestPoint, ForestRow
from repro.report.charts.overlay import OverlayChart, OverlayLine, OverlayPanel
from repro.report.charts.rows import DotChart
from repro.report.charts.series import AS_PUBLISHED, NAMES, style, styles
from repro.report.host import cells
from repro.report.host.answer import gpus_text
from repro.report.host.cells import SHORT_PROGRAMS
from repro.report.host.configurations import Configuration, baselines, configurations
from repro.report.host.correctness import shown_figures
from repro.report.host.coverage import covered_cases
from repro.report.host.measured import current, memories, over_pytorch
from repro.report.host.megatron import megatron_figure
from repro.report.host.results import MeasuredHost
from repro.report.host.rows import HostRow
from repro.report.names import family, name
from repro.runs.unit import Unit
from repro.utils.grouping import by_key
from repro.utils.i18n import N_, Translate
from repro.utils.stats import scaling_efficiency

MOST_ROWS = 20
"""Configurations in the first figure, so that it is read at a glance; the table has all."""
TITLES = {PUBLISHED: N_("Port of the published program"), TUNED: N_("Tuned program")}
"""The programs in titles."""


def figure_specs(host: MeasuredHost) -> list[FigureSpec]:
    """All figures that the host has rows for."""
    specs = []
    if over_pytorch(host):
        specs.append(_ratios(host))
    specs += megatron_figure(host)
    if scaling_lines(host):
        specs.append(_efficiency(host))
    if memories(host):
        specs.append(_memory(host))
    return [*specs, *shown_figures(host)]


def _ratios(host: MeasuredHost) -> FigureSpec:
    """The ratios of each configuration to the baselines, a panel for each program; the published precision comes first."""
    rows = over_pytorch(host)
    shown = configurations(rows)
    dropped = len(shown) - MOST_ROWS
    if dropped > 0:
        first = sorted(shown, key=lambda one: _case_precision(one.unit) != one.unit.precision)[:MOST_ROWS]
        shown = [one for one in shown if one in first]
    series = baselines(rows)
    programs = [program for program in KINDS if any(row.unit.program == program for row in rows)]
    groups = by_key(shown, lambda one: name(family(one.unit.report)))

    def points(one: Configuration, program: str) -> tuple[ForestPoint, ...]:
        return tuple(_point(index, row) for index, baseline in enumerate(series) if (row := one.of(program, baseline)))

    def chart(_: Translate) -> ForestChart:
        return ForestChart(
            _("OneFlow compared with PyTorch"),
            _("OneFlow throughput / PyTorch throughput in the same run, logarithmic scale"),
            panels=tuple(_(SHORT_PROGRAMS[program]) for program in programs),
            groups=tuple(
                (
                    heading,
                    tuple(ForestRow(one.name, tuple(points(one, program) for program in programs)) for one in mine),
                )
                for heading, mine in groups.items()
            ),
            series=tuple(_("over {baseline}").format(baseline=baseline) for baseline in series),
            styles=styles(series),
        )

    def caption(_: Translate) -> str:
        text = _(
            "Above 1 OneFlow is faster. Bars are 95% intervals over sessions, cut off where they leave the scale; a hollow mark is a single session."
        )
        if dropped > 0:
            text = _("{text} {more}").format(
                text=text, more=_("Configurations that are in the table only: {n}.").format(n=dropped)
            )
        return text

    return FigureSpec("ratios", chart, caption)


def _case_precision(unit: Unit) -> str:
    case = unit.case
    return case.precision if case else ""


def _point(index: int, row: HostRow) -> ForestPoint:
    assert row.ratio is not None  # a ratio to a baseline always has one
    return ForestPoint(index, row.ratio.value, cells.ends(row))


@dataclass(frozen=True)
class ScalingLine:
    """A published work per GPU that a program scaled here: its case, the published points, and the rows measured."""

    case: Case
    program: str
    published: tuple[tuple[float, float], ...]
    rows: tuple[HostRow, ...]


def scaling_lines(host: MeasuredHost) -> dict[str, list[ScalingLine]]:
    """By report, the lines that can be drawn: with published points, and measured on at least two numbers of GPUs.

    Only rows of the newest code are joined, which is one code for each program of a model.
    """
    groups: dict[tuple, list[tuple[Case, HostRow]]] = {}
    for row in current(host.efficiencies):
        case = row.unit.case_in_precision
        if case is None or row.ratio is None:
            continue
        work = tuple(case_row(case)[key] for key in WORK_PER_GPU)
        groups.setdefault((case.report, work, row.unit.program), []).append((case, row))
    lines: dict[str, list[ScalingLine]] = {}
    for (report, _work, program), members in groups.items():
        (case, _row), rows = members[0], tuple(row for _case, row in members)
        if (published := _published_points(case, host.catalogue.ported)) and len(
            {row.unit.world_size for row in rows}
        ) > 1:
            lines.setdefault(report, []).append(ScalingLine(case, program, published, rows))
    return lines


def _published_points(case: Case, cases: Iterable[Case]) -> tuple[tuple[float, float], ...]:
    """Published efficiencies of the same work on each GPU, from one GPU on; none without a case on one GPU."""
    work = [case_row(case)[key] for key in WORK_PER_GPU]
    same = [other for other in cases if [case_row(other)[name] for name in WORK_PER_GPU] == work]
    parallel = {other.layout.world_size: other for other in same if other.layout.data == other.layout.world_size}
    if 1 not in parallel:
        return ()
    single = float(parallel[1].published.throughput)
    return tuple(
        (gpus, scaling_efficiency(float(other.published.throughput), gpus, single, 1))
        for gpus, other in sorted(parallel.items())
    )


def _efficiency(host: MeasuredHost) -> FigureSpec:
    """Published efficiencies on V100s as lines, those measured here as points, a panel for each report."""
    lines_by_report = scaling_lines(host)

    def drawn(_: Translate, line: ScalingLine) -> OverlayLine:
        return OverlayLine(
            _("bs {n}, {program}").format(n=line.case.micro_batch, program=_(SHORT_PROGRAMS[line.program])),
            line.published,
            ((1.0, 1.0), *((float(row.unit.world_size), row.ratio.value) for row in line.rows if row.ratio)),
            style(NAMES[line.program]),
            tuple((float(row.unit.world_size), *ends) for row in line.rows if (ends := cells.ends(row))),
        )

    def panel(_: Translate, report: str) -> OverlayPanel:
        return OverlayPanel(name(family(report)), tuple(drawn(_, line) for line in lines_by_report[report]))

    def chart(_: Translate) -> OverlayChart:
        return OverlayChart(
            _("Scaling efficiency, published and measured"),
            _("throughput over that of one GPU times the number of GPUs; data parallelism"),
            _("GPUs"),
            tuple(panel(_, report) for report in lines_by_report),
            (_("published, V100"), _("measured, {gpus}").format(gpus=gpus_text(_, host))),
        )

    return FigureSpec(
        "efficiency",
        chart,
        lambda _: _(
            "Lines with one label do the same work per GPU (bs: batch size per GPU); bars are 95% intervals. Each panel has "
            "its own scale, which does not start at zero."
        ),
    )


def _memory(host: MeasuredHost) -> FigureSpec:
    rows = memories(host)
    programs = [program for program in KINDS if any(program in row.by_program for row in rows)]

    def chart(_: Translate) -> DotChart:
        return DotChart(
            _("Memory, published and measured"),
            _("MiB per GPU"),
            tuple(row.case.name for row in rows),
            tuple((row.published, *(row.by_program.get(program) for program in programs)) for row in rows),
            (_("published, V100"), *(_(TITLES[program]) for program in programs)),
            decimals=0,
            styles=styles((AS_PUBLISHED, *(NAMES[program] for program in programs))),
        )

    return FigureSpec("memory", chart, lambda _: _("One row per case; the table below has the differences."))


def coverage_figure(catalogue: Catalogue, levels: dict[str, int]) -> FigureSpec:
    """Every published case by report and number of GPUs, with how far it was run."""

    def chart(_: Translate) -> CoverageChart:
        return CoverageChart(
            _("Published cases covered here"),
            _("a box per case, by report and number of GPUs of the published case"),
            covered_cases(_, catalogue, levels),
            (
                _("run in the published configuration"),
                _("run shrunk or derived"),
                _("audited only, not run"),
                _("neither run nor audited"),
            ),
            _("GPUs"),
        )

    return FigureSpec(
        "coverage",
        chart,
        lambda _: _(
            "bs: batch size per GPU. DP: data parallelism, MP: tensor parallelism, 2D: both, PP: pipeline parallelism. A case "
            "run by either program counts as run."
        ),
    )
