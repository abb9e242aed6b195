"""The figures of a bench's report: repeats, scaling, layouts, iteration times."""

from collections.abc import Iterable

from repro.analysis.cross_hardware import WORK_PER_GPU, case_row
from repro.analysis.relations import scaling_relations
from repro.analysis.results import Result
from repro.planning.programs import published_name
from repro.published.cases import Case, load_catalogue
from repro.report.charts.canvas import STYLES
from repro.report.charts.figure import (
    FigureSpec,
    efficiency,
    efficiency_caption,
    efficiency_chart,
    repeats_caption,
    repeats_chart,
)
from repro.report.charts.lines import GridChart, LineChart, Series
from repro.report.charts.rows import BarChart, Panel
from repro.report.charts.series import AS_PUBLISHED, style, style_of
from repro.report.run.data import ReportData
from repro.runs.files import RunPath
from repro.runs.metrics import METRICS, events
from repro.runs.plan import SMOKE
from repro.runs.unit import Unit
from repro.utils.grouping import by_key
from repro.utils.i18n import Translate

FIELDS = 24


def bench_figures(data: ReportData, files: RunPath) -> list[FigureSpec]:
    """The figures that a bench has data for, including its metrics.

    Figures without enough data are omitted: a single repeat has no spread, a single number of GPUs no scaling.
    Iteration times come from rank 0's metrics of every successful attempt.
    """
    measured = [result for result in data.results if result.throughput is not None]
    repeated = [result for result in measured if len(result.throughputs) > 1]
    figure_specs = [_repeats_figure(repeated)] if repeated else []
    if data.plan.scale != SMOKE:
        figure_specs += efficiency_figures(
            (relation.base.unit, relation.result.unit, relation.ratio.value) for relation in scaling_relations(measured)
        )
    own = [result for result in measured if not result.unit.baseline_of]
    for number, group in enumerate(_same_model(own), 1):
        if len(group) > 1:
            figure_specs.append(_throughput_figure(group, number))
    times = iteration_times(data, files)
    return figure_specs + [
        _times_figure(times[first : first + FIELDS], first) for first in range(0, len(times), FIELDS)
    ]


def _repeats_figure(results: list[Result]) -> FigureSpec:
    rows = [(result.unit.name, result.throughputs) for result in results]
    return FigureSpec("repeats", lambda _: repeats_chart(_, rows), repeats_caption)


def _same_model(results: Iterable[Result]) -> list[list[Result]]:
    """Results of one report and model shape together, in the run's order."""

    def key(result: Result) -> tuple:
        return result.unit.report, result.unit.precision, tuple(sorted(result.unit.config.shape.items()))

    return list(by_key(results, key).values())


def _throughput_figure(results: list[Result], number: int) -> FigureSpec:
    values = tuple((result.throughput,) for result in results)
    report = results[0].unit.report

    def chart(_: Translate) -> BarChart:
        return BarChart(
            _("Throughput by configuration: {report}").format(report=report),
            "samples/s",
            tuple(result.unit.name for result in results),
            (Panel("", values),),
            emphasis=frozenset(range(len(results))),
        )

    return FigureSpec(
        f"throughput-{number}",
        chart,
        lambda _: _(
            "Configurations of one report with the same model; a layout is data x tensor x pipeline. "
            "Medians of the repeats."
        ),
    )


def efficiency_figures(measured: Iterable[tuple[Unit, Unit, float]]) -> list[FigureSpec]:
    """Scaling efficiency by program, a figure for each work of a GPU that ran on several numbers of GPUs beyond one.

    `measured` are the training on one GPU, the one on several, and the efficiency; what was published of the work is beside.
    """
    lines = by_key(measured, lambda point: _work_per_gpu(point[1])).values()
    several = [line for line in lines if len({unit.world_size for _base, unit, _share in line}) > 1]
    return [_efficiency_figure(line, number) for number, line in enumerate(several, 1)]


def _work_per_gpu(unit: Unit) -> tuple:
    config = unit.config
    work = config.micro_batch, config.accumulation_steps, config.optimizer_sharding, tuple(sorted(config.shape.items()))
    return unit.report, unit.precision, *work


def _efficiency_figure(measured: list[tuple[Unit, Unit, float]], number: int) -> FigureSpec:
    base, *_rest = measured[0]
    case = base.case_in_precision
    published = _published(case) if case else ()
    by_label = by_key(measured, lambda point: point[1].label)

    def chart(_: Translate) -> LineChart:
        series = [
            Series(
                label,
                ((1, 1.0), *sorted({unit.world_size: share for _base, unit, share in points}.items())),
                style_of(points[0][1]),
            )
            for label, points in by_label.items()
        ]
        if published:
            series.append(Series(_("published, V100"), published, style(AS_PUBLISHED)))
        return efficiency_chart(
            _,
            _("Scaling efficiency relative to {unit}").format(unit=published_name(base)),
            _("throughput relative to one GPU times the number of GPUs"),
            series,
        )

    return FigureSpec(f"efficiency-{number}", chart, efficiency_caption)


def _published(case: Case) -> tuple[tuple[float, float], ...]:
    """Published efficiencies of a case's work on each GPU, from one GPU on; none without a case on one GPU."""
    work = [case_row(case)[key] for key in WORK_PER_GPU]
    same = [other for other in load_catalogue().ported if [case_row(other)[key] for key in WORK_PER_GPU] == work]
    parallel = {other.layout.world_size: other for other in same if other.layout.data == other.layout.world_size}
    line = Series("", tuple((gpus, float(other.published.throughput)) for gpus, other in sorted(parallel.items())))
    return efficiency(line).points if 1 in parallel else ()


def iteration_times(data: ReportData, files: RunPath) -> list[tuple[str, dict[int, list[tuple[float, float]]]]]:
    """For each unit its name and, by repeat, the points (iteration, ms) of rank 0's metrics; none without rows."""
    points_by_unit: dict[str, dict] = {}
    for attempt in data.attempts:
        if attempt.status == "ok":
            points = _points(files / attempt.folder / METRICS.format(0))
            if len(points) > 1:
                points_by_unit.setdefault(attempt.unit, {})[attempt.repeat] = points
    return [
        (result.unit.name, points_by_unit[result.unit.name])
        for result in data.results
        if result.unit.name in points_by_unit
    ]


def _points(metrics: RunPath) -> list[tuple[float, float]]:
    rows = [row for row in events(metrics) if row["event"] == "iteration"]
    return [(row["iteration"], row["latency_ms"]) for row in rows if row.get("latency_ms")]


def _times_figure(times: list, first: int) -> FigureSpec:
    def chart(_: Translate) -> GridChart:
        fields = tuple(
            (
                name,
                tuple(
                    Series(_("repeat {n}").format(n=repeat), tuple(points))
                    for repeat, points in sorted(repeats.items())[: len(STYLES)]
                ),
            )
            for name, repeats in times
        )
        return GridChart(
            _("Iteration time over the run"),
            _("ms per iteration, over iterations; each panel has its own scale"),
            fields,
        )

    return FigureSpec(
        "times" + (f"-{first // FIELDS + 1}" if first else ""),
        chart,
        lambda _: _(
            "From the metrics of rank 0. The scale of a panel covers its rows after the first tenth, with the fastest "
            "and slowest on the left; if an earlier row is slower, max names it. At most {n} repeats are drawn."
        ).format(n=len(STYLES)),
    )
