"""In which type a table is printed: the largest in which its columns stand side by side on A4."""

from __future__ import annotations

import unicodedata

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
REGULAR, BOLD = 0.64, 0.70
"""Ems of a character that is not Chinese: a digit of the widest of the fonts that pages name, and what bold adds."""


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
    return _width(cell.text) if cell.note or cell.link else _longest(cell.text)


def _text(cell: Cell, index: int, table: Table) -> float:
    if len(table.columns) <= 2 or len(cell.text) < NAME_LENGTH:
        return 0.0
    return SENTENCE if len(cell.text) >= SENTENCE_LENGTH else 0.0 if index else NAME


def _longest(text: str, bold: bool = False) -> float:
    return max((_width(word, bold) for word in text.split()), default=0.0)


def _width(text: str, bold: bool = False) -> float:
    """Ems, nearly: a table in print needs no metrics of a font, and a short run's report does not wait for them."""
    other = BOLD if bold else REGULAR
    return sum(1.0 if unicodedata.east_asian_width(character) in "WF" else other for character in text)
