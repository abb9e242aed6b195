"""The figures of a bench's report: repeats, scaling, layouts, memory, iteration times."""

from collections.abc import Iterable

from repro.analysis.relations import Relation, baseline_relations, scaling_relations
from repro.analysis.results import Result
from repro.models.programs import PUBLISHED
from repro.published.cases import Case
from repro.report.charts.canvas import STYLES
from repro.report.charts.figure import FigureSpec, efficiency, repeats_caption, repeats_chart
from repro.report.charts.lines import GridChart, LineChart, Series
from repro.report.charts.rows import BarChart, Panel
from repro.report.charts.series import AS_PUBLISHED, PORT, style, style_of, styles
from repro.report.run.data import ReportData
from repro.runs.files import RunPath
from repro.runs.metrics import METRICS, events
from repro.runs.plan import SMOKE
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
        figure_specs += [*baseline_figures(measured), *_scaling_figures(measured), *own_scaling_figures(measured)]
    own = [result for result in measured if not result.unit.baseline_of]
    for number, group in enumerate(_same_model(own), 1):
        if len(group) > 1:
            figure_specs.append(_throughput_figure(group, number))
    with_memory = [result for result in measured if result.memory_mib]
    if len(with_memory) > 1:
        figure_specs.append(_memory_figure(with_memory, data.plan.device))
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


def _memory_figure(results: list[Result], device: str) -> FigureSpec:
    values = tuple((result.memory_mib,) for result in results)

    def chart(_: Translate) -> BarChart:
        kind = _("MiB, rank 0's process") if device == "cpu" else _("MiB per GPU")
        return BarChart(
            _("Memory by configuration"),
            kind,
            tuple(result.unit.name for result in results),
            (Panel("", values),),
            emphasis=frozenset(range(len(results))),
            decimals=0,
        )

    return FigureSpec("memory", chart, lambda _: _("Median of the repeats."))


def _scaling_figures(results: list[Result]) -> list[FigureSpec]:
    """Measured and published efficiency at a fixed batch a GPU, a figure for each case with several GPU counts."""
    lines: dict[tuple, list[tuple[Case, Result]]] = {}
    for result in results:
        case = result.unit.published_case if result.unit.program == PUBLISHED else None
        if case and case.layout.world_size == case.layout.data:
            key = (case.report, case.micro_batch, case.optimizer_sharding, tuple(sorted(case.shape.items())))
            lines.setdefault(key, []).append((case, result))
    several = (sorted(pairs, key=lambda pair: pair[0].layout.world_size) for pairs in lines.values())
    return [
        _efficiency_figure(pairs, number)
        for number, pairs in enumerate(several, 1)
        if len({case.layout.world_size for case, _result in pairs}) > 1
    ]


def _efficiency_figure(pairs: list[tuple[Case, Result]], number: int) -> FigureSpec:
    first = pairs[0][0]

    def chart(_: Translate) -> LineChart:
        throughputs = {
            case.layout.world_size: (result.throughput, float(case.published.throughput))
            for case, result in pairs
            if result.throughput is not None
        }
        series = tuple(
            efficiency(Series(label, tuple((gpus, values[index]) for gpus, values in throughputs.items()), style(name)))
            for index, (label, name) in enumerate(((_("measured"), PORT), (_("published"), AS_PUBLISHED)))
        )
        title = _("Scaling efficiency: {report}, batch size {n}").format(report=first.report, n=first.micro_batch)
        return LineChart(
            title,
            _("throughput relative to the smallest number of GPUs, scaled up"),
            x_label=_("GPUs"),
            series=series,
            ideal=Series(_("ideal"), ((min(throughputs), 1.0), (max(throughputs), 1.0))),
            percent=True,
        )

    return FigureSpec(
        f"efficiency-{number}",
        chart,
        lambda _: _("Each line is relative to its own first point, so different hardware can be compared."),
    )


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


def baseline_figures(results: list[Result]) -> list[FigureSpec]:
    """OneFlow's throughput over its baselines', a row per unit and a bar per kind of baseline; no figure without baselines."""
    relations = baseline_relations(results)
    if not relations:
        return []
    kinds = tuple(dict.fromkeys(relation.base.unit.label for relation in relations))
    rows: dict[str, dict[str, float]] = {}
    for relation in relations:
        rows.setdefault(relation.result.unit.name, {})[relation.base.unit.label] = relation.ratio.value
    values = tuple(tuple(row.get(kind) for kind in kinds) for row in rows.values())

    def chart(_: Translate) -> BarChart:
        title = _("OneFlow throughput / baseline throughput in the same run")
        return BarChart(
            _("OneFlow and its baselines"),
            f"{title}: {kinds[0]}" if len(kinds) == 1 else title,
            rows=tuple(rows),
            panels=(Panel("", values),),
            series=kinds,
            emphasis=frozenset(range(len(rows))),
            limit=(_("equal"), 1.0),
            decimals=2,
            styles=styles(kinds) if len(kinds) > 1 else STYLES,
        )

    return [FigureSpec("baselines", chart, lambda _: _("Ratios of medians; above the line OneFlow is faster."))]


def own_scaling_figures(results: list[Result]) -> list[FigureSpec]:
    """Efficiency of what scales here and was not published so: shrunk layouts, and baselines as well as OneFlow."""
    lines: dict[str, dict[str, list[Relation]]] = {}
    for relation in scaling_relations(results):
        base = relation.base.unit
        lines.setdefault(base.follows or base.name, {}).setdefault(base.label, []).append(relation)
    unpublished = [
        (base, several)
        for base, several in lines.items()
        if len(several) > 1 or any(relation.result.unit.derived_from for relation in next(iter(several.values())))
    ]
    return [_own_efficiency_figure(base, several, number) for number, (base, several) in enumerate(unpublished, 1)]


def _own_efficiency_figure(base: str, lines: dict[str, list[Relation]], number: int) -> FigureSpec:
    series = []
    for label, relations in lines.items():
        points = sorted({relation.result.unit.world_size: relation.ratio.value for relation in relations}.items())
        series.append(Series(label, ((1, 1.0), *points), style_of(relations[0].result.unit)))
    last = max(x for line in series for x, _y in line.points)

    def chart(_: Translate) -> LineChart:
        return LineChart(
            _("Scaling efficiency relative to {unit}").format(unit=base),
            _("throughput relative to one GPU times the number of GPUs"),
            x_label=_("GPUs"),
            series=tuple(series),
            ideal=Series(_("ideal"), ((1, 1.0), (last, 1.0))),
            percent=True,
        )

    return FigureSpec(
        f"own-efficiency-{number}", chart, lambda _: _("Measured in this run, with a constant batch size per GPU.")
    )
