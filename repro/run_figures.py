"""Which figures a run's report has: repeats, scaling beside the published, layouts, memory, iteration times."""

import json
from collections.abc import Iterable
from pathlib import Path

from repro.cases import Case, load_catalogue
from repro.charts import GridChart, LineChart, Series
from repro.correctness import correctness_plates
from repro.document import Figure
from repro.drawing import STYLES
from repro.peer_figures import own_scaling_plates, peer_plates
from repro.plates import Plate, efficiency, repeats_caption, repeats_chart, write_figures
from repro.raw import KEPT, lines
from repro.results import Result
from repro.row_charts import BarChart, Panel

FORMATS = ("svg", "png")
FIELDS = 24


def run_figures(story, folder: Path, language: str, formats: tuple[str, ...] = FORMATS) -> list[Figure]:
    """Write the figures of a run, whose folder this is, into `figures/` there; the blocks that show them.

    A figure for which the run has too little is left out: a single repeat has no spread, one number of GPUs no
    scaling. Iteration times are read from rank 0's metrics of every successful attempt. A run that was kept for good
    has no PNG, whose bytes depend on the fonts of the machine.
    """
    formats = formats[:1] if (folder / KEPT).exists() else formats
    return write_figures(run_plates(story, folder), folder / "figures", language, formats=formats)


def run_plates(story, folder: Path) -> list[Plate]:
    """The figures that this run has data for."""
    if story.shown:
        return correctness_plates(story.shown)
    measured = [result for result in story.results if result.throughput is not None]
    repeated = [result for result in measured if len(result.throughputs) > 1]
    plates = [_repeats_plate(repeated)] if repeated else []
    if story.plan.scale != "smoke":
        plates += [*peer_plates(measured), *_scaling_plates(measured), *own_scaling_plates(measured)]
    own = [result for result in measured if not result.unit.peer_of]
    for number, group in enumerate(_same_model(own), 1):
        if len(group) > 1:
            plates.append(_throughput_plate(group, number))
    with_memory = [result for result in measured if result.memory_mib]
    if with_memory:
        plates.append(_memory_plate(with_memory, story.plan.device))
    times = iteration_times(story, folder)
    return plates + [_times_plate(times[first : first + FIELDS], first) for first in range(0, len(times), FIELDS)]


def _name(result: Result) -> str:
    return result.unit.name.removeprefix("smoke_")


def _repeats_plate(results: list[Result]) -> Plate:
    rows = [(_name(result), result.throughputs) for result in results]
    return Plate("repeats", lambda _: repeats_chart(_, rows), repeats_caption)


def _same_model(results: Iterable[Result]) -> list[list[Result]]:
    """Results of one report and model shape together, in the run's order."""
    groups: dict[tuple, list[Result]] = {}
    for result in results:
        config = result.unit.config
        key = (config["log_generation"], config["precision"], tuple(sorted(config["shape"].items())))
        groups.setdefault(key, []).append(result)
    return list(groups.values())


def _throughput_plate(results: list[Result], number: int) -> Plate:
    values = tuple((result.throughput,) for result in results)
    reports = {report.log_generation: report.id for report in load_catalogue().reports}
    report = reports[results[0].unit.config["log_generation"]]

    def chart(_):
        return BarChart(
            _("Throughput by configuration: {report}").format(report=report),
            "samples/s",
            tuple(map(_name, results)),
            (Panel("", values),),
            emphasis=frozenset(range(len(results))),
        )

    return Plate(
        f"throughput-{number}",
        chart,
        lambda _: _(
            "Configurations of one report with the same model; a layout is data x tensor x pipeline. "
            "Medians of the repeats."
        ),
    )


def _memory_plate(results: list[Result], device: str) -> Plate:
    values = tuple((result.memory_mib,) for result in results)

    def chart(_):
        kind = _("MiB, rank 0's process") if device == "cpu" else _("MiB a GPU")
        return BarChart(
            _("Memory by configuration"),
            kind,
            tuple(map(_name, results)),
            (Panel("", values),),
            emphasis=frozenset(range(len(results))),
            decimals=0,
        )

    return Plate("memory", chart, lambda _: _("Median of the repeats."))


def _scaling_plates(results: list[Result]) -> list[Plate]:
    """Measured and published efficiency at a fixed batch a GPU, a figure for each case with several GPU counts."""
    cases = {case.name: case for case in load_catalogue().cases}
    lines: dict[tuple, list[tuple[Case, Result]]] = {}
    for result in results:
        case = cases.get(result.unit.name)
        if case and case.layout.world_size == case.layout.data:
            key = (case.report, case.micro_batch, case.optimizer_sharding, tuple(sorted(case.shape.items())))
            lines.setdefault(key, []).append((case, result))
    several = (sorted(pairs, key=lambda pair: pair[0].layout.world_size) for pairs in lines.values())
    return [
        _efficiency_plate(pairs, number)
        for number, pairs in enumerate(several, 1)
        if len({case.layout.world_size for case, _result in pairs}) > 1
    ]


def _efficiency_plate(pairs: list[tuple[Case, Result]], number: int) -> Plate:
    first = pairs[0][0]

    def chart(_):
        found = {
            case.layout.world_size: (result.throughput, float(case.published.throughput)) for case, result in pairs
        }
        series = tuple(
            efficiency(Series(label, tuple((gpus, values[index]) for gpus, values in found.items())))
            for index, label in enumerate((_("measured"), _("published")))
        )
        title = _("Scaling efficiency: {report}, batch {n}").format(report=first.report, n=first.micro_batch)
        return LineChart(
            title,
            _("share of the throughput that the fewest GPUs promise"),
            _("GPUs"),
            series,
            Series(_("ideal"), ((min(found), 1.0), (max(found), 1.0))),
            percent=True,
        )

    return Plate(
        f"efficiency-{number}",
        chart,
        lambda _: _("Each line is relative to its own first point, so that different hardware can be compared."),
    )


def iteration_times(story, folder: Path) -> list[tuple[str, dict[int, list[tuple[float, float]]]]]:
    """For each unit its name and, by repeat, the points (iteration, ms) of rank 0's metrics; none without rows."""
    found: dict[str, dict] = {}
    for attempt in story.attempts:
        if attempt["status"] == "ok":
            points = _points(folder / attempt["folder"] / "metrics-rank0.jsonl")
            if len(points) > 1:
                found.setdefault(attempt["unit"], {})[attempt["repeat"]] = points
    return [(_name(result), found[result.unit.name]) for result in story.results if result.unit.name in found]


def _points(metrics: Path) -> list[tuple[float, float]]:
    rows = [row for row in map(json.loads, lines(metrics)) if row["event"] == "iteration"]
    return [(row["iteration"], row["latency_ms"]) for row in rows if row.get("latency_ms")]


def _times_plate(times: list, first: int) -> Plate:
    def chart(_):
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
            _("ms an iteration, against iterations; each field has its own scale"),
            fields,
        )

    return Plate(
        "times" + (f"-{first // FIELDS + 1}" if first else ""),
        chart,
        lambda _: _(
            "From the metrics of rank 0. The numbers at the left of a field are its fastest and slowest printed row; "
            "at most {n} repeats are drawn."
        ).format(n=len(STYLES)),
    )
