"""Names of a chart's rows: beside what they name, or above it where they would leave it less than half of the figure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from repro.report.charts.canvas import LINE, SIZE, TEXT, WIDTH, Canvas, fitting, text_width

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GAP = 10
"""Between a name and what it names, in points."""


@dataclass(frozen=True)
class RowLabels:
    """The names of rows; `height` is that of what a row shows without its name, in points."""

    texts: tuple[str, ...]
    height: float

    @property
    def above(self) -> bool:
        """Whether a name is above what it names."""
        return max(map(text_width, self.texts)) + GAP > WIDTH / 2

    @property
    def left(self) -> float:
        """Where what the rows show begins, in points."""
        return 0.0 if self.above else max(map(text_width, self.texts)) + GAP

    @property
    def row(self) -> float:
        """The height of a row, in points."""
        return self.height + (LINE if self.above else 0)

    @property
    def total(self) -> float:
        """The height of all rows, in points."""
        return self.row * len(self.texts)

    def at(self, row: int, part: float = 0.0) -> float:
        """A place of a row on the scale that `scale` gives its axes: `part` goes from -0.5, its top, to 0.5, its end."""
        return row + 0.5 - (0.5 - part) * self.height / self.row

    def scale(self, axes: Axes) -> None:
        """Give axes a scale on which row n goes from n - 0.5 to n + 0.5, with a tick in the middle of what it shows."""
        axes.set_ylim(len(self.texts) - 0.5, -0.5)
        places = [self.at(row) for row in range(len(self.texts))]
        axes.set_yticks(places, [""] * len(places))

    def write(self, canvas: Canvas, axes: Axes, top: float) -> None:
        """Write the names for axes with this scale that begin at `top`, in points."""
        if not self.above:
            axes.set_yticks(axes.get_yticks(), self.texts)
            axes.tick_params(axis="y", labelcolor=TEXT.light, pad=GAP - 2)
            return
        for row, text in enumerate(self.texts):
            canvas.text(0, top + self.row * row + LINE - 3, text, size=fitting(text, SIZE, WIDTH))
