"""What published reports' and runs' figures have in common: a figure before it has a language, and its files."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from repro.report.charts.canvas import ChartStack, write_svg
from repro.report.charts.lines import LineChart, Series
from repro.report.charts.rows import DotChart
from repro.report.document import Figure
from repro.report.numbers import short
from repro.utils.i18n import Translate, catalogue
from repro.utils.stats import median, relative_difference, scaling_efficiency


@dataclass(frozen=True)
class FigureSpec:
    """A figure before it has a language: `chart` and `caption` are given a catalogue's `gettext`.

    `drawings` are what it is stacked of; none if it is one.
    """

    id: str
    chart: Callable
    caption: Callable
    drawings: tuple["FigureSpec", ...] = ()

    def captions(self, _: Translate) -> tuple[str, ...]:
        """The caption of each drawing; what several of them say is with the last."""
        said = [drawing.caption(_) for drawing in self.drawings] or [self.caption(_)]
        return tuple("" if text in said[number:] else text for number, text in enumerate(said, 1))


def stacked(figure_id: str, figure_specs: Sequence[FigureSpec]) -> FigureSpec:
    """Figures as one picture, the first at the top; what several captions say is said once."""
    return FigureSpec(
        figure_id,
        lambda _: ChartStack(tuple(figure_spec.chart(_) for figure_spec in figure_specs)),
        lambda _: " ".join(dict.fromkeys(figure_spec.caption(_) for figure_spec in figure_specs)),
        tuple(figure_specs),
    )


def write_figures(figure_specs: Iterable[FigureSpec], folder: Path, language: str, prefix: str = "") -> list[Figure]:
    """Write each figure as `<prefix><id>.<language>.svg` and return the blocks that show these files."""
    _ = catalogue(language).gettext
    blocks = []
    for figure_spec in figure_specs:
        chart = figure_spec.chart(_)
        file = folder / f"{prefix}{figure_spec.id}.{language}.svg"
        write_svg(chart, file)
        texts = (chart.described(), *figure_spec.captions(_))
        alternative, *captions = map(full_width, texts) if language == "zh" else texts
        blocks.append(Figure(f"figure-{figure_spec.id}", file, alternative, tuple(captions)))
    return blocks


def full_width(text: str) -> str:
    """A description or caption put together from parts, with the punctuation of Chinese sentences."""
    for half, full in ((": ", "："), ("; ", "；"), (", ", "，"), ("。 ", "。")):
        text = text.replace(half, full)
    return text


def ideal_line(series: list[Series], label: str) -> Series:
    """From the first point of the fastest line, in proportion to the number of GPUs."""
    x, y = max((line.points[0] for line in series), key=lambda point: point[1] / point[0])
    last = max(point[0] for line in series for point in line.points)
    return Series(label, ((0, 0), (last, y / x * last)))


def scaling_figures(lines: Callable) -> list[FigureSpec]:
    """Throughput and efficiency against GPUs; `lines` makes the series with a catalogue's `gettext`."""
    return [_throughput_figure(lines), _efficiency_figure(lines)]


def _throughput_figure(lines: Callable) -> FigureSpec:
    """Throughput against GPUs with the ideal line."""

    def chart(_: Translate) -> LineChart:
        series = lines(_)
        return LineChart(
            _("Throughput by number of GPUs"),
            "samples/s",
            x_label=_("GPUs"),
            series=tuple(series),
            ideal=ideal_line(series, _("ideal")),
        )

    return FigureSpec(
        "throughput",
        chart,
        lambda _: _(
            "Throughput: the dashed grey line is the highest single-GPU throughput times the number of GPUs; the batch size "
            "per GPU is constant."
        ),
    )


def _efficiency_figure(lines: Callable) -> FigureSpec:
    """The same lines as shares of what their first points promise."""

    def chart(_: Translate) -> LineChart:
        return efficiency_chart(
            _,
            _("Scaling efficiency"),
            _("throughput / (one GPU's throughput × number of GPUs)"),
            map(efficiency, lines(_)),
        )

    return FigureSpec("efficiency", chart, efficiency_caption)


def efficiency_chart(_: Translate, title: str, subtitle: str, lines: Iterable[Series]) -> LineChart:
    """Efficiencies over the number of GPUs, with the line of the ideal."""
    series = tuple(lines)
    last = max(x for line in series for x, _y in line.points)
    ideal = Series(_("ideal"), ((1, 1.0), (last, 1.0)))
    return LineChart(title, subtitle, x_label=_("GPUs"), series=series, ideal=ideal, percent=True)


def efficiency_caption(_: Translate) -> str:
    """What is to be said of the scale of efficiencies."""
    return _("The scale of efficiencies does not start at zero, to make small differences visible.")


def gpus_text(_: Translate, count: int) -> str:
    """A number of GPUs in words."""
    return _("1 GPU") if count == 1 else _("{n} GPUs").format(n=count)


def batch_and_gpus(_: Translate, batch: int, gpus: int) -> str:
    """A batch size a GPU and a number of GPUs in words."""
    return _("batch size {n}, {gpus}").format(n=batch, gpus=gpus_text(_, gpus))


def efficiency(series: Series) -> Series:
    """A line's values over those that its first point promises."""
    (x, y), *_rest = series.points
    return replace(
        series,
        points=tuple((gpus, scaling_efficiency(value, round(gpus), y, round(x))) for gpus, value in series.points),
    )


def repeats_chart(_: Translate, rows: Sequence[tuple[str, tuple[float, ...]]]) -> DotChart:
    """Each repeat's deviation from the median of its row in per cent; a row's label ends with the median."""
    middles = [median(values) for _name, values in rows]
    deviations = tuple(
        tuple(100 * relative_difference(value, middle) for value in values)
        for (_name, values), middle in zip(rows, middles, strict=True)
    )
    labels = tuple(f"{name}  ·  {short(middle, 5)}" for (name, _values), middle in zip(rows, middles, strict=True))
    return DotChart(
        _("Repeats and their median"),
        _("samples/s at the median; each repeat's deviation from it"),
        labels,
        deviations,
        marks=(0.0,) * len(rows),
        decimals=2,
    )


def repeats_caption(_: Translate) -> str:
    """What the figure of repeats shows."""
    return _(
        "Repeats: each circle is one of them; the vertical line is the median of the row, whose value is on the left."
    )
