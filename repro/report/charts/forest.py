"""A forest plot: ratios with their intervals, what each is held to, and how many runs it is of."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from repro.report.charts.canvas import (
    GRID,
    LEGEND_ROW,
    MUTED,
    PAPER,
    SERIES,
    TEXT,
    WIDTH,
    Canvas,
    legend_height,
    text_width,
)
from repro.report.charts.lines import TOP, sentence
from repro.report.numbers import ratio, short, span

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

ROW, HEADING, GAP = 16, 18, 12
PAD = 0.05
"""What the scale has beyond the outermost value on either side, as a share of its length."""


@dataclass(frozen=True)
class ForestRow:
    """A ratio by its name, its interval if it has one, the number of sessions `n`, and how its target stands.

    `decides` says whether the interval may decide a target; `target` is the least ratio wanted, None without one.
    """

    label: str
    value: float
    interval: tuple[float, float] | None
    decides: bool
    n: int
    target: float | None = None
    status: str = ""


@dataclass(frozen=True)
class ForestChart:
    """Groups of rows with their headings, on one linear scale.

    `columns` are the titles of the ratio, the number of sessions and the status; `key` says what a filled dot, a hollow one
    and the line of a target mean.
    """

    title: str
    subtitle: str
    groups: tuple[tuple[str, tuple[ForestRow, ...]], ...]
    columns: tuple[str, str, str]
    key: tuple[str, str, str]

    def described(self) -> str:
        """Each group in short: the tables of the page have the rows."""
        parts = []
        for heading, rows in self.groups:
            values = sorted(row.value for row in rows)
            parts.append(f"{heading}: {span(map(ratio, values))} ({len(rows)})")
        return sentence(f"{self.title} ({self.subtitle})", parts)

    @property
    def _rows(self) -> list[ForestRow]:
        return [row for _heading, rows in self.groups for row in rows]

    @property
    def limits(self) -> tuple[float, float]:
        """The ends of the scale: all values, intervals and targets, and 1, with room beyond them."""
        values = [1.0]
        for row in self._rows:
            values += [row.value, *(row.interval or ()), *([] if row.target is None else [row.target])]
        low, high = min(values), max(values)
        pad = PAD * (high - low) or 0.1
        return low - pad, high + pad

    def _places(self) -> Iterator[tuple[float, str, ForestRow | None]]:
        """Headings and rows with the middle of their height below the top of the axes, in points."""
        at = 0.0
        for heading, rows in self.groups:
            yield at + HEADING / 2 + 2, heading, None
            at += HEADING
            for row in rows:
                yield at + ROW / 2, row.label, row
                at += ROW

    def draw(self) -> Drawing:
        height = HEADING * len(self.groups) + ROW * len(self._rows)
        head = TOP + legend_height(self.key) + LEGEND_ROW
        canvas = Canvas(head + height + 22, self.title, self.subtitle)
        canvas.legend(TOP, self.key, lambda index, x, y: _handle(canvas, index, x, y))
        left = max(text_width(row.label) for row in self._rows) + GAP
        widths = self._widths()
        right = sum(widths) + GAP * len(widths)
        axes = canvas.axes(left, head, WIDTH - left - right, height)
        axes.set_xlim(*self.limits)
        axes.set_ylim(height, 0)
        axes.set_yticks([])
        axes.xaxis.set_major_formatter(lambda x, _position: short(round(x, 6)))
        axes.locator_params(axis="x", nbins=6)
        axes.grid(axis="x", color=GRID.light, linewidth=0.8)
        axes.axvline(1.0, color=TEXT.light, linewidth=0.9)
        ends = [WIDTH - sum(widths[i + 1 :]) - GAP * len(widths[i + 1 :]) for i in range(len(widths))]
        for end, title in zip(ends, self.columns, strict=True):
            canvas.text(end, head - 4, title, ha="right", color=MUTED.light)
        for at, label, row in self._places():
            if row is None:
                canvas.text(0, head + at + 3, label, weight="bold")
                continue
            canvas.text(left - GAP, head + at + 3, label, ha="right")
            for end, text in zip(ends, self._texts(row), strict=True):
                canvas.text(end, head + at + 3, text, ha="right")
            _draw_row(axes, at, row)
        return canvas.figure

    def _texts(self, row: ForestRow) -> tuple[str, str, str]:
        return ratio(row.value), str(row.n), row.status

    def _widths(self) -> list[float]:
        """The width of each column at the right."""
        lines = [self.columns, *map(self._texts, self._rows)]
        return [max(map(text_width, column)) for column in zip(*lines, strict=True)]


def _draw_row(axes: Axes, at: float, row: ForestRow) -> None:
    ink = SERIES[0].light
    if row.target is not None and math.isfinite(row.target):
        axes.plot(
            (row.target,) * 2, (at - ROW / 2, at + ROW / 2), color=SERIES[1].light, linewidth=2.0, solid_capstyle="butt"
        )
    if row.interval:
        axes.plot(row.interval, (at, at), color=ink, linewidth=2.2 if row.decides else 1.0, solid_capstyle="butt")
        for end in row.interval:
            axes.plot((end, end), (at - 3, at + 3), color=ink, linewidth=1.2 if row.decides else 0.8)
    axes.plot(row.value, at, linestyle="", **_dot(row.decides))


def _dot(filled: bool) -> dict:
    ink = SERIES[0].light
    return {
        "marker": "o",
        "markersize": 6,
        "markerfacecolor": ink if filled else PAPER.light,
        "markeredgecolor": ink,
        "markeredgewidth": 1.3,
    }


def _handle(canvas: Canvas, index: int, x: float, y: float) -> Artist:
    from matplotlib.lines import Line2D

    middle = x + 11 / WIDTH
    if index == 2:
        half = 5 / canvas.height
        return Line2D((middle, middle), (y - half, y + half), color=SERIES[1].light, linewidth=2.0)
    return Line2D([middle], [y], linestyle="", **_dot(index == 0))
