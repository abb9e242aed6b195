"""Charts of lines: over the number of GPUs, and a grid of small ones over a run.

Each holds its texts in one language and its data; `draw()` makes the figure, `described()` says the data in words.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from repro.report.charts.canvas import (
    GRID,
    MUTED,
    PAPER,
    SIZE,
    STYLES,
    WIDTH,
    Canvas,
    Style,
    legend_height,
    text_width,
    under,
)
from repro.report.numbers import short

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

LABEL_GAP = 13
WARM_UP = 0.1
"""Share of a series that does not set the scale of its field."""


@dataclass(frozen=True)
class Series:
    """A label and the points (x, y) that it names; without a style it has that of its place."""

    label: str
    points: tuple[tuple[float, float], ...]
    style: Style | None = None


def styled(series: Iterable[Series]) -> Iterator[tuple[Series, Style]]:
    """Series with their styles, those of their place where they have none."""
    return ((line, line.style or STYLES[place % len(STYLES)]) for place, line in enumerate(series))


def number(value: float, decimals: int | None = None) -> str:
    """A number as charts write it: four significant digits without zeros that end it, or fixed decimals."""
    return short(value) if decimals is None else f"{value:.{decimals}f}"


def sentence(title: str, parts: Iterable[str]) -> str:
    """A title and the parts that say what the chart shows."""
    return f"{title}: " + "; ".join(parts)


@dataclass(frozen=True)
class LineChart:
    """Lines over the number of GPUs, labelled at their ends; `ideal` is a thin line without markers."""

    title: str
    subtitle: str
    x_label: str
    series: tuple[Series, ...]
    ideal: Series | None = None
    percent: bool = False

    def described(self) -> str:
        parts = (
            f"{line.label}: " + ", ".join(f"{self._text(y)} ({number(x)})" for x, y in line.points)
            for line in self._all
        )
        return sentence(f"{self.title} ({self.subtitle}; {self.x_label})", parts)

    @property
    def _all(self) -> tuple[Series, ...]:
        return (*self.series, *([self.ideal] if self.ideal else []))

    def _text(self, value: float) -> str:
        return f"{100 * value:.1f}%" if self.percent else number(value)

    def draw(self) -> Drawing:
        canvas = Canvas(304, self.title, self.subtitle)
        right = max(text_width(line.label) for line in self._all) + 14
        axes = canvas.axes(42, under(self.subtitle), WIDTH - 42 - right, 304 - under(self.subtitle) - 38)
        axes.grid(axis="y", color=GRID.light, linewidth=0.8)
        if self.ideal:
            axes.plot(*zip(*self.ideal.points, strict=True), color=MUTED.light, linewidth=0.9, linestyle=(0, (6, 3)))
        for line, style in styled(self.series):
            axes.plot(
                *zip(*line.points, strict=True),
                color=style.ink.light,
                linestyle=style.line,
                linewidth=1.7,
                marker=style.marker,
                markersize=5,
                markeredgecolor=PAPER.light,
                markeredgewidth=0.6,
                clip_on=False,
            )
        self._scale(axes)
        self._name_lines(axes, canvas.height)
        canvas.text(42 + (WIDTH - 42 - right) / 2, 304 - 7, self.x_label, color=MUTED.light, ha="center")
        return canvas.figure

    def _scale(self, axes: Axes) -> None:
        from matplotlib.ticker import FuncFormatter

        xs = sorted({x for line in self.series for x, _ in line.points})
        ys = [y for line in self._all for _, y in line.points]
        shown = xs[:1]
        for x in xs[1:]:
            if x - shown[-1] >= 0.06 * xs[-1]:
                shown.append(x)
        axes.set_xticks(shown, [number(x) for x in shown])
        axes.set_xlim(min(0, xs[0]) if xs[-1] > 4 else 0.8, xs[-1])
        low = min(0.9, int(min(ys) * 20 - 0.5) / 20) if self.percent else 0
        axes.set_ylim(low, max(ys) * (1.005 if self.percent else 1.04))
        axes.locator_params(axis="y", nbins=6)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{100 * y:.0f}%" if self.percent else f"{y:.0f}"))

    def _name_lines(self, axes: Axes, figure_height: float) -> None:
        """The label of each line next to its end, moved apart where ends are close."""
        last = max(x for line in self.series for x, _ in line.points)
        height = axes.get_position().height * figure_height
        low, high = axes.get_ylim()
        ends = []
        styles = [*(style.ink.light for _line, style in styled(self.series)), MUTED.light]
        for line, color in zip(self._all, styles, strict=False):
            x, y = line.points[-1]
            if x == last:
                ends.append(((y - low) / (high - low) * height, line.label, color, y))
            else:
                axes.annotate(line.label, (x, y), (5, -11), textcoords="offset points", color=color, size=SIZE)
        ends.sort()
        places = spread_out([end[0] for end in ends], LABEL_GAP, height + 4)
        for (at, label, color, y), place in zip(ends, places, strict=True):
            axes.annotate(
                label,
                (last, y),
                (9, place - at - 3),
                textcoords="offset points",
                color=color,
                size=SIZE,
                annotation_clip=False,
            )


def spread_out(places: list[float], gap: float, top: float) -> list[float]:
    """The ascending places moved as little as needed to lie `gap` apart and none above `top`."""
    out = list(places)
    for i in range(1, len(out)):
        out[i] = max(out[i], out[i - 1] + gap)
    for i in range(len(out) - 1, -1, -1):
        out[i] = min(out[i], top if i == len(out) - 1 else out[i + 1] - gap)
    return out


@dataclass(frozen=True)
class GridChart:
    """A grid of small lines, each with a title and a scale of its own, for up to `len(STYLES)` series per field.

    The scale is that of what follows the warm-up, the first WARM_UP of each series: what starts a training is far from
    what it comes to. Points of the warm-up outside the scale are cut off, and the field names the outermost.
    """

    title: str
    subtitle: str
    fields: tuple[tuple[str, tuple[Series, ...]], ...]

    def described(self) -> str:
        parts = (
            f"{title} {line.label}: "
            + f"{number(min(y for _, y in line.points))}–{number(max(y for _, y in line.points))}"
            for title, series in self.fields
            for line in series
        )
        return sentence(f"{self.title} ({self.subtitle})", parts)

    def draw(self) -> Drawing:
        titles = max(text_width(title) for title, _series in self.fields)
        columns = 2 if titles < WIDTH / 2 - 8 else 1
        lines = -(-len(self.fields) // columns)
        field, labels = 96, max([series for _, series in self.fields], key=len)
        names = [line.label for line in labels] if len(labels) > 1 else []
        head = under(self.subtitle) + legend_height(names)
        canvas = Canvas(head + lines * field, self.title, self.subtitle)
        pens = [
            {"color": style.ink.light, "linestyle": style.line, "linewidth": 1.4} for _line, style in styled(labels)
        ]
        canvas.legend(names, canvas.strokes(pens))
        width = WIDTH / columns
        for i, (title, series) in enumerate(self.fields):
            left, top = (i % columns) * width, head + (i // columns) * field
            canvas.text(left, top + 10, title)
            self._draw_field(canvas.axes(left + 34, top + 26, width - 52, field - 47), series)
        return canvas.figure

    def _draw_field(self, axes: Axes, series: tuple[Series, ...]) -> None:
        for line, style in styled(series):
            axes.plot(*zip(*line.points, strict=True), color=style.ink.light, linestyle=style.line, linewidth=1.2)
        xs = [x for line in series for x, _y in line.points]
        everything = [y for line in series for _x, y in line.points]
        ys = [y for line in series for _x, y in line.points[warm_up(len(line.points)) :]]
        low, high = min(ys), max(ys)
        margin = 0.08 * (high - low) or 0.1 * (high or 1)
        axes.set_ylim(max(0, low - margin), high + margin)
        axes.set_yticks(sorted({low, high}), [number(y) for y in sorted({low, high})])
        axes.set_xticks(sorted({min(xs), max(xs)}), [number(x) for x in sorted({min(xs), max(xs)})])
        axes.grid(axis="y", color=GRID.light, linewidth=0.8)
        if max(everything) > axes.get_ylim()[1]:
            axes.annotate(
                f"max {number(max(everything))}",
                ((xs[everything.index(max(everything))] - min(xs)) / (max(xs) - min(xs) or 1), 1),
                (3, 2),
                xycoords="axes fraction",
                textcoords="offset points",
                size=SIZE,
                color=MUTED.light,
            )


def warm_up(count: int) -> int:
    """How many of a series' points are its warm-up: a tenth, at least one of three."""
    return max(int(count * WARM_UP), 1 if count > 2 else 0)
