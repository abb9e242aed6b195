"""A chart of bars made of parts: the time of an iteration by what it went into."""

from __future__ import annotations

from dataclasses import dataclass, replace
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
    Ink,
    Style,
    fill,
    legend_height,
    text_width,
    under,
)
from repro.report.charts.lines import number, sentence
from repro.report.charts.row_labels import RowLabels

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.figure import Figure as Drawing

ROW, BAR = 26, 18
"""The height of a row and of its bar, in points."""
HATCHES = ("", "////", "xxxx")
IDLE = Style(Ink(GRID.light, GRID.dark), "-", "o", "")


@dataclass(frozen=True)
class Part:
    """What a bar has a part for. Parts of different `place`, from 0 to 11, look different; idle time has none."""

    label: str
    place: int | None = None

    @property
    def style(self) -> Style:
        if self.place is None:
            return IDLE
        return replace(STYLES[self.place % len(STYLES)], hatch=HATCHES[self.place // len(STYLES)])

    def fill(self) -> dict:
        """How it is drawn: as other bars are, with a fine line between two solid parts."""
        style = self.style
        edge = MUTED.light if style is IDLE else style.ink.light if style.hatch else PAPER.light
        return {**fill(style), "edgecolor": edge}


@dataclass(frozen=True)
class StackedChart:
    """Horizontal bars with their totals; `values` holds for each row the value of each part."""

    title: str
    subtitle: str
    rows: tuple[str, ...]
    parts: tuple[Part, ...]
    values: tuple[tuple[float, ...], ...]

    def described(self) -> str:
        rows = (
            f"{row}: "
            + ", ".join(f"{part.label} {number(value, 2)}" for part, value in zip(self.parts, values, strict=True))
            for row, values in zip(self.rows, self.values, strict=True)
        )
        return sentence(f"{self.title} ({self.subtitle})", rows)

    def draw(self) -> Drawing:
        labels = [part.label for part in self.parts]
        rows, head = RowLabels(self.rows, ROW), under(self.subtitle) + legend_height(labels)
        canvas = Canvas(head + rows.total + 8, self.title, self.subtitle)
        canvas.legend(labels, lambda index, x, y: self._box(canvas, index, x, y))
        width = WIDTH - rows.left
        axes = canvas.axes(rows.left, head, width, rows.total)
        rows.scale(axes)
        rows.write(canvas, axes, head)
        axes.spines["bottom"].set_visible(False)
        axes.spines["left"].set_visible(True)
        axes.spines["left"].set_color(MUTED.light)
        axes.set_xticks([])
        totals = [sum(values) for values in self.values]
        room = max(text_width(f"{total:.1f}") for total in totals) + 8
        axes.set_xlim(0, max(totals) * width / (width - room))
        for row, values in enumerate(self.values):
            reached = 0.0
            for part, value in zip(self.parts, values, strict=True):
                if value > 0:
                    axes.barh(rows.at(row), value, BAR / rows.row, reached, **part.fill())
                    reached += value
            axes.annotate(
                f"{reached:.1f}",
                (reached, rows.at(row)),
                (4, 0),
                textcoords="offset points",
                va="center",
                size=SIZE,
                color=TEXT.light,
            )
        return canvas.figure

    def _box(self, canvas: Canvas, index: int, x: float, y: float) -> Artist:
        from matplotlib.patches import Rectangle

        height = 8 / canvas.height
        return Rectangle((x, y - height / 2), 17 / WIDTH, height, **self.parts[index].fill())
