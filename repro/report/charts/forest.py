"""A forest plot: ratios with their intervals on a logarithmic axis around 1."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from repro.report.charts.canvas import (
    GRID,
    PAPER,
    SIZE,
    STYLES,
    TEXT,
    WIDTH,
    Canvas,
    Style,
    fitting,
    legend_height,
    text_width,
    under,
)
from repro.report.charts.lines import sentence
from repro.report.numbers import ratio, short, span

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

HEADING, GAP, AXIS = 18, 12, 22
PAD = 1.04
"""The factor by which the scale goes beyond the outermost values."""
MARK, EDGE = 5, 1.2
APART = 7
"""Between the middles of two marks of a row, in points: more than a mark with its edge is high."""
TICKS = (1, 2, 0.5, 4, 0.25, 8, 0.125, 16, 1.4, 0.7, 3, 0.8, 1.2)
"""The values that the scale may name; where two labels would collide, the first of these has its own."""


@dataclass(frozen=True)
class ForestPoint:
    """A ratio of a series, by its place in the names, and its interval if it has one; one that is `printed` needs none."""

    series: int
    value: float
    interval: tuple[float, float] | None
    printed: bool = False


@dataclass(frozen=True)
class ForestRow:
    """A row's name, and its points."""

    label: str
    points: tuple[ForestPoint, ...]


@dataclass(frozen=True)
class ForestChart:
    """Groups of rows with their headings, on a logarithmic scale. `series` name the points of a row.

    How the names of a group begin is said once, beside its heading.
    """

    title: str
    subtitle: str
    groups: tuple[tuple[str, tuple[ForestRow, ...]], ...]
    series: tuple[str, ...]
    styles: tuple[Style, ...] = STYLES

    def described(self) -> str:
        """Each group and series in short: the tables of the page have the rows."""
        parts = []
        for heading, rows in self.groups:
            for index, name in enumerate(self.series):
                points = [point for row in rows for point in row.points if point.series == index]
                if points:
                    values = span(map(ratio, sorted(point.value for point in points)))
                    parts.append(f"{heading}, {name}: {values} ({len(points)})")
        return sentence(f"{self.title} ({self.subtitle})", parts)

    @property
    def limits(self) -> tuple[float, float]:
        """The ends of the scale: 1, all values, and intervals as far as these do not go twice as far as the values."""
        points = [point for _heading, rows in self.groups for row in rows for point in row.points]
        values = [1.0, *(point.value for point in points)]
        low, high = min(values), max(values)
        ends = [end for point in points for end in point.interval or ()]
        return (
            max(min([low, *ends]), low / 1.5) / PAD,
            min(max([high, *ends]), high * 1.5) * PAD,
        )

    def _places(self) -> Iterator[tuple[float, str, tuple[ForestPoint, ...]]]:
        """Headings and rows: the height of each in points, its text, and its points; a heading has none."""
        for heading, rows in self.groups:
            start, names = _shortened([row.label for row in rows])
            yield HEADING, f"{heading} ({start}…)" if start else heading, ()
            for name, row in zip(names, rows, strict=True):
                yield APART * len(row.points) + 8, name, row.points

    def draw(self) -> Drawing:
        places = list(self._places())
        height = sum(height for height, _text, _points in places)
        head = under(self.subtitle) + legend_height(self.series)
        canvas = Canvas(head + height + AXIS, self.title, self.subtitle)
        canvas.legend(self.series, canvas.dots([_dot(style, filled=True) for style in self.styles]))
        left = max(text_width(text) for _height, text, points in places if points) + GAP
        axes = canvas.axes(left, head, WIDTH - GAP - left, height)
        self._scale(axes, WIDTH - GAP - left, height)
        at = 0.0
        for height, text, points in places:
            middle = at + height / 2
            if points:
                canvas.text(left - GAP, head + middle + 3, text, ha="right")
            else:
                size = fitting(text, SIZE, WIDTH, bold=True)
                canvas.text(0, head + middle + 5, text, size=size, weight="bold")
            for index, point in enumerate(sorted(points, key=lambda point: point.series)):
                self._draw_point(axes, middle + APART * (index - (len(points) - 1) / 2), point)
            at += height
        return canvas.figure

    def _scale(self, axes: Axes, width: float, height: float) -> None:
        low, high = self.limits
        axes.set_xscale("log")
        axes.minorticks_off()
        ticks = _ticks(low, high, width)
        axes.set_xticks(ticks, [short(tick) for tick in ticks])
        axes.set_xlim(low, high)
        axes.set_ylim(height, 0)
        axes.set_yticks([])
        axes.grid(axis="x", color=GRID.light, linewidth=0.8)
        axes.axvline(1.0, color=TEXT.light, linewidth=0.9)

    def _draw_point(self, axes: Axes, at: float, point: ForestPoint) -> None:
        style = self.styles[point.series]
        if point.interval:
            axes.plot(point.interval, (at, at), color=style.ink.light, linewidth=1.8, solid_capstyle="butt")
        dot = _dot(style, filled=point.printed or point.interval is not None)
        axes.plot(point.value, at, linestyle="", clip_on=False, **dot)  # one at the end of the scale is whole


def _shortened(names: list[str]) -> tuple[str, list[str]]:
    """How all these names begin, up to an underscore, and the rest of each; one alone stays whole."""
    alike = os.path.commonprefix(names) if len(names) > 1 else ""  # noqa: RUF071 -- characters, not folders
    start = alike[: alike.rfind("_") + 1]
    return start, [name.removeprefix(start) for name in names]


def _ticks(low: float, high: float, width: float) -> list[float]:
    """The ticks of a scale of this width whose labels stand apart."""
    ticks: list[float] = []
    for tick in TICKS:
        apart = all(
            width * abs(math.log(tick / other)) / math.log(high / low) > text_width(short(tick) + short(other)) / 2 + 4
            for other in ticks
        )
        if low <= tick <= high and apart:
            ticks.append(tick)
    return sorted(ticks)


def _dot(style: Style, filled: bool) -> dict:
    ink = style.ink.light
    return {
        "marker": style.marker,
        "markersize": MARK,
        "markerfacecolor": ink if filled else PAPER.light,
        "markeredgecolor": ink,
        "markeredgewidth": EDGE,
    }
