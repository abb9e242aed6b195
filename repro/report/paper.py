"""In which type a table is printed: the largest in which its columns stand side by side on A4."""

from __future__ import annotations

from repro.report.charts.canvas import text_width
from repro.report.document import Cell, Table

SHEET = 516.0
"""Points between the margins of a sheet."""
SIZES = {"": 7.5, "wide": 6.2, "wider": 5.2, "widest": 4.4}
"""Points by the class of a table; these and the next three are as in the print rules of `document.css.j2`."""
PADDING = 0.75
"""Ems left and right of a cell together."""
NAME, SENTENCE = 8.3, 9.0
"""Ems that a name in the first column and a sentence have at least; text without them may be broken anywhere."""
NAME_LENGTH, SENTENCE_LENGTH = 14, 48
"""Characters from which a text is set as a name or as a sentence."""


def print_class(table: Table) -> str:
    """The class of the largest type in which the table fits; the smallest if none does."""
    needed = sum(_column(table, index) for index in range(len(table.columns)))
    return next((name for name, size in SIZES.items() if needed * size <= SHEET), list(SIZES)[-1])


def _column(table: Table, index: int) -> float:
    """The narrowest that a column can be, in ems."""
    column = table.columns[index]
    cells = (_number(row[index]) if column.numeric else _text(row[index], index, table) for row in table.rows)
    return PADDING + max((_longest(column.title, bold=True), *cells))


def _number(cell: Cell) -> float:
    """A number beside a note, or a link, is not broken."""
    return text_width(cell.text, 1) if cell.note or cell.link else _longest(cell.text)


def _text(cell: Cell, index: int, table: Table) -> float:
    if len(table.columns) <= 2 or len(cell.text) < NAME_LENGTH:
        return 0.0
    return SENTENCE if len(cell.text) >= SENTENCE_LENGTH else 0.0 if index else NAME


def _longest(text: str, bold: bool = False) -> float:
    return max((text_width(word, 1, bold) for word in text.split()), default=0.0)
