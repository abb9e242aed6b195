"""A forest plot: ratios with their intervals on a logarithmic axis around 1, a panel for each program."""

from __future__ import annotations

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

ROW, HEADING, GAP, TITLE = 17, 18, 12, 16
PAD = 1.04
"""The factor by which the scale goes beyond the outermost values."""
APART = 3.5
"""How far above and below the middle of a row its two series lie, in points; each further series adds half of that."""
TICKS = (0.125, 0.25, 0.5, 0.7, 1, 1.4, 2, 3, 4, 8, 16)


@dataclass(frozen=True)
class ForestPoint:
    """A ratio of a series, by its place in the names, and its interval if it has one; one that is `printed` needs none."""

    series: int
    value: float
    interval: tuple[float, float] | None
    printed: bool = False


@dataclass(frozen=True)
class ForestRow:
    """A row's name, and its points in each panel."""

    label: str
    points: tuple[tuple[ForestPoint, ...], ...]


@dataclass(frozen=True)
class ForestChart:
    """Groups of rows with their headings; all panels have one logarithmic scale. `series` name the points of a row.

    A chart with one panel can do without its title.
    """

    title: str
    subtitle: str
    panels: tuple[str, ...]
    groups: tuple[tuple[str, tuple[ForestRow, ...]], ...]
    series: tuple[str, ...]
    styles: tuple[Style, ...] = STYLES

    def described(self) -> str:
        """Each panel and series in short: the tables of the page have the rows."""
        parts = []
        for heading, rows in self.groups:
            for panel, title in enumerate(self.panels):
                for index, name in enumerate(self.series):
                    points = [point for row in rows for point in row.points[panel] if point.series == index]
                    if points:
                        values = span(map(ratio, sorted(point.value for point in points)))
                        parts.append(f"{', '.join(filter(None, (heading, title, name)))}: {values} ({len(points)})")
        return sentence(f"{self.title} ({self.subtitle})", parts)

    @property
    def _apart(self) -> float:
        return APART * max(1.0, len(self.series) / 2)

    @property
    def _row(self) -> float:
        """The height of a row, in points: more where it has more than two series."""
        return ROW + 2 * (self._apart - APART)

    @property
    def _rows(self) -> list[ForestRow]:
        return [row for _heading, rows in self.groups for row in rows]

    @property
    def limits(self) -> tuple[float, float]:
        """The ends of the scale: 1, all values, and intervals as far as these do not go twice as far as the values."""
        points = [point for row in self._rows for panel in row.points for point in panel]
        values = [1.0, *(point.value for point in points)]
        low, high = min(values), max(values)
        ends = [end for point in points for end in point.interval or ()]
        return (
            max(min([low, *ends]), low / 1.5) / PAD,
            min(max([high, *ends]), high * 1.5) * PAD,
        )

    def _places(self) -> Iterator[tuple[float, str, ForestRow | None]]:
        """Headings and rows with the middle of their height below the top of the axes, in points."""
        at = 0.0
        for heading, rows in self.groups:
            yield at + HEADING / 2 + 2, heading, None
            at += HEADING
            for row in rows:
                yield at + self._row / 2, row.label, row
                at += self._row

    def draw(self) -> Drawing:
        height = HEADING * len(self.groups) + self._row * len(self._rows)
        head = under(self.subtitle) + legend_height(self.series) + (TITLE if any(self.panels) else 0)
        canvas = Canvas(head + height + 22, self.title, self.subtitle)
        canvas.legend(self.series, canvas.dots([_dot(style, filled=True) for style in self.styles]))
        headings = [text_width(heading, bold=True) for heading, _rows in self.groups]
        left = max(*headings, *(text_width(row.label) for row in self._rows)) + GAP
        width = (WIDTH - left) / len(self.panels)
        for panel, title in enumerate(self.panels):
            size = fitting(title, SIZE, width - GAP, bold=True)
            canvas.text(left + panel * width, head - 5, title, size=size, weight="bold")
            axes = canvas.axes(left + panel * width, head, width - GAP, height)
            self._scale(axes, height)
            for at, _label, row in self._places():
                for point in row.points[panel] if row else ():
                    self._draw_point(axes, at, point)
        for at, label, row in self._places():
            if row is None:
                canvas.text(0, head + at + 3, label, weight="bold")
            else:
                canvas.text(left - GAP, head + at + 3, label, ha="right")
        return canvas.figure

    def _scale(self, axes: Axes, height: float) -> None:
        low, high = self.limits
        axes.set_xscale("log")
        axes.minorticks_off()
        ticks = [tick for tick in TICKS if low <= tick <= high]
        axes.set_xticks(ticks, [short(tick) for tick in ticks])
        axes.set_xlim(low, high)
        axes.set_ylim(height, 0)
        axes.set_yticks([])
        axes.grid(axis="x", color=GRID.light, linewidth=0.8)
        axes.axvline(1.0, color=TEXT.light, linewidth=0.9)

    def _draw_point(self, axes: Axes, at: float, point: ForestPoint) -> None:
        series, style = len(self.series), self.styles[point.series]
        at += self._apart * (2 * point.series - series + 1) / (series - 1) if series > 1 else 0
        if point.interval:
            axes.plot(point.interval, (at, at), color=style.ink.light, linewidth=1.8, solid_capstyle="butt")
        dot = _dot(style, filled=point.printed or point.interval is not None)
        axes.plot(point.value, at, linestyle="", clip_on=False, **dot)  # one at the end of the scale is whole


def _dot(style: Style, filled: bool) -> dict:
    ink = style.ink.light
    return {
        "marker": style.marker,
        "markersize": 5,
        "markerfacecolor": ink if filled else PAPER.light,
        "markeredgecolor": ink,
        "markeredgewidth": 1.2,
    }
