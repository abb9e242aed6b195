"""Small panels below each other of published lines and the points measured now, over numbers of GPUs that double."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from repro.report.charts.canvas import (
    GRID,
    MUTED,
    PAPER,
    SIZE,
    TEXT,
    WIDTH,
    Canvas,
    Style,
    legend_height,
    text_width,
    under,
)
from repro.report.charts.lines import sentence, spread_out
from repro.report.charts.series import AS_PUBLISHED, style
from repro.report.numbers import percentage, short

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

PUBLISHED = style(AS_PUBLISHED)
PANEL, LABEL_GAP = 140, 12
LEFT, HEAD, FOOT = 34, 18, 26
MOST_FLAT = 0.9
"""Every panel reaches down to this share, so that a small loss is not drawn as a large one."""


@dataclass(frozen=True)
class OverlayLine:
    """A published line, the points measured with the same work on each GPU, and the name of both; either may be empty.

    `style` is that of the program that was measured. `intervals` are those of points: the number of GPUs, the lower and
    the upper end.
    """

    label: str
    published: tuple[tuple[float, float], ...]
    measured: tuple[tuple[float, float], ...]
    style: Style
    intervals: tuple[tuple[float, float, float], ...] = ()


@dataclass(frozen=True)
class OverlayPanel:
    """A panel's title and its lines."""

    title: str
    lines: tuple[OverlayLine, ...]


@dataclass(frozen=True)
class OverlayChart:
    """Shares over numbers of GPUs. All panels have the same numbers of GPUs; each has its own scale of shares.

    `names` are those of what was published and of what was measured.
    """

    title: str
    subtitle: str
    x_label: str
    panels: tuple[OverlayPanel, ...]
    names: tuple[str, str]

    def described(self) -> str:
        parts = []
        for panel in self.panels:
            for index, name in enumerate(self.names):
                points = [point for line in panel.lines for point in (line.published, line.measured)[index]]
                several = [y for x, y in points if x > 1]
                if several:
                    last = short(max(x for x, _y in points))
                    parts.append(
                        f"{panel.title}, {name}: {percentage(min(several))}–{percentage(max(several))} "
                        f"({self.x_label} ≤ {last})"
                    )
        return sentence(f"{self.title} ({self.subtitle})", parts)

    def draw(self) -> Drawing:
        head = under(self.subtitle) + legend_height(self.names)
        canvas = Canvas(head + len(self.panels) * PANEL + 10, self.title, self.subtitle)
        canvas.legend(self.names, lambda index, x, y: _handle(index, x, y))
        for index, panel in enumerate(self.panels):
            top = head + index * PANEL
            canvas.text(0, top + 11, panel.title, weight="bold")
            room = max(text_width(line.label) for line in panel.lines) + 14
            axes = canvas.axes(LEFT, top + HEAD, WIDTH - LEFT - room, PANEL - HEAD - FOOT)
            self._scale(axes, panel)
            for line in panel.lines:
                _draw_line(axes, line)
            _name_lines(axes, panel, PANEL - HEAD - FOOT)
        canvas.text(WIDTH / 2, canvas.height - 3, self.x_label, color=MUTED.light, ha="center")
        return canvas.figure

    def _scale(self, axes: Axes, panel: OverlayPanel) -> None:
        last = 2 ** math.ceil(math.log2(max(x for x, _y in _points(self.panels))))
        ends = [end for line in panel.lines for _x, *both in line.intervals for end in both]
        ys = [*(y for _x, y in _points([panel])), *ends]
        ticks = [2**power for power in range(int(math.log2(last)) + 1)]
        axes.set_xscale("log", base=2)
        axes.minorticks_off()
        axes.set_xticks(ticks, [short(x) for x in ticks])
        axes.set_xlim(0.85, last * 1.1)
        low, high = min(MOST_FLAT, *ys), max(1.0, *ys)
        pad = 0.08 * (high - low)
        axes.set_ylim(low - pad, high + pad)
        axes.yaxis.set_major_formatter(lambda y, _position: f"{short(100 * round(y, 6))}%")
        axes.locator_params(axis="y", nbins=5)
        axes.grid(axis="y", color=GRID.light, linewidth=0.8)


def _points(panels: Iterable[OverlayPanel]) -> list[tuple[float, float]]:
    return [point for panel in panels for line in panel.lines for point in (*line.published, *line.measured)]


def _draw_line(axes: Axes, line: OverlayLine) -> None:
    style, ink = line.style, PUBLISHED.ink.light
    if line.published:
        axes.plot(
            *zip(*line.published, strict=True),
            color=ink,
            linewidth=1.1,
            linestyle=(0, (4, 2)),
            marker=PUBLISHED.marker,
            markersize=3.6,
            markerfacecolor=PAPER.light,
            markeredgecolor=ink,
        )
    for x, low, high in line.intervals:
        axes.plot((x, x), (low, high), color=style.ink.light, linewidth=1.4, solid_capstyle="butt")
    if line.measured:
        axes.plot(
            *zip(*line.measured, strict=True),
            color=style.ink.light,
            linewidth=2.0,
            marker=style.marker,
            markersize=5.5,
            markeredgecolor=PAPER.light,
            markeredgewidth=0.6,
        )


def _name_lines(axes: Axes, panel: OverlayPanel, height: float) -> None:
    """Each line's name at the right, as high as its last point, moved apart where ends are close."""
    low, high = axes.get_ylim()
    ends = []
    for index, line in enumerate(panel.lines):
        points = line.published or line.measured
        ends.append(((points[-1][1] - low) / (high - low) * height, index))
    ends.sort()
    for (_at, index), place in zip(ends, spread_out([at for at, _ in ends], LABEL_GAP, height), strict=True):
        axes.annotate(
            panel.lines[index].label,
            (1, place / height),
            (6, -3),
            xycoords="axes fraction",
            textcoords="offset points",
            color=panel.lines[index].style.ink.light,
            size=SIZE,
            annotation_clip=False,
        )


def _handle(index: int, x: float, y: float) -> Artist:
    from matplotlib.lines import Line2D

    pen: dict[str, Any] = (
        {
            "color": PUBLISHED.ink.light,
            "marker": PUBLISHED.marker,
            "linewidth": 1.1,
            "linestyle": (0, (4, 2)),
            "markerfacecolor": PAPER.light,
            "markersize": 3.6,
        },
        {"color": TEXT.light, "marker": "o", "linewidth": 2.0, "markersize": 4.5},
    )[index]
    ends = [x + 1 / WIDTH, x + 15 / WIDTH]
    return Line2D(ends, [y, y], **pen)
