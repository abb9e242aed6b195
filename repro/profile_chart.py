"""A chart of bars made of parts: the time of an iteration by what it went into."""

from dataclasses import dataclass, replace

from repro.charts import TOP, number, sentence
from repro.drawing import GRID, MUTED, PAPER, STYLES, TEXT, WIDTH, Canvas, Ink, Style, fill, legend_height, text_width

HATCHES = ("", "////", "....")
IDLE = Style(Ink(GRID.light, GRID.dark), "-", "o", "")


def style_of(index: int, parts: int) -> Style:
    """How a part is filled: neighbours differ in colour, parts of one colour in their hatch; the last one is idle."""
    if index == parts - 1:
        return IDLE
    colour, hatch = STYLES[index % len(STYLES)], HATCHES[index // len(STYLES)]
    return replace(colour, hatch=hatch)


@dataclass(frozen=True)
class StackedChart:
    """Horizontal bars; `values` holds for each row the value of each part, the last of which is idle time."""

    title: str
    subtitle: str
    rows: tuple[str, ...]
    parts: tuple[str, ...]
    values: tuple[tuple[float, ...], ...]

    def described(self) -> str:
        rows = (
            f"{row}: " + ", ".join(f"{part} {number(value, 2)}" for part, value in zip(self.parts, values, strict=True))
            for row, values in zip(self.rows, self.values, strict=True)
        )
        return sentence(f"{self.title} ({self.subtitle})", rows)

    def draw(self):
        head, height = TOP + legend_height(self.parts), 26 * len(self.rows)
        canvas = Canvas(head + height + 8, self.title, self.subtitle)
        canvas.legend(TOP, self.parts, lambda index, x, y: self._box(canvas, index, x, y))
        left = max(map(text_width, self.rows)) + 8
        axes = canvas.axes(left, head, WIDTH - left, height)
        axes.set_ylim(len(self.rows) - 0.5, -0.5)
        axes.set_yticks(range(len(self.rows)), self.rows)
        axes.tick_params(axis="y", labelcolor=TEXT.light, pad=6)
        axes.spines["bottom"].set_visible(False)
        axes.spines["left"].set_visible(True)
        axes.spines["left"].set_color(MUTED.light)
        axes.set_xticks([])
        totals = [sum(values) for values in self.values]
        room = text_width(number(max(totals))) + 8
        axes.set_xlim(0, max(totals) * (WIDTH - left) / (WIDTH - left - room))
        for row, values in enumerate(self.values):
            reached = 0.0
            for index, value in enumerate(values):
                if value > 0:
                    axes.barh(row, value, 0.7, reached, **self._fill(index))
                    reached += value
            axes.annotate(number(reached), (reached, row), (4, 0), textcoords="offset points", va="center",
                          color=TEXT.light)  # fmt: skip
        return canvas.figure

    def _fill(self, index: int) -> dict:
        style = style_of(index, len(self.parts))
        return {**fill(style), "edgecolor": MUTED.light if style is IDLE else style.ink.light if style.hatch
                else PAPER.light}  # fmt: skip

    def _box(self, canvas: Canvas, index: int, x: float, y: float):
        from matplotlib.patches import Rectangle

        height = 8 / canvas.height
        return Rectangle((x, y - height / 2), 17 / WIDTH, height, **self._fill(index))
