"""A matrix of published cases by report and number of GPUs, each marked by how far it was brought here.

Takes plain data, so that the page of a host and a page over all hosts can draw it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from repro.report.charts.canvas import (
    GRID,
    MUTED,
    PAPER,
    SERIES,
    SIZE,
    WIDTH,
    Canvas,
    Ink,
    legend_height,
    text_width,
    under,
)
from repro.report.charts.lines import sentence

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.figure import Figure as Drawing

AS_PUBLISHED, DERIVED, AUDITED, NOTHING = range(4)
"""How far a case was brought, best first: run in its published configuration; run shrunk or otherwise derived; not run,
but its figures were audited; none of these."""
LEVELS = (AS_PUBLISHED, DERIVED, AUDITED, NOTHING)
LINE, BOX, SPACE = 13, 9, 8
SMALL = SIZE - 1.5


@dataclass(frozen=True)
class CoveredCase:
    """A published case: its row (a report's name), its column (GPUs), what it is called there, and its level."""

    row: str
    gpus: int
    label: str
    level: int


@dataclass(frozen=True)
class CoverageChart:
    """All cases in one matrix; `levels` are the names of LEVELS, `columns` the title of each number of GPUs.

    The legend counts the cases of each level and leaves out those that no case is on.
    """

    title: str
    subtitle: str
    cases: tuple[CoveredCase, ...]
    levels: tuple[str, str, str, str]
    columns: dict[int, str]

    @property
    def counts(self) -> tuple[int, ...]:
        """How many cases are on each level."""
        return tuple(sum(case.level == level for case in self.cases) for level in LEVELS)

    def described(self) -> str:
        parts = (f"{name} {count}" for name, count in zip(self.levels, self.counts, strict=True))
        return sentence(f"{self.title} ({self.subtitle})", parts)

    def draw(self) -> Drawing:
        rows = list(dict.fromkeys(case.row for case in self.cases))
        gpus = sorted({case.gpus for case in self.cases})
        cells = {(row, n): [c for c in self.cases if (c.row, c.gpus) == (row, n)] for row in rows for n in gpus}
        heights = [LINE * max(len(cells[row, n]) for n in gpus) + SPACE for row in rows]
        used = [level for level in LEVELS if self.counts[level]]
        legend = [f"{self.levels[level]}: {self.counts[level]}" for level in used]
        head = under(self.subtitle) + legend_height(legend) + 16
        canvas = Canvas(head + sum(heights) + 4, self.title, self.subtitle)
        canvas.legend(legend, lambda index, x, y: _box(canvas, used[index], x + 4 / WIDTH, y))
        left = max(text_width(row) for row in rows) + 12
        lefts = _column_lefts(cells, rows, gpus, left)
        for n in gpus:
            canvas.text(lefts[n], head - 5, self.columns[n], color=MUTED.light)
        top = float(head)
        for row, height in zip(rows, heights, strict=True):
            _rule(canvas, top)
            canvas.text(0, top + 13, row, weight="normal")
            for n in gpus:
                for line, case in enumerate(cells[row, n]):
                    middle = top + SPACE / 2 + LINE * (line + 0.5)
                    x = lefts[n] / WIDTH
                    canvas.figure.add_artist(_box(canvas, case.level, x, 1 - middle / canvas.height))
                    ink = MUTED if case.level > DERIVED else None
                    color = {"color": ink.light} if ink else {}
                    canvas.text(lefts[n] + BOX + 4, middle + 3, case.label, size=SMALL, **color)
            top += height
        return canvas.figure


def _column_lefts(cells: dict, rows: Sequence[str], gpus: Sequence[int], left: float) -> dict[int, float]:
    """The left end of each column, with what room is left shared out between them."""
    widths = [BOX + 4 + max(text_width(case.label, SMALL) for row in rows for case in cells[row, n]) for n in gpus]
    spare = max(4.0, (WIDTH - left - sum(widths)) / len(gpus))
    lefts, at = {}, left
    for n, width in zip(gpus, widths, strict=True):
        lefts[n] = at
        at += width + spare
    return lefts


def _rule(canvas: Canvas, y: float) -> None:
    from matplotlib.lines import Line2D

    height = 1 - y / canvas.height
    canvas.figure.add_artist(Line2D([0, 1], [height, height], color=GRID.light, linewidth=0.8))


def _box(canvas: Canvas, level: int, x: float, y: float) -> Artist:
    from matplotlib.patches import Rectangle

    face, hatch, edge, line = LOOKS[level]
    return Rectangle(
        (x, y - BOX / 2 / canvas.height),
        BOX / WIDTH,
        BOX / canvas.height,
        facecolor=face.light,
        hatch=hatch,
        edgecolor=edge.light,
        linewidth=0.9,
        linestyle=line,
    )


LOOKS: tuple[tuple[Ink, str, Ink, str], ...] = (
    (SERIES[0], "", SERIES[0], "-"),
    (PAPER, "//////", SERIES[0], "-"),
    (PAPER, "", MUTED, "-"),
    (PAPER, "", MUTED, ":"),
)
"""Face, hatch, edge and line of each level's box: they differ without colour."""
