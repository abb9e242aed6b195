"""The figures of a host's page: ratios, efficiencies over the published ones, memory, coverage, and what runs show."""

from __future__ import annotations

from repro.analysis.cross_hardware import WORK_PER_GPU, case_row
from repro.planning.derived import published_case
from repro.published.cases import Case, load_catalogue
from repro.report import numbers
from repro.report.charts.coverage import CoverageChart
from repro.report.charts.figure import FigureSpec
from repro.report.charts.figure import gpus_text as gpus_count
from repro.report.charts.forest import ForestChart, ForestRow
from repro.report.charts.overlay import OverlayChart, OverlayLine, OverlayPanel
from repro.report.charts.rows import DotChart
from repro.report.host.answer import gpus_text
from repro.report.host.cells import STATUSES, family, name
from repro.report.host.correctness import shown_figures
from repro.report.host.coverage import covered_cases, levels_of, units_run
from repro.report.host.measured import grouped, memories
from repro.report.host.results import MeasuredHost
from repro.report.host.rows import LEAST_SESSIONS, HostRow
from repro.report.run.programs import PROGRAMS
from repro.utils.i18n import Translate
from repro.utils.stats import Interval, scaling_efficiency


def figure_specs(host: MeasuredHost) -> list[FigureSpec]:
    """All figures that the host has rows for."""
    specs = []
    if host.ratios:
        specs.append(_ratios(host))
    if lines_of(host):
        specs.append(_efficiency(host))
    if memories(host):
        specs.append(_memory(host))
    if units_run(host):
        specs.append(coverage_figure(levels_of(host)))
    return [*specs, *shown_figures(host)]


def _ratios(host: MeasuredHost) -> FigureSpec:
    """Every ratio to PyTorch with its interval, grouped by baseline, precision, program and target."""
    rows = sorted(host.ratios, key=lambda row: row.target is None)
    groups = grouped(rows, lambda row: (row.base.label, row.unit.precision, row.unit.program, str(row.target)))

    def chart(_: Translate) -> ForestChart:
        return ForestChart(
            _("OneFlow compared with PyTorch"),
            _("OneFlow throughput / PyTorch throughput in the same run"),
            tuple((_heading(_, host, mine[0]), tuple(_forest_row(_, row) for row in mine)) for mine in groups),
            (_("ratio"), "n", _("verdict")),
            (_("several sessions, 95% interval"), _("one session"), _("target")),
        )

    return FigureSpec(
        "ratios",
        chart,
        lambda _: _("Right of 1 OneFlow is faster; n is the number of sessions. A single session decides no target."),
    )


def _heading(_: Translate, host: MeasuredHost, row: HostRow) -> str:
    program = [_(PROGRAMS[row.unit.program])] if len(host.programs) > 1 else []
    target = _("target {target}").format(target=row.target) if row.target else _("no target")
    return ", ".join([row.base.label, name(row.unit.precision), *program, target])


def _forest_row(_: Translate, row: HostRow) -> ForestRow:
    assert row.ratio is not None  # a ratio to a baseline always has one
    interval = row.ratio.interval
    return ForestRow(
        row.unit.name,
        row.ratio.value,
        (interval.low, interval.high) if isinstance(interval, Interval) else None,
        len(row.sessions) >= LEAST_SESSIONS,
        len(row.sessions),
        row.target.at_least if row.target else None,
        _(STATUSES[row.status][0]) if row.target else numbers.NOTHING,
    )


def lines_of(host: MeasuredHost) -> dict[str, list[tuple[Case, dict[int, float]]]]:
    """By report, a published case of each work per GPU that was scaled here, and the efficiency at each number of GPUs.

    Of several rows of the same work on as many GPUs the last counts.
    """
    lines_by_report: dict[str, dict[tuple, tuple[Case, dict[int, float]]]] = {}
    for row in host.efficiencies:
        case = published_case(row.unit)
        if case is None or row.ratio is None or row.unit.baseline_of:
            continue
        if case.precision == row.unit.precision:
            work = tuple(case_row(case)[key] for key in WORK_PER_GPU)
            points = lines_by_report.setdefault(case.report, {}).setdefault(work, (case, {1: 1.0}))[1]
            points[row.unit.world_size] = row.ratio.value
    return {report: list(lines.values()) for report, lines in lines_by_report.items()}


def _published_points(case: Case) -> tuple[tuple[float, float], ...]:
    """Published efficiencies of the same work on each GPU, from one GPU on; none without a case on one GPU."""
    work = [case_row(case)[key] for key in WORK_PER_GPU]
    same = [other for other in load_catalogue().ported if [case_row(other)[name] for name in WORK_PER_GPU] == work]
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
    lines = lines_of(host)
    dates = {report.id: report.date for report in load_catalogue().reports}
    families = [family(report) for report in lines]

    def label(_: Translate, case: Case) -> str:
        return _("bs {n}").format(n=case.micro_batch) + (_(", sharded") if case.optimizer_sharding else "")

    def panel(_: Translate, report: str) -> OverlayPanel:
        several = families.count(family(report)) > 1
        title = name(family(report)) + (f" {dates[report]}" if several else "")
        drawn = tuple(
            OverlayLine(label(_, case), _published_points(case), tuple(sorted(points.items())))
            for case, points in lines[report]
        )
        return OverlayPanel(title, drawn)

    def chart(_: Translate) -> OverlayChart:
        return OverlayChart(
            _("Scaling efficiency, published and measured"),
            _("throughput over that of one GPU times the number of GPUs; data parallelism"),
            _("GPUs"),
            tuple(panel(_, report) for report in lines),
            (_("published, V100"), _("measured, {gpus}").format(gpus=gpus_text(_, host))),
        )

    return FigureSpec(
        "efficiency",
        chart,
        lambda _: _(
            "Lines and points of one colour do the same work per GPU (bs: batch size per GPU). A model without a "
            "dashed line was not published on one GPU. Each panel has its own scale, which does not start at zero."
        ),
    )


def _memory(host: MeasuredHost) -> FigureSpec:
    rows = memories(host)

    def chart(_: Translate) -> DotChart:
        return DotChart(
            _("Memory, published and measured"),
            _("MiB per GPU"),
            tuple(case for case, _unit, _theirs, _ours in rows),
            tuple((theirs, ours) for _case, _unit, theirs, ours in rows),
            (_("published, V100"), _("measured")),
            decimals=0,
            notes=tuple(numbers.signed_percentage(ours / theirs - 1) for _case, _unit, theirs, ours in rows),
        )

    return FigureSpec("memory", chart, lambda _: _("At the right: measured over published, less one."))


def coverage_figure(levels: dict[str, int]) -> FigureSpec:
    """Every published case by report and number of GPUs, with how far it was run."""

    def chart(_: Translate) -> CoverageChart:
        return CoverageChart(
            _("Published cases covered here"),
            _("by report and number of GPUs of the published case"),
            covered_cases(_, levels),
            (
                _("run in the published configuration"),
                _("run shrunk or derived"),
                _("audited only, not run"),
                _("neither run nor audited"),
            ),
            {n: gpus_count(_, n) for n in sorted({case.layout.world_size for case in load_catalogue().ported})},
        )

    return FigureSpec(
        "coverage",
        chart,
        lambda _: _(
            "bs: batch size per GPU; DP, MP, 2D and PP name a layout of data x tensor x pipeline parallel sizes."
        ),
    )
