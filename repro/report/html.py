"""Renders a report as one self-contained HTML file with both languages, figures and attached files."""

from __future__ import annotations

import base64
import hashlib
import math
import mimetypes
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from repro.report.charts.canvas import INKS, MARGIN
from repro.report.document import (
    TEMPLATES,
    Attachment,
    Block,
    Cell,
    Column,
    Document,
    Figure,
    Items,
    Section,
    Table,
    template,
)
from repro.report.numbers import NOTHING
from repro.report.paper import NAME_LENGTH, SENTENCE_LENGTH, print_class
from repro.utils.i18n import Translate, catalogue
from repro.utils.printable import visible

if TYPE_CHECKING:
    from markupsafe import Markup

EMBEDDED_BYTES = 2**20
LANGUAGE_TAGS = {"zh": "zh-CN", "en": "en"}
LANGUAGE_NAMES = {"zh": "中文", "en": "English"}
DRAWING = re.compile(r"<svg\b(?:(?!<svg\b).)*?</svg>", re.DOTALL)
"""A drawing of an SVG file, which is one or has one below the other."""
PLAIN_NUMBER = re.compile(r"-?\d+(\.\d+)?")
MARKS = re.compile(r"\[(?P<label>[^\[\]]+)\]\((?P<target>[^()\s]+)\)|\*\*(?P<stress>[^*]+)\*\*")
Resolve = Callable[[str], str | None]
"""Where the target of a link in a text leads from the page; None for nowhere."""


def html(documents: dict[str, Document], folder: Path) -> str:
    """One report in all its languages, in their order, as it will be in `folder`.

    Figures and attached files are held in the file itself; an attached file of more than a MiB is linked instead.
    A ValueError says where the languages differ in structure or in numbers.
    """
    first, *others = documents.values()
    for other in others:
        check_same_structure(first, other)
    style, script = style_of("document.css.j2"), script_of("page.js", "document.js")
    page = template("document.html.j2").render(
        editions=[_edition(document) for document in documents.values()],
        style=style,
        script=script,
        policy=policy(style, script),
        **block_functions(lambda block: attached(block, folder)),
    )
    return visible(page)


def style_of(*files: str) -> str:
    """The style sheets of a page as one, with the colours of the charts."""
    return "".join(template(file).render(inks=INKS) for file in files)


def script_of(*files: str) -> str:
    """The scripts of a page as one."""
    return "".join((TEMPLATES / file).read_text(encoding="utf-8") for file in files)


def block_functions(attachment: Callable[[Attachment], dict], resolve: Resolve | None = None) -> dict[str, Callable]:
    """What `blocks.html.j2` calls: `attachment` gives href, name and size of a file; `resolve` is that of `prose`."""
    return {
        "prose": lambda text: prose(text, resolve),
        "inline": inline,
        "attached": attachment,
        "sortable": sortable,
        "print_class": print_class,
        "cell_class": cell_class,
        "sort_key": sort_key,
    }


def words(_: Translate) -> dict[str, str]:
    """The words that pages have besides those of their documents."""
    return {
        "contents": _("Contents"),
        "theme": _("Light or dark"),
        "table": _("Table"),
        "search": _("Search"),
        "all": _("any"),
        "shown": _("{n} of {all} rows"),
        "wider": _("On a wider screen also"),
        "csv": _("Download as CSV"),
        "copy": _("Copy"),
        "copied": _("Copied"),
        "home": _("OneFlow's benchmarks, checked"),
        "pages": _("Pages"),
        "skip": _("Skip to the text"),
    }


def _edition(document: Document) -> dict:
    _ = catalogue(document.language).gettext
    return {
        "document": document,
        "language": document.language,
        "tag": LANGUAGE_TAGS[document.language],
        "name": LANGUAGE_NAMES[document.language],
        "shortcuts": _shortcuts(_, document),
        "words": words(_),
    }


def _shortcuts(_: Translate, document: Document) -> list[tuple[str, str]]:
    """Links at the top: the environment and the attached files, if the report has them."""
    has_files = [section.id for section in document.sections if any(isinstance(b, Attachment) for b in section.blocks)]
    environment = [section.id for section in document.sections if section.id == "environment"]
    shortcuts = [(_("Environment"), environment), (_("Raw data"), has_files)]
    return [(title, sections[0]) for title, sections in shortcuts if sections]


def policy(style: str, script: str) -> str:
    """A content security policy that allows this style and this script, and nothing from anywhere else."""
    return (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def check_same_structure(one: Document, other: Document) -> None:
    """ValueError naming the first section in which two languages' sections, blocks, tables or numbers differ."""
    pair = f"{one.language} and {other.language}"
    if [section.id for section in one.sections] != [section.id for section in other.sections]:
        raise ValueError(f"the sections of {pair} differ")
    for first, second in zip(one.sections, other.sections, strict=True):
        if _shape(first) != _shape(second):
            raise ValueError(f"section {first.id}: blocks, rows or numbers of {pair} differ")


def _shape(section: Section) -> tuple:
    return (section.level, *map(_block_shape, section.blocks))


def _block_shape(block: Block) -> tuple:
    if isinstance(block, Table):
        numbers = tuple(tuple(str(cell.sort) for cell in row) for row in block.rows)
        return block.kind, block.id, tuple(column.numeric for column in block.columns), numbers
    if isinstance(block, Items):
        return block.kind, len(block.items)
    return block.kind, getattr(block, "id", None)


def sortable(table: Table) -> bool:
    """Whether a table is worth sorting: lists of questions and answers are not."""
    return len(table.rows) > 1 and (len(table.columns) > 2 or any(column.numeric for column in table.columns))


def cell_class(cell: Cell, column: Column, table: Table) -> str:
    """How a cell is set: numbers flush right, names and sentences not narrower than they can be read."""
    width = ""
    if column.numeric:
        width = "number"
    elif len(table.columns) > 2:
        length = len(MARKS.sub(lambda mark: mark["label"] or mark["stress"], cell.text))
        width = "short" if length < NAME_LENGTH else "name" if length < SENTENCE_LENGTH else "sentence"
    return " ".join(filter(None, (width, cell.tone, "minor" if column.minor else "")))


def sort_key(cell: Cell, column: Column) -> str:
    """What a cell is sorted by where that is not its text; empty where it is, as in a column of plain numbers, and where
    it has nothing, which a page sorts last by itself."""
    if cell.sort is None or cell.text == NOTHING:
        return ""
    as_written = (
        column.numeric and PLAIN_NUMBER.fullmatch(cell.text) and math.isclose(float(cell.text), cell.sort, rel_tol=1e-3)
    )
    return "" if as_written else f"{cell.sort:.9g}"


def prose(text: str, resolve: Resolve | None = None) -> Markup:
    """Text with `code` between backticks, whose long names may be broken after underscores.

    With `resolve`, `[words](target)` is a link to what that makes of the target, or only the words if it gives None, and
    `**words**` are stressed.
    """
    from markupsafe import Markup, escape

    def plain(part: str) -> Markup:
        return _breakable(escape(part)) if resolve is None else _rich(part, resolve)

    parts = text.split("`")
    if len(parts) % 2 == 0:
        return plain(text)
    code = Markup("<code>{}</code>")
    return Markup().join(
        code.format(_breakable(escape(part))) if i % 2 else plain(part) for i, part in enumerate(parts)
    )


def _rich(text: str, resolve: Resolve) -> Markup:
    """Links and stress of a text without code."""
    from markupsafe import Markup, escape

    markup, at = Markup(), 0
    for match in MARKS.finditer(text):
        markup += _breakable(escape(text[at : match.start()]))
        if match["stress"]:
            markup += Markup("<strong>{}</strong>").format(_rich(match["stress"], resolve))
        else:
            target, label = resolve(match["target"]), _breakable(escape(match["label"]))
            markup += Markup('<a href="{}">{}</a>').format(target, label) if target else label
        at = match.end()
    return markup + _breakable(escape(text[at:]))


def _breakable(escaped: str) -> Markup:
    from markupsafe import Markup

    return Markup(re.sub(r"(?<=\w)_(?=\w)", "_<wbr>", str(escaped)))


def inline(figure: Figure, prefix: str) -> list[Markup]:
    """The drawings of a figure's SVG for use inside a page: with a prefix for their identifiers; the first is described."""
    from markupsafe import Markup, escape

    svg = figure.file.read_text(encoding="utf-8")
    svg = re.sub(r'\bid="', f'id="{prefix}-', svg)
    svg = re.sub(r'(url\(|href=")#', rf"\1#{prefix}-", svg)
    svg = re.sub(r'viewBox="[^"]*"', lambda box: _without_margin(box[0]), svg)
    first, *others = DRAWING.findall(svg)
    labelled = first.replace("<svg", f'<svg role="img" aria-label="{escape(figure.alternative)}"', 1)
    return [Markup(labelled), *(Markup(other.replace("<svg", '<svg aria-hidden="true"', 1)) for other in others)]


def _without_margin(box: str) -> str:
    width, height = re.findall(r"[\d.]+", box)[2:]
    return f'viewBox="{MARGIN} {MARGIN} {float(width) - 2 * MARGIN:g} {float(height) - 2 * MARGIN:g}"'


def attached(block: Attachment, folder: Path, embedded: bool = True) -> dict:
    """Where an attached file is, and how large it is; a small one is in the page itself if it is to be `embedded`."""
    size = block.file.stat().st_size
    kind = mimetypes.guess_type(block.file.name)[0] or "application/octet-stream"
    target = Path(os.path.relpath(block.file, folder)).as_posix()
    if embedded and size <= EMBEDDED_BYTES:
        target = f"data:{kind};base64,{base64.b64encode(block.file.read_bytes()).decode()}"
    return {"href": target, "name": block.file.name, "size": _size(size)}


def _size(count: int) -> str:
    return f"{count} B" if count < 1024 else f"{count / 1024:.1f} KiB" if count < 2**20 else f"{count / 2**20:.1f} MiB"
