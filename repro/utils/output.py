"""What tasks print: tables for a terminal, or JSON for programs.

Cells are whole: of a table that is too wide, the least important columns are left out and named below it.
"""

from __future__ import annotations

import json
import shutil
import textwrap
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

UNLIMITED = 1000
"""The width where no terminal shows the table, in characters."""
GAP = 2
"""Between two columns, in characters."""
NARROWEST_TEXT = 20
"""The least width of a column that may be wrapped, in characters."""


@dataclass(frozen=True)
class TerminalColumn:
    """A column of texts; `number` aligns it to the right.

    The column with the highest `spare` is left out first, one with 0 never. `wraps` says that its cells may be broken
    between words; those of any other column stay on one line.
    """

    title: str
    number: bool = False
    spare: int = 0
    wraps: bool = False


def print_table(columns: Sequence[TerminalColumn], rows: Sequence[Sequence[str]], below: str = "") -> None:
    """A table, the columns that did not fit, and a text below it."""
    width = terminal_width()
    print(*table_lines(columns, rows, width), sep="\n")
    if below:
        print(*textwrap.wrap(below, width, break_long_words=False, break_on_hyphens=False), sep="\n")


def print_json(content: Any) -> None:
    """One JSON value, and nothing else."""
    print(json.dumps(content, ensure_ascii=False, indent=1))


def terminal_width() -> int:
    """That of the terminal, or COLUMNS; UNLIMITED if the output goes elsewhere."""
    return shutil.get_terminal_size((UNLIMITED, 1)).columns


def cut(text: str, width: int) -> str:
    """A text as it is, or its beginning with an ellipsis, in at most `width` columns of a terminal."""
    if sum(map(_columns, text)) <= width:
        return text
    room, length = width - 1, 0
    while (room := room - _columns(text[length])) >= 0:
        length += 1
    return text[:length].rstrip() + "…"


def _columns(character: str) -> int:
    return 2 if unicodedata.east_asian_width(character) in "FW" else 1


def table_lines(columns: Sequence[TerminalColumn], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """The lines of a table; columns without any text are not shown."""
    shown = [number for number in range(len(columns)) if any(row[number] for row in rows)] or [*range(len(columns))]
    left_out = []
    while sum(widths := _widths(columns, rows, shown, width)) + GAP * (len(shown) - 1) > width:
        spare = max(shown, key=lambda number: columns[number].spare)
        if not columns[spare].spare:
            break
        shown.remove(spare)
        left_out.append(columns[spare].title)
    drawn = [columns[number] for number in shown]
    lines = _row([column.title for column in drawn], drawn, widths, titles=True)
    lines.append((GAP * " ").join("-" * column_width for column_width in widths))
    for row in rows:
        lines += _row([row[number] for number in shown], drawn, widths)
    if left_out:
        lines += textwrap.wrap(f"left out, as the terminal is {width} columns wide: {', '.join(left_out)}", width)
    return lines


def _widths(
    columns: Sequence[TerminalColumn], rows: Sequence[Sequence[str]], shown: Sequence[int], width: int
) -> list[int]:
    """Of each shown column: as wide as its title and cells; if that is too much, titles and texts are wrapped."""
    cells = {number: max((len(row[number]) for row in rows), default=0) for number in shown}
    full = [max(cells[number], len(columns[number].title)) for number in shown]
    room = width - GAP * (len(shown) - 1)
    if sum(full) <= room:
        return full
    least = {number: max(cells[number], *map(len, _title_words(columns[number].title))) for number in shown}
    wrapped = [number for number in shown if columns[number].wraps]
    free = room - sum(least[number] for number in shown if number not in wrapped)
    for number in wrapped:
        least[number] = min(least[number], max(NARROWEST_TEXT, free // len(wrapped)))
    return [least[number] for number in shown]


def _title_words(title: str) -> list[str]:
    return title.replace("-", "- ").split()


def _row(
    texts: Sequence[str], columns: Sequence[TerminalColumn], widths: Sequence[int], titles: bool = False
) -> list[str]:
    """The lines of one row: titles end on its last line, cells begin on its first."""
    cells = [
        textwrap.wrap(text, width, break_on_hyphens=titles) or [""] for text, width in zip(texts, widths, strict=True)
    ]
    height = max(map(len, cells))
    for cell in cells:
        cell[:] = [""] * (height - len(cell)) + cell if titles else cell + [""] * (height - len(cell))
    return [
        (GAP * " ")
        .join(
            text.rjust(width) if column.number else text.ljust(width)
            for text, column, width in zip(line, columns, widths, strict=True)
        )
        .rstrip()
        for line in zip(*cells, strict=True)
    ]
