"""Charts whose rows have names: horizontal bars, and dots on one scale.

Each holds its texts in one language and its data; `draw()` makes the figure, `described()` says the data in words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from repro.report.charts.canvas import (
    GRID,
    MUTED,
    PAPER,
    SIZE,
    STYLES,
    TEXT,
    WIDTH,
    Canvas,
    Style,
    fill,
    fitting,
    legend_height,
    text_width,
    under,
)
from repro.report.charts.lines import number, sentence
from repro.report.charts.row_labels import RowLabels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

COLUMNS, BAR, DOTS = 2, 13, 17
"""Panels side by side; the height of a bar with the gap to the next, and of a row of dots, in points."""


@dataclass(frozen=True)
class Panel:
    """One column of a bar chart: for each row the value of each series, None where there is none."""

    title: str
    values: tuple[tuple[float | None, ...], ...]


@dataclass(frozen=True)
class BarChart:
    """Horizontal bars with their values, in one panel or several, two side by side.

    With one series the rows in `emphasis` are solid and the others hatched. `limit` is a line with a label. Each panel has
    a scale of its own unless all have `one_scale`.
    """

    title: str
    subtitle: str
    rows: tuple[str, ...]
    panels: tuple[Panel, ...]
    series: tuple[str, ...] = ("",)
    emphasis: frozenset[int] = frozenset()
    limit: tuple[str, float] | None = None
    decimals: int | None = None
    styles: tuple[Style, ...] = STYLES
    one_scale: bool = False

    def described(self) -> str:
        parts = (
            f"{panel.title} {row}".strip()
            + " "
            + ", ".join(f"{name} {self._text(value)}".strip() for name, value in zip(self.series, values, strict=True))
            for panel in self.panels
            for row, values in zip(self.rows, panel.values, strict=True)
        )
        return sentence(f"{self.title} ({self.subtitle})", parts)

    def _text(self, value: float | None) -> str:
        return "–" if value is None else number(value, self._decimals)

    @property
    def _decimals(self) -> int:
        """As given, or as many as give the largest value four digits."""
        if self.decimals is not None:
            return self.decimals
        largest = max(
            value for panel in self.panels for values in panel.values for value in values if value is not None
        )
        return max(0, 4 - len(str(int(largest))))

    @property
    def _labels(self) -> RowLabels:
        return RowLabels(self.rows, 7 + BAR * len(self.series))

    @property
    def _several(self) -> bool:
        return len(self.series) > 1

    def draw(self) -> Drawing:
        legend = self.series if self._several else ()
        above = 18 if self.panels[0].title or self.limit else 0
        rows, head = self._labels, under(self.subtitle) + legend_height(legend)
        columns = min(COLUMNS, len(self.panels))
        lines = -(-len(self.panels) // columns)
        panel_height = above + rows.total + 8
        canvas = Canvas(head + lines * panel_height, self.title, self.subtitle)
        canvas.legend(legend, canvas.boxes(self.styles))
        panel_width = (WIDTH - rows.left) / columns
        for i, panel in enumerate(self.panels):
            left, top = rows.left + (i % columns) * panel_width, head + above + (i // columns) * panel_height
            axes = canvas.axes(left, top, panel_width - 14, rows.total)
            self._draw_panel(axes, panel, panel_width - 14)
            if not i % columns:
                rows.write(canvas, axes, top)
            if panel.title:
                size = fitting(panel.title, SIZE, panel_width - 14, bold=True)
                canvas.text(left, top - 5, panel.title, size=size, weight="bold")
        return canvas.figure

    def _draw_panel(self, axes: Axes, panel: Panel, width: float) -> None:
        self._labels.scale(axes)
        axes.spines["bottom"].set_visible(False)
        axes.spines["left"].set_visible(True)
        axes.spines["left"].set_color(MUTED.light)
        axes.set_xticks([])
        scaled = self.panels if self.one_scale else (panel,)
        shown = [value for column in scaled for values in column.values for value in values if value is not None]
        largest = max(shown)
        widest = max(text_width(self._text(value)) for value in shown) + 6
        if self.limit:
            largest = max(largest, self.limit[1])
        axes.set_xlim(0, largest * width / max(width - widest, 20))
        thick = BAR / self._labels.row
        for row, values in enumerate(panel.values):
            for index, value in enumerate(values):
                if value is not None:
                    at = self._labels.at(row) + (index - (len(values) - 1) / 2) * thick
                    style = self.styles[index] if self._several or row in self.emphasis else self.styles[1]
                    self._draw_bar(axes, at, value, thick, style)
        if self.limit:
            _draw_limit(axes, *self.limit)

    def _draw_bar(self, axes: Axes, at: float, value: float, thick: float, style: Style) -> None:
        axes.barh(at, value, thick * 0.84, **fill(style))
        behind = {"facecolor": PAPER.light, "edgecolor": "none", "pad": 0.6} if self.limit else None
        axes.annotate(
            self._text(value),
            (value, at),
            (4, 0),
            textcoords="offset points",
            va="center",
            size=SIZE,
            color=TEXT.light,
            bbox=behind,
        )


@dataclass(frozen=True)
class DotChart:
    """Values of each row as dots on one scale; `series` name the dots of a row, joined by a thin line.

    A named dot may be missing in a row. Without names the dots of a row are alike, and `marks` are the row's short
    vertical line. `notes` are texts at the right end of the rows.
    """

    title: str
    subtitle: str
    rows: tuple[str, ...]
    values: tuple[tuple[float | None, ...], ...]
    series: tuple[str, ...] = ()
    marks: tuple[float, ...] = ()
    limit: tuple[str, float] | None = None
    decimals: int | None = None
    notes: tuple[str, ...] = ()
    styles: tuple[Style, ...] = STYLES

    def described(self) -> str:
        parts = (
            f"{row} "
            + ", ".join(
                f"{name} {number(value, self.decimals)}".strip()
                for name, value in zip(self._names(values), values, strict=True)
                if value is not None
            )
            for row, values in zip(self.rows, self.values, strict=True)
        )
        return sentence(f"{self.title} ({self.subtitle})", parts)

    def _names(self, values: Sequence[float | None]) -> tuple[str, ...]:
        return self.series or ("",) * len(values)

    def draw(self) -> Drawing:
        rows, height = self._labels, self._labels.total
        head = under(self.subtitle) + legend_height(self.series) + (14 if self.limit else 0)
        canvas = Canvas(head + height + 30, self.title, self.subtitle)
        right = max(16.0, *(text_width(note) + 14 for note in self.notes)) if self.notes else 16.0
        left = rows.left or 8.0
        axes = canvas.axes(left, head, WIDTH - left - right, height)
        rows.scale(axes)
        rows.write(canvas, axes, head)
        for row, note in enumerate(self.notes):
            canvas.text(WIDTH, head + rows.row * (rows.at(row) + 0.5) + 3, note, ha="right")
        axes.grid(axis="both", color=GRID.light, linewidth=0.8)
        for row, values in enumerate(self.values):
            self._draw_row(axes, row, values)
        self._scale(axes)
        canvas.legend(self.series, canvas.dots([_dot(style, at > 0) for at, style in enumerate(self.styles)]))
        if self.limit:
            _draw_limit(axes, *self.limit)
        return canvas.figure

    @property
    def _labels(self) -> RowLabels:
        return RowLabels(self.rows, DOTS)

    def _draw_row(self, axes: Axes, row: int, values: Sequence[float | None]) -> None:
        drawn, middle = [value for value in values if value is not None], self._labels.at(row)
        if self.series:
            axes.plot((min(drawn), max(drawn)), (middle, middle), color=MUTED.light, linewidth=0.9)
        for index, value in enumerate(values):
            if value is None:
                continue
            dot = _dot(self.styles[index if self.series else 0], hollow=index > 0 or not self.series)
            axes.plot(value, middle, linestyle="", **dot, clip_on=False)
        if self.marks:
            ends = [self._labels.at(row, part) for part in (-0.5, 0.5)]
            axes.plot((self.marks[row],) * 2, ends, color=TEXT.light, linewidth=1.5)

    def _scale(self, axes: Axes) -> None:
        from matplotlib.ticker import FuncFormatter, MaxNLocator

        drawn = [value for values in self.values for value in values if value is not None]
        if self.series:
            largest = max([*drawn, *([self.limit[1]] if self.limit else [])])
            axes.set_xlim(0, largest * 1.02)
        elif self.marks:
            reach = 1.1 * max(map(abs, drawn)) or 1
            axes.set_xlim(-reach, reach)
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: _deviation(x) if self.marks else number(x)))


def _deviation(percent: float) -> str:
    return f"{percent:+g}%".replace("-", "−") if percent else "0"


def _draw_limit(axes: Axes, label: str, value: float) -> None:
    axes.axvline(value, color=MUTED.light, linewidth=0.9, linestyle=(0, (6, 3)), zorder=0.5)
    axes.annotate(
        label,
        (value, -0.5),
        (0, 5),
        textcoords="offset points",
        ha="right",
        size=SIZE,
        color=MUTED.light,
        annotation_clip=False,
    )


def _dot(style: Style, hollow: bool) -> dict:
    face = PAPER.light if hollow else style.ink.light
    return {
        "marker": style.marker,
        "markersize": 5.5,
        "markerfacecolor": face,
        "markeredgecolor": style.ink.light,
        "markeredgewidth": 1.1,
    }
