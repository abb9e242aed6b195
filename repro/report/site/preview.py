"""The picture that chats show with a link to the site: its question, the answer, and how far each case was run.

It is in English for both languages, because a PNG with Chinese text depends on the fonts of the machine that draws it;
the title and description next to the picture are in the page's language.
"""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

from repro.report.charts.canvas import PAPER, TEXT
from repro.report.charts.coverage import LEVELS, LOOKS, CoverageChart

NAME = "preview.png"
WIDTH, HEIGHT = 1200, 630
"""Pixels, in the proportion that chats show uncut."""
LEFT, BOX = 70, 13


def write(file: Path, title: str, answer: str, coverage: CoverageChart) -> None:
    """Draw the picture: title and answer as text, a box for each case, and the number of cases on each level."""
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    with matplotlib.rc_context({"font.family": "DejaVu Sans", "hatch.linewidth": 0.8}):
        figure = Figure(figsize=(WIDTH / 100, HEIGHT / 100), dpi=100, facecolor=PAPER.light)
        axes = figure.add_axes((0, 0, 1, 1), xlim=(0, WIDTH), ylim=(HEIGHT, 0))
        axes.set_axis_off()

        def text(y: float, lines: list[str], size: float, **style: Any) -> float:
            for line in lines:
                axes.text(LEFT, y, line, size=size, color=TEXT.light, **style)
                y += 2.1 * size
            return y

        def box(level: int, x: float, y: float) -> None:
            face, hatch, edge, line = LOOKS[level]
            look: dict[str, Any] = {"facecolor": face.light, "hatch": hatch, "edgecolor": edge.light, "linestyle": line}
            axes.add_patch(Rectangle((x, y), BOX, BOX, linewidth=1, **look))

        y = text(115, textwrap.wrap(title, 40), 30, weight="bold")
        text(y + 10, textwrap.wrap(answer.replace("**", ""), 64), 20)
        used = [level for level in LEVELS if coverage.counts[level]]
        step = (WIDTH - 2 * LEFT) / len(coverage.cases)
        top = HEIGHT - 85 - 36 * len(used)
        for index, case in enumerate(sorted(coverage.cases, key=lambda case: case.level)):
            box(case.level, LEFT + step * index, top)
        for row, level in enumerate(used, 1):
            box(level, LEFT, top + 18 + 36 * row - BOX)
            axes.text(LEFT + 30, top + 18 + 36 * row, f"{coverage.counts[level]} {coverage.levels[level]}", size=16)
        figure.savefig(file, format="png", metadata={"Software": None})
