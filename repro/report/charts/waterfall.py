"""A waterfall: from one total to another by the steps that make the difference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from repro.report.charts.canvas import GRID, MUTED, STYLES, TEXT, WIDTH, Canvas, fill, legend_height, text_width
from repro.report.charts.lines import TOP, sentence
from repro.report.numbers import significant

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

ROW = 17


@dataclass(frozen=True)
class WaterfallChart:
    """Two named totals and the steps from the first to the second, whose sum is their difference.

    Totals are upright lines, not bars: the scale holds the steps and does not start at zero. `key` says what a step
    down and a step up mean.
    """

    title: str
    subtitle: str
    start: tuple[str, float]
    steps: tuple[tuple[str, float], ...]
    end: tuple[str, float]
    key: tuple[str, str]

    def __post_init__(self) -> None:
        reached = self.start[1] + sum(step for _label, step in self.steps)
        if abs(reached - self.end[1]) > 1e-6 * max(abs(self.start[1]), abs(self.end[1])):
            raise ValueError(f"{self.title}: the steps lead to {reached}, not to {self.end[1]}")

    def described(self) -> str:
        steps = (f"{label} {_signed(step)}" for label, step in self.steps)
        ends = (f"{label} {significant(value)}" for label, value in (self.start, self.end))
        first, last = ends
        return sentence(f"{self.title} ({self.subtitle})", (first, *steps, last))

    def draw(self) -> Drawing:
        labels = [self.start[0], *(label for label, _step in self.steps), self.end[0]]
        texts = [significant(self.start[1]), *(_signed(step) for _l, step in self.steps), significant(self.end[1])]
        head, height = TOP + legend_height(self.key), ROW * len(labels)
        canvas = Canvas(head + height + 22, self.title, self.subtitle)
        canvas.legend(TOP, self.key, canvas.box)
        left, right = max(map(text_width, labels)) + 10, max(map(text_width, texts)) + 10
        axes = canvas.axes(left, head, WIDTH - left - right, height)
        axes.set_ylim(len(labels) - 0.5, -0.5)
        axes.set_yticks([])
        axes.grid(axis="x", color=GRID.light, linewidth=0.8)
        axes.locator_params(axis="x", nbins=7)
        at, reached = self.start[1], [self.start[1]]
        _total(axes, 0, at)
        for row, (_label, step) in enumerate(self.steps, 1):
            style = STYLES[0] if step < 0 else STYLES[1]
            axes.barh(row, abs(step), 0.66, min(at, at + step), **fill(style))
            axes.plot((at, at), (row - 0.67, row - 0.33), color=MUTED.light, linewidth=0.7)
            at += step
            reached.append(at)
        _total(axes, len(labels) - 1, at)
        pad = 0.06 * (max(reached) - min(reached)) or 1.0
        axes.set_xlim(min(reached) - pad, max(reached) + pad)
        for row, (label, text) in enumerate(zip(labels, texts, strict=True)):
            weight = "bold" if row in (0, len(labels) - 1) else "normal"
            y = head + ROW * (row + 0.5) + 3
            canvas.text(left - 10, y, label, ha="right", weight=weight)
            canvas.text(WIDTH, y, text, ha="right", weight=weight)
        return canvas.figure


def _total(axes: Axes, row: int, value: float) -> None:
    axes.plot((value, value), (row - 0.42, row + 0.42), color=TEXT.light, linewidth=3.0, solid_capstyle="butt")


def _signed(value: float) -> str:
    """A step with its sign and two decimals, as parts of one sum have."""
    return f"{round(value, 2) + 0.0:+.2f}".replace("-", "−")
