"""A matrix of published cases by what they vary and number of GPUs, each a box that says how far it was brought here.

Takes plain data, so that the page of a host and a page over all hosts can draw it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from repro.report.charts.canvas import (
    GRID,
    MUTED,
    PAPER,
    SERIES,
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
LINE, HEADING, BOX, STEP = 15, 18, 9, 11
"""The heights of a line and of a report's name, the side of a box, and how far apart two boxes of one line begin."""


@dataclass(frozen=True)
class CoveredCase:
    """A published case: the name of its report, what it varies, its GPUs, and its level."""

    report: str
    label: str
    gpus: int
    level: int


@dataclass(frozen=True)
class CoverageChart:
    """All cases in one matrix, a box each; `levels` are the names of LEVELS, `gpus` the title of the columns.

    The legend counts the cases of each level and leaves out those that no case is on.
    """

    title: str
    subtitle: str
    cases: tuple[CoveredCase, ...]
    levels: tuple[str, str, str, str]
    gpus: str

    @property
    def counts(self) -> tuple[int, ...]:
        """How many cases are on each level."""
        return tuple(sum(case.level == level for case in self.cases) for level in LEVELS)

    def described(self) -> str:
        parts = (f"{name} {count}" for name, count in zip(self.levels, self.counts, strict=True))
        return sentence(f"{self.title} ({self.subtitle})", parts)

    def _rows(self) -> dict[str, dict[str, list[CoveredCase]]]:
        """The cases by report and label."""
        rows: dict[str, dict[str, list[CoveredCase]]] = {}
        for case in self.cases:
            rows.setdefault(case.report, {}).setdefault(case.label, []).append(case)
        return rows

    def draw(self) -> Drawing:
        rows = self._rows()
        used = [level for level in LEVELS if self.counts[level]]
        legend = [f"{self.levels[level]}: {self.counts[level]}" for level in used]
        head = under(self.subtitle) + legend_height(legend) + 16
        canvas = Canvas(
            head + sum(HEADING + LINE * len(by_label) + 5 for by_label in rows.values()), self.title, self.subtitle
        )
        canvas.legend(legend, lambda index, x, y: _box(canvas, used[index], x + 4 / WIDTH, y))
        lefts = self._column_lefts()
        canvas.text(min(lefts.values()) - 10, head - 5, self.gpus, color=MUTED.light, ha="right")
        for gpus, left in lefts.items():
            canvas.text(left, head - 5, str(gpus), color=MUTED.light)
        top = float(head)
        for report, by_label in rows.items():
            _rule(canvas, top)
            canvas.text(0, top + 13, report, weight="bold")
            top += HEADING
            for label, cases in by_label.items():
                canvas.text(10, top + LINE / 2 + 3, label)
                self._draw_boxes(canvas, lefts, 1 - (top + LINE / 2) / canvas.height, cases)
                top += LINE
            top += 5
        return canvas.figure

    def _column_lefts(self) -> dict[int, float]:
        """The left end of each number of GPUs: each has room for its most boxes, and an equal share of what is left."""
        together = Counter((case.report, case.label, case.gpus) for case in self.cases)
        most: dict[int, int] = {}
        for (_report, _label, gpus), count in together.items():
            most[gpus] = max(count, most.get(gpus, 0))
        left = max(text_width(text) for text in (self.gpus, *(case.label for case in self.cases))) + 24
        spare = (WIDTH - left - STEP * sum(most.values())) / len(most)
        lefts = {}
        for gpus in sorted(most):
            lefts[gpus] = left
            left += STEP * most[gpus] + spare
        return lefts

    def _draw_boxes(self, canvas: Canvas, lefts: dict[int, float], y: float, cases: list[CoveredCase]) -> None:
        """The boxes of a line, those with one number of GPUs side by side, the best first."""
        ordered = sorted(cases, key=lambda case: (case.gpus, case.level))
        for gpus, together in groupby(ordered, key=lambda case: case.gpus):
            for place, case in enumerate(together):
                canvas.figure.add_artist(_box(canvas, case.level, (lefts[gpus] + place * STEP) / WIDTH, y))


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
