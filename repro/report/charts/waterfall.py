"""Waterfalls: from one total to another by the steps that make the difference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from repro.report.charts.canvas import GRID, MUTED, TEXT, WIDTH, Canvas, Style, fill, legend_height, text_width, under
from repro.report.charts.lines import sentence
from repro.report.numbers import significant

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

ROW, HEADING, FOOT = 17, 16, 28
STEPS = (Style(MUTED, "-", "o", ""), Style(MUTED, "--", "s", "////"))
"""A step down and a step up: no series, so that neither has the colour of one."""


@dataclass(frozen=True)
class Waterfall:
    """Two named totals and the steps from the first to the second, whose sum is their difference."""

    title: str
    start: tuple[str, float]
    steps: tuple[tuple[str, float], ...]
    end: tuple[str, float]

    def __post_init__(self) -> None:
        reached = self.start[1] + sum(step for _label, step in self.steps)
        if abs(reached - self.end[1]) > 1e-6 * max(abs(self.start[1]), abs(self.end[1])):
            raise ValueError(f"{self.title}: the steps lead to {reached}, not to {self.end[1]}")

    @property
    def rows(self) -> list[tuple[str, str]]:
        """Labels and values from the first total to the last."""
        steps = [(label, _signed(step)) for label, step in self.steps]
        first, last = ((label, significant(value)) for label, value in (self.start, self.end))
        return [first, *steps, last]


@dataclass(frozen=True)
class WaterfallChart:
    """Waterfalls below each other, each on its own scale.

    Totals are upright lines, not bars: a scale holds the steps and does not start at zero. `key` says what a step down
    and a step up mean.
    """

    title: str
    subtitle: str
    panels: tuple[Waterfall, ...]
    key: tuple[str, str]

    def described(self) -> str:
        parts = (f"{panel.title} " + ", ".join(" ".join(row) for row in panel.rows) for panel in self.panels)
        return sentence(f"{self.title} ({self.subtitle})", parts)

    def draw(self) -> Drawing:
        rows = [row for panel in self.panels for row in panel.rows]
        head = under(self.subtitle) + legend_height(self.key)
        heights = [HEADING + ROW * len(panel.rows) + FOOT for panel in self.panels]
        canvas = Canvas(head + sum(heights), self.title, self.subtitle)
        canvas.legend(self.key, canvas.boxes(STEPS))
        left = max(text_width(label, bold=True) for label, _text in rows) + 10
        right = max(text_width(text, bold=True) for _label, text in rows) + 10
        top = float(head)
        for panel, height in zip(self.panels, heights, strict=True):
            canvas.text(0, top + 11, panel.title, weight="bold")
            axes = canvas.axes(left, top + HEADING, WIDTH - left - right, ROW * len(panel.rows))
            _draw_panel(axes, panel)
            for row, (label, text) in enumerate(panel.rows):
                weight = "bold" if row in (0, len(panel.rows) - 1) else "normal"
                y = top + HEADING + ROW * (row + 0.5) + 3
                canvas.text(left - 10, y, label, ha="right", weight=weight)
                canvas.text(WIDTH, y, text, ha="right", weight=weight)
            top += height
        return canvas.figure


def _draw_panel(axes: Axes, panel: Waterfall) -> None:
    axes.set_ylim(len(panel.rows) - 0.5, -0.5)
    axes.set_yticks([])
    axes.grid(axis="x", color=GRID.light, linewidth=0.8)
    axes.locator_params(axis="x", nbins=4)
    at, reached = panel.start[1], [panel.start[1]]
    _total(axes, 0, at)
    for row, (_label, step) in enumerate(panel.steps, 1):
        axes.barh(row, abs(step), 0.66, min(at, at + step), **fill(STEPS[step > 0]))
        axes.plot((at, at), (row - 0.67, row - 0.33), color=MUTED.light, linewidth=0.7)
        at += step
        reached.append(at)
    _total(axes, len(panel.rows) - 1, at)
    pad = 0.06 * (max(reached) - min(reached)) or 1.0
    axes.set_xlim(min(reached) - pad, max(reached) + pad)


def _total(axes: Axes, row: int, value: float) -> None:
    axes.plot((value, value), (row - 0.42, row + 0.42), color=TEXT.light, linewidth=3.0, solid_capstyle="butt")


def _signed(value: float) -> str:
    """A step with its sign and two decimals, as parts of one sum have."""
    return f"{round(value, 2) + 0.0:+.2f}".replace("-", "−")
