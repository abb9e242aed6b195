"""The parts of a report, independent of Markdown or HTML: sections of text, tables, figures and attached files.

A report is built once per language, with all sentences looked up in that language's catalogue. Both languages have the
same sections, blocks, identifiers and numbers; each format is one template over these classes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from repro.utils.paths import CACHE
from repro.utils.printable import printable, visible

if TYPE_CHECKING:
    from jinja2 import Template

TEMPLATES = Path(__file__).resolve().parent / "templates"
CODE = re.compile(r"((?<!`)`[^`\n]+`(?!`))")
TAG = re.compile(r"<(?=[A-Za-z/!?])")
LINK = re.compile(r"\](?=[(\[:])")
"""Where the words of a link end: what follows is its target, in place, by name, or of that name."""
TONES = ("", "good", "bad", "muted")


@dataclass(frozen=True)
class Cell:
    """A table cell. `sort` is the sort key if it is not the text, `note` is shown after the text.

    `anchor` is the target of links to this cell; it is the same in each language. `claim` names the published figure that
    the cell shows or is compared with; the site makes an anchor and a `link` of it.
    """

    text: str
    sort: float | None = None
    note: str = ""
    tone: str = ""
    anchor: str = ""
    claim: str = ""
    link: str = ""


@dataclass(frozen=True)
class Column:
    """A table's column; numbers are set flush right.

    In HTML a `filtered` one has a menu of its values, and a `minor` one is left out on narrow screens.
    """

    title: str
    numeric: bool = False
    filtered: bool = False
    minor: bool = False


@dataclass(frozen=True)
class Table:
    """Rows of cells, as many per row as there are columns; `id` is unique in a document and the same in each language.

    A table that is alone in its section may do without a caption: it then has the section's title.
    """

    id: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    caption: str = ""
    kind: str = "table"

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"table {self.id}: a row has {len(row)} cells for {len(self.columns)} columns")


@dataclass(frozen=True)
class Text:
    """A paragraph; text between backticks is code."""

    text: str
    kind: str = "text"


@dataclass(frozen=True)
class Items:
    """A list of short paragraphs."""

    items: tuple[str, ...]
    kind: str = "items"


@dataclass(frozen=True)
class Code:
    """Text kept as it is: a command, or the end of a log."""

    text: str
    kind: str = "code"


@dataclass(frozen=True)
class Figure:
    """A picture: `file` is an SVG in this language, `alternative` describes it for readers who cannot see it.

    `captions` holds one caption per drawing, "" for a drawing without one.
    """

    id: str
    file: Path
    alternative: str
    captions: tuple[str, ...]
    kind: str = "figure"

    @property
    def caption(self) -> str:
        """The captions as one text, for a format that shows the drawings as one picture."""
        return " ".join(filter(None, self.captions)).replace("。 ", "。")


@dataclass(frozen=True)
class Attachment:
    """A file of the run that a reader can open from the report."""

    id: str
    file: Path
    title: str
    kind: str = "attachment"


Block = Table | Text | Items | Code | Figure | Attachment


@dataclass(frozen=True)
class Section:
    """A heading and what follows it; `level` is 2 or 3, `id` the same in each language.

    A `folded` section shows its title only, until the reader opens it. In Markdown, the identifiers of folded and of
    `anchored` sections are anchors, to which links of other pages lead.
    """

    id: str
    title: str
    blocks: tuple[Block, ...] = ()
    level: int = 2
    folded: bool = False
    anchored: bool = False


@dataclass(frozen=True)
class Document:
    """One report in one language ("zh" or "en").

    `links` is whether `[words](target)` in its texts is a link; not in reports on runs, whose words may be from others.
    """

    language: str
    title: str
    lead: str
    sections: tuple[Section, ...]
    links: bool = True


def markdown(document: Document, folder: Path) -> str:
    """The document as Markdown; links to files are relative to `folder`, its future location."""

    def relative(path: Path) -> str:
        return Path(os.path.relpath(path, folder)).as_posix()

    made = template("document.md.j2", plain=plain if document.links else without_links)
    return visible(made.render(document=document, relative=relative, fence=fence))


def fence(text: str) -> str:
    """The fence of a code block with this text: longer than any that is in it."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    return "`" * max(3, longest + 1)


def plain(text: str) -> str:
    """A paragraph for Markdown: code between backticks stays code, and nothing else becomes HTML or a picture.

    Backticks that are no pair, and more than one at a time, stay what they are and open nothing.
    """
    return "".join(
        part if CODE.fullmatch(part) else TAG.sub("&lt;", part.replace("`", "\\`").replace("![", "!\\["))
        for part in CODE.split(text)
    )


def without_links(text: str) -> str:
    """A `plain` paragraph in one line, in which nothing is a link, a heading or a list either."""
    line = " ".join(plain(text).split("\n"))
    return "".join(part if CODE.fullmatch(part) else LINK.sub(r"]\\", part) for part in CODE.split(line))


def template(name: str, plain: Callable[[str], str] = plain) -> Template:
    """A compiled template of this package, with what makes a text `plain`; those ending in `.html.j2` escape values."""
    import jinja2

    cache = CACHE / "jinja2"
    cache.mkdir(parents=True, exist_ok=True)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        bytecode_cache=jinja2.FileSystemBytecodeCache(str(cache)),
        undefined=jinja2.StrictUndefined,
        autoescape=jinja2.select_autoescape(["html.j2"], default=False),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["plain"] = plain
    environment.filters["cell"] = lambda text: plain(text).replace("|", "\\|").replace("\n", " ")
    environment.filters["printable"] = printable
    return environment.get_template(name)
