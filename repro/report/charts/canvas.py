"""Draws charts with matplotlib and writes them as SVG, the same bytes wherever they are drawn.

Text stays text, in the reader's own fonts, and nothing is placed by measuring it: the bytes depend neither on the fonts
of the machine nor on the date.
"""

from __future__ import annotations

import re
import unicodedata
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from xml.etree import ElementTree

from repro.utils.writing import write_bytes

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing
    from matplotlib.ft2font import FT2Font
    from matplotlib.transforms import Bbox

SVG_FONTS = (
    "'Helvetica Neue', Arial, 'PingFang SC', 'Microsoft YaHei', 'Noto Sans CJK SC', 'Source Han Sans SC', sans-serif"
)
SVG = "{http://www.w3.org/2000/svg}"
XLINK = "{http://www.w3.org/1999/xlink}"
WIDTH = 358
"""Points: as many as the pixels of a page's column on a phone 390 pixels wide, on which text of `SIZE` is 9 pixels high."""
MARGIN = 6
SIZE = 9.0
"""Of all text but titles: none is smaller, so that it can be read on a phone."""
LEGEND_ROW = 17
TOP, LINE = 46, 13
"""Where what follows a title and a line of subtitle begins, and the height of a line, in points."""
PARTS = re.compile(r"[\u3000-\u9fff\uff00-\uffef]|[^\s\u3000-\u9fff\uff00-\uffef]+\s*|\s+")
EM = 100


@dataclass(frozen=True)
class Ink:
    """A colour on white paper and its counterpart on dark paper, both as #rrggbb."""

    light: str
    dark: str


PAPER, TEXT = Ink("#ffffff", "#14181d"), Ink("#1d2329", "#e4e8ec")
MUTED, GRID = Ink("#5c6670", "#9aa5b1"), Ink("#e2e6ea", "#2d343c")
SERIES = (
    Ink("#0b4f9e", "#74b3ff"),
    Ink("#b9530e", "#ffa763"),
    Ink("#12766b", "#5ccfbf"),
    Ink("#7a3e9d", "#cfa3f0"),
    Ink("#515b66", "#b3bdc8"),
    Ink("#776000", "#d8bc4c"),
    Ink("#b5221b", "#ff8f86"),
    Ink("#b0246f", "#f58bc0"),
    Ink("#4c6b14", "#a9cc5c"),
    Ink("#7a4a32", "#d9a98c"),
    Ink("#006a86", "#59c9e8"),
)
INKS = (PAPER, TEXT, MUTED, GRID, *SERIES)


@dataclass(frozen=True)
class Style:
    """What tells one series from another: colour, and for grey prints line, marker and hatch too."""

    ink: Ink
    line: str
    marker: str
    hatch: str


STYLES = (
    Style(SERIES[0], "-", "o", ""),
    Style(SERIES[1], "--", "s", "////"),
    Style(SERIES[2], "-.", "^", "----"),
    Style(SERIES[3], ":", "D", "xxxx"),
)
"""Styles by order, for what has none of its own in `repro.report.charts.series`, such as batch sizes and repeats."""


class Chart(Protocol):
    """What can be written as a figure: it draws itself, and says in words what it shows.

    A frozen dataclass, so that two with the same representation are the same chart.
    """

    def draw(self) -> Drawing:
        """The drawing."""

    def described(self) -> str:
        """What the chart shows, for those who cannot see it."""


@dataclass(frozen=True)
class ChartStack:
    """Charts one below the other in one picture."""

    charts: tuple[Chart, ...]

    def described(self) -> str:
        return "; ".join(chart.described() for chart in self.charts)


class Canvas:
    """A figure laid out in points from its top left corner, with a title and a line that says what is drawn."""

    def __init__(self, height: float, title: str, subtitle: str):
        from matplotlib.figure import Figure

        self.height, self.top = height, under(subtitle)
        self.figure = Figure(figsize=(WIDTH / 72, height / 72), facecolor=PAPER.light)
        self.text(0, 15, title, size=fitting(title, SIZE + 2.5, WIDTH, bold=True), weight="bold")
        for row, line in enumerate(_lines(subtitle)):
            self.text(0, 31 + LINE * row, line, size=fitting(line, SIZE, WIDTH), color=MUTED.light)

    def axes(self, left: float, top: float, width: float, height: float) -> Axes:
        """Axes without a frame, ticks outside, grid behind."""
        box = (left / WIDTH, 1 - (top + height) / self.height, width / WIDTH, height / self.height)
        axes = self.figure.add_axes(box, facecolor="none")
        for side in ("top", "right", "left"):
            axes.spines[side].set_visible(False)
        axes.spines["bottom"].set_color(MUTED.light)
        axes.tick_params(length=0, colors=MUTED.light, labelsize=SIZE)
        axes.set_axisbelow(True)
        return axes

    def text(self, x: float, y: float, text: str, **style: Any) -> None:
        """Text whose baseline starts, or with `ha` ends or is centred, at a point of the figure."""
        self.figure.text(
            x / WIDTH, 1 - y / self.height, text, **{"size": SIZE, "color": TEXT.light, "va": "baseline", **style}
        )

    def legend(self, labels: Sequence[str], handle: Callable[[int, float, float], Artist]) -> None:
        """Rows of labels under the subtitle, each behind the artist that `handle(index, x, y)` makes."""
        for index, (left, row, label) in enumerate(legend_places(labels)):
            y = self.top + 8 + row * LEGEND_ROW
            self.figure.add_artist(handle(index, left / WIDTH, 1 - (y - 3.5) / self.height))
            self.text(left + 23, y, label)

    def boxes(self, styles: Sequence[Style]) -> Callable[[int, float, float], Artist]:
        """The handles of a legend for bars of these styles."""
        from matplotlib.patches import Rectangle

        height = 8 / self.height

        def box(index: int, x: float, y: float) -> Artist:
            return Rectangle((x, y - height / 2), 17 / WIDTH, height, **fill(styles[index]))

        return box

    def strokes(self, pens: Sequence[dict]) -> Callable[[int, float, float], Artist]:
        """The handles of a legend for lines that are drawn with these properties."""
        from matplotlib.lines import Line2D

        return lambda index, x, y: Line2D([x, x + 18 / WIDTH], [y, y], **pens[index])

    def dots(self, marks: Sequence[dict]) -> Callable[[int, float, float], Artist]:
        """The handles of a legend for points that are drawn with these properties."""
        from matplotlib.lines import Line2D

        return lambda index, x, y: Line2D([x + 11 / WIDTH], [y], linestyle="", **marks[index])


def fitting(text: str, size: float, width: float, bold: bool = False) -> float:
    """The size of text, made smaller as far as it needs to be to end within the figure."""
    return min(size, size * width / max(text_width(text, size, bold), 1))


def _lines(text: str) -> list[str]:
    """Text in as many lines as it needs, broken at spaces and between Chinese characters."""
    lines = [""]
    for part in PARTS.findall(text):
        if lines[-1] and text_width((lines[-1] + part).rstrip()) > WIDTH:
            lines.append("")
        lines[-1] += part
    return [line.strip() for line in lines]


def under(subtitle: str) -> float:
    """Where what follows a chart's title and subtitle begins, in points from the top."""
    return TOP + LINE * (len(_lines(subtitle)) - 1)


def legend_places(labels: Sequence[str]) -> list[tuple[float, int, str]]:
    """For each label of a legend its left end in points, its row and itself."""
    places, left, row = [], 0.0, 0
    for label in labels:
        room = 23 + text_width(label) + 14
        if left and left + room > WIDTH:
            left, row = 0.0, row + 1
        places.append((left, row, label))
        left += room
    return places


def legend_height(labels: Sequence[str]) -> float:
    """The height of a legend in points, 0 without labels."""
    return LEGEND_ROW * (legend_places(labels)[-1][1] + 1) if labels else 0


def fill(style: Style) -> dict:
    """How a bar of this style is filled: the first one solid, the others hatched on paper."""
    face = PAPER.light if style.hatch else style.ink.light
    return {"facecolor": face, "edgecolor": style.ink.light, "hatch": style.hatch, "linewidth": 0.8}


def text_width(text: str, size: float = SIZE, bold: bool = False) -> float:
    """How wide text is at most, in points: an em for a Chinese character, DejaVu Sans's own width for others.

    The fonts that readers have are narrower than DejaVu Sans or it, and matplotlib brings it along, so that the room
    left for a label does not depend on the machine. A label that is wider than its room leaves the picture, and a page
    that shows the picture inline cuts it off there.
    """
    return size * sum(_advance(character, bold) for character in text)


@cache
def _advance(character: str, bold: bool) -> float:
    """The width of a character in ems."""
    if unicodedata.east_asian_width(character) in "WF":
        return 1.0
    from matplotlib.ft2font import LoadFlags

    return _dejavu(bold).load_char(ord(character), flags=LoadFlags.NO_HINTING).linearHoriAdvance / 2**16 / EM


@cache
def _dejavu(bold: bool) -> FT2Font:
    """The font that matplotlib brings along, at EM points to the em."""
    from matplotlib import get_data_path
    from matplotlib.ft2font import FT2Font

    font = FT2Font(f"{get_data_path()}/fonts/ttf/DejaVuSans{'-Bold' if bold else ''}.ttf")
    font.set_size(EM, 72)
    return font


_drawn: dict[str, bytes] = {}
"""The SVG file of each chart drawn so far, by its representation: a tenth of a second goes into drawing one."""


def write_svg(chart: Chart | ChartStack, file: Path) -> None:
    """Draw a chart, which has `draw() -> matplotlib.figure.Figure`, or a stack of charts into an SVG file."""
    key = repr(chart)
    if key not in _drawn:
        root = _stacked(list(map(_svg, chart.charts))) if isinstance(chart, ChartStack) else _svg(chart)
        ElementTree.indent(root, "")
        _drawn[key] = (ElementTree.tostring(root, encoding="unicode") + "\n").encode()
    file.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(file, _drawn[key])


def _stacked(drawings: Sequence[ElementTree.Element]) -> ElementTree.Element:
    """Whole drawings inside one, each below the one before; all are equally wide, and what has the same id is the same."""
    whole = ElementTree.Element(f"{SVG}svg")
    ids: set[str] = set()
    below = 0.0
    for drawing in drawings:
        _left, _top, width, height = drawing.attrib["viewBox"].split()
        drawing.attrib |= {"y": _short(str(below)), "width": width, "height": height}
        for parent in list(drawing.iter()):
            for child in [child for child in parent if child.get("id") in ids]:
                parent.remove(child)
        ids |= {element.attrib["id"] for element in drawing.iter() if "id" in element.attrib}
        below += float(height)
    whole.extend(drawings)
    _unwrap(whole)
    size = {"width": width, "height": _short(str(below))}
    whole.attrib |= {name: f"{value}pt" for name, value in size.items()} | {
        "viewBox": " ".join(("0 0", *size.values()))
    }
    return whole


def _svg(chart: Chart) -> ElementTree.Element:
    import io

    import matplotlib

    out = io.StringIO()
    settings: Any = {
        "svg.fonttype": "none",
        "svg.hashsalt": "repro",
        "font.family": "DejaVu Sans",
        "hatch.linewidth": 0.7,
    }
    with matplotlib.rc_context({**settings, "path.simplify": False}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*[Gg]lyph.*missing")
        figure = chart.draw()
        figure.savefig(out, format="svg", bbox_inches=_frame(figure), metadata={"Date": None, "Creator": None})
    return _tidy(out.getvalue())


def _frame(figure: Drawing) -> Bbox:
    from matplotlib.transforms import Bbox

    margin = MARGIN / 72
    return Bbox.from_extents(-margin, -margin, figure.get_figwidth() + margin, figure.get_figheight() + margin)


def _tidy(svg: str) -> ElementTree.Element:
    """The SVG with attributes in place of inline styles, short numbers, the readers' fonts, and nothing idle."""
    ElementTree.register_namespace("", SVG[1:-1])
    root = ElementTree.fromstring(svg)
    referred = set(re.findall(r"#([\w.-]+)", re.sub(r"#[0-9a-f]{6}\b", "", svg)))
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in (f"{SVG}metadata", f"{SVG}style"):
                parent.remove(child)
        for name, value in _styles(parent.attrib.pop("style", "")):
            parent.set(name, value)
        if parent.get("id") not in referred:
            parent.attrib.pop("id", None)
        parent.attrib.pop("font-family", None)
        if parent.get("transform", "").startswith(("rotate(-0 ", "rotate(0 ")):
            del parent.attrib["transform"]
        if f"{XLINK}href" in parent.attrib:
            parent.set("href", parent.attrib.pop(f"{XLINK}href"))
        for name in parent.attrib.keys() & {"d", "x", "y", "points", "transform", "width", "height", "viewBox"}:
            parent.set(name, re.sub(r"-?\d+\.\d+", lambda number: _short(number[0]), parent.attrib[name]))
        if "d" in parent.attrib:
            parent.set("d", _path(parent.attrib["d"]))
    _unwrap(root)
    root.attrib.pop("version", None)
    for name, value in {"font-family": SVG_FONTS, "stroke-linejoin": "round", "stroke-linecap": "butt"}.items():
        root.set(name, value)
    return root


def _unwrap(parent: ElementTree.Element) -> None:
    """Put what is in groups that set nothing into the group around them, and leave out what defines nothing."""
    children: list[ElementTree.Element] = []
    for child in parent:
        _unwrap(child)
        idle = not child.attrib and (child.tag == f"{SVG}g" or (child.tag == f"{SVG}defs" and not len(child)))
        children += child if idle else [child]
    parent[:] = children


def _path(commands: str) -> str:
    """A path's commands without the letters of lines that follow a line, which SVG takes for granted."""
    parts, last = [], ""
    for part in commands.split():
        if not (part == last == "L"):
            parts.append(part)
        last = part if part.isalpha() else last
    return " ".join(parts)


def _styles(style: str) -> Iterator[tuple[str, str]]:
    """The declarations of an inline style as attributes; ValueError for a font in a form that matplotlib never writes."""
    for declaration in filter(None, (text.strip() for text in style.split(";"))):
        name, value = (part.strip() for part in declaration.split(":", 1))
        if name == "font":
            match = re.fullmatch(r"(?:(bold|\d+) )?([\d.]+px) .*", value)
            if not match:
                raise ValueError(f"font: {value}: not a weight, a size in px and a family")
            yield "font-size", match[2]
            if match[1]:
                yield "font-weight", match[1]
        else:
            yield name, value


def _short(number: str) -> str:
    text = f"{float(number):.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text
