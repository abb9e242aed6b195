"""The figures of a host's page: ratios, efficiencies over the published ones, coverage, and what runs show."""

from __future__ import annotations

from functools import partial

from repro.models.programs import KINDS
from repro.published.cases import Catalogue
from repro.report.charts.coverage import CoverageChart
from repro.report.charts.figure import FigureSpec, stacked
from repro.report.charts.forest import ForestChart, ForestPoint, ForestRow
from repro.report.charts.series import styles
from repro.report.host import cells
from repro.report.host.cells import SHORT_PROGRAMS
from repro.report.host.configurations import Configuration, baselines, configurations
from repro.report.host.correctness import shown_figures
from repro.report.host.coverage import covered_cases
from repro.report.host.measured import current, over_pytorch
from repro.report.host.megatron import megatron_figure
from repro.report.host.results import MeasuredHost
from repro.report.host.rows import HostRow
from repro.report.names import family, name
from repro.report.run.figures import efficiency_figures
from repro.runs.unit import Unit
from repro.utils.grouping import by_key
from repro.utils.i18n import Translate

MOST_ROWS = 20
"""Configurations in the first figure, so that it is read at a glance; the table has all."""


def figure_specs(host: MeasuredHost) -> list[FigureSpec]:
    """All figures that the host has rows for."""
    specs = []
    if over_pytorch(host):
        specs.append(_ratios(host))
    specs += megatron_figure(host)
    specs += efficiency_figures(
        (row.base, row.unit, row.ratio.value) for row in current(host.efficiencies) if row.ratio
    )
    return [*specs, *shown_figures(host)]


def _ratios(host: MeasuredHost) -> FigureSpec:
    """The ratios of each configuration to the baselines, each program's below the other's; the published precision comes first."""
    rows = over_pytorch(host)
    every = configurations(rows)
    first = sorted(every, key=lambda one: _case_precision(one.unit) != one.unit.precision)[:MOST_ROWS]
    shown = [one for one in every if one in first]
    series = baselines(rows)
    programs = [program for program in KINDS if any(row.unit.program == program for row in rows)]
    groups = by_key(shown, lambda one: name(family(one.unit.report)))

    def row_of(one: Configuration, program: str) -> ForestRow:
        over = enumerate(one.of(program, baseline) for baseline in series)
        return ForestRow(one.name, tuple(_point(index, row) for index, row in over if row))

    def chart(_: Translate, program: str) -> ForestChart:
        drawn = {
            heading: tuple(row for one in mine if (row := row_of(one, program)).points)
            for heading, mine in groups.items()
        }
        return ForestChart(
            _("OneFlow compared with PyTorch: {program}").format(program=_(SHORT_PROGRAMS[program])),
            _("OneFlow throughput / PyTorch throughput in the same run, logarithmic scale"),
            groups=tuple((heading, mine) for heading, mine in drawn.items() if mine),
            series=tuple(_("over {baseline}").format(baseline=baseline) for baseline in series),
            styles=styles(series),
        )

    def caption(_: Translate) -> str:
        text = _(
            "Above 1 OneFlow is faster. Bars are 95% intervals over sessions, cut off where they leave the scale; a hollow mark is a single session."
        )
        if len(programs) > 1:
            text = _("{text} {more}").format(text=text, more=_("Each panel has its own scale."))
        if dropped := len(every) - len(shown):
            text = _("{text} {more}").format(
                text=text, more=_("Configurations that are in the table only: {n}.").format(n=dropped)
            )
        return text

    return stacked("ratios", [FigureSpec(program, partial(chart, program=program), caption) for program in programs])


def _case_precision(unit: Unit) -> str:
    case = unit.case
    return case.precision if case else ""


def _point(index: int, row: HostRow) -> ForestPoint:
    assert row.ratio is not None  # a ratio to a baseline always has one
    return ForestPoint(index, row.ratio.value, cells.ends(row))


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
