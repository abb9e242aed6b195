"""A chart of many loss curves over their reference, and below them how far each is from it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from repro.report.charts.canvas import GRID, MUTED, SIZE, STYLES, TEXT, WIDTH, Canvas, Style, legend_height, under
from repro.report.charts.lines import number, sentence

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

LEFT, LOSS_HEIGHT, GAP, DEVIATION_HEIGHT = 42, 150, 30, 130
SMALLEST = 1e-9
"""Deviations below this are drawn here: a logarithmic scale has no zero."""


@dataclass(frozen=True)
class Group:
    """A label and the curves that it names, each with its reference: losses from the first iteration on."""

    label: str
    curves: tuple[tuple[tuple[float, ...], tuple[float, ...]], ...]


@dataclass(frozen=True)
class CurveChart:
    """Up to `len(STYLES)` groups of curves; empty ones keep their style but are not drawn.

    `references` are drawn above all, `limits` are labelled lines among the deviations, which are means over `window`
    iterations.
    """

    title: str
    subtitle: str
    x_label: str
    reference_label: str
    groups: tuple[Group, ...]
    references: tuple[tuple[float, ...], ...]
    limits: tuple[tuple[str, float], ...]
    window: int

    @property
    def _drawn(self) -> list[tuple[Group, Style]]:
        return [(group, style) for group, style in zip(self.groups, STYLES, strict=False) if group.curves]

    def described(self) -> str:
        parts = []
        for group, _style in self._drawn:
            worst = max(max(self._deviations(*curve)) for curve in group.curves)
            last = [curve[-1] for curve, _reference in group.curves]
            parts.append(f"{group.label}: {number(min(last))}–{number(max(last))}, {worst:.1e}")
        parts += [f"{label}: {value:.1e}" for label, value in self.limits]
        return sentence(f"{self.title} ({self.subtitle})", parts)

    @property
    def _visible(self) -> float:
        """The difference of losses that is a third of a point in the drawing."""
        every = [loss for group in self.groups for losses, _reference in group.curves for loss in losses]
        return (max(every) - min(every)) / LOSS_HEIGHT / 3

    def _deviations(self, losses: Sequence[float], reference: Sequence[float]) -> list[float]:
        apart = [abs(a - b) / abs(b) for a, b in zip(losses, reference, strict=True)]
        count = len(apart) - self.window + 1
        return [math.fsum(apart[start : start + self.window]) / self.window for start in range(count)]

    def draw(self) -> Drawing:
        labels = [self.reference_label, *(group.label for group, _style in self._drawn)]
        head = under(self.subtitle) + legend_height(labels)
        canvas = Canvas(head + LOSS_HEIGHT + GAP + DEVIATION_HEIGHT + 38, self.title, self.subtitle)
        styles = [style for _group, style in self._drawn]
        pens = [{"color": style.ink.light, "linestyle": style.line, "linewidth": 1.2} for style in styles]
        canvas.legend(labels, canvas.strokes([{"color": TEXT.light, "linewidth": 0.6}, *pens]))
        above = canvas.axes(LEFT, head, WIDTH - LEFT - 12, LOSS_HEIGHT)
        below = canvas.axes(LEFT, head + LOSS_HEIGHT + GAP, WIDTH - LEFT - 12, DEVIATION_HEIGHT)
        length = max(len(losses) for losses in self.references)
        for axes in (above, below):
            axes.set_xlim(1, length)
            axes.grid(axis="y", color=GRID.light, linewidth=0.8)
            axes.locator_params(axis="x", nbins=8)
        for group, style in reversed(self._drawn):
            pen: dict[str, Any] = {"color": style.ink.light, "linestyle": style.line, "linewidth": 0.9}
            for losses in distinct([losses for losses, _reference in group.curves], self._visible):
                above.plot(range(1, len(losses) + 1), losses, **pen)
            for losses, reference in group.curves:
                apart = [max(deviation, SMALLEST) for deviation in self._deviations(losses, reference)]
                below.plot(range(self.window, len(losses) + 1), apart, **pen)
        for losses in self.references:
            above.plot(range(1, len(losses) + 1), losses, color=TEXT.light, linewidth=0.6)
        self._scale(below)
        canvas.text(LEFT + (WIDTH - LEFT) / 2, canvas.height - 7, self.x_label, color=MUTED.light, ha="center")
        return canvas.figure

    def _scale(self, axes: Axes) -> None:
        from matplotlib.ticker import FuncFormatter

        axes.set_yscale("log")
        axes.minorticks_off()
        axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:.0e}"))
        for label, value in self.limits:
            axes.axhline(value, color=MUTED.light, linewidth=0.9, linestyle=(0, (6, 3)))
            axes.annotate(label, (1, value), (3, 3), textcoords="offset points", color=MUTED.light, size=SIZE)


def distinct(curves: Sequence[tuple[float, ...]], visible: float) -> list[tuple[float, ...]]:
    """The curves without those that are nowhere further than `visible` from one before: they would cover each other."""
    drawn: list[tuple[float, ...]] = []
    for curve in curves:
        close = (len(curve) == len(other) and max(map(_apart, curve, other)) <= visible for other in drawn)
        if not any(close):
            drawn.append(curve)
    return drawn


def _apart(one: float, other: float) -> float:
    return abs(one - other)
