"""Tables by their columns: each has its title, what it shows of a row, and how that is written, in one place."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from repro.report import numbers
from repro.report.document import Cell, Column, Table
from repro.utils.i18n import Translate

Written = Callable[[Any], Cell]
"""How a value is written as a cell."""
NONE = Cell(numbers.NOTHING, float("-inf"))


def text(value: Any) -> Cell:
    """Words, or a cell as it is."""
    return value if isinstance(value, Cell) else Cell(value)


@dataclass(frozen=True)
class Field:
    """A column of a table: its title, its value in a row, and how that is written; a number unless it is a text.

    `numeric` sets a column flush right whose cells are made by `value` itself; the others are those of a `Column`.
    """

    title: str
    value: Callable[[Any], Any]
    written: Written = text
    numeric: bool = False
    filtered: bool = False
    minor: bool = False

    @property
    def column(self) -> Column:
        return Column(self.title, self.numeric or self.written is not text, self.filtered, self.minor)


def table(id: str, rows: Iterable[Any], fields: Iterable[Field], caption: str = "") -> Table:
    """A table with a row for each of `rows`, without columns whose cells are all empty or dashes.

    The first column stays, as do all of a table without rows.
    """
    every, whole = tuple(fields), tuple(rows)
    cells = {field: [field.written(field.value(row)) for row in whole] for field in every}
    shown = [field for field in every if not whole or field is every[0] or any(map(_says, cells[field]))]
    rows_shown = tuple(zip(*(cells[field] for field in shown), strict=True))
    return Table(id, tuple(field.column for field in shown), rows_shown, caption)


def _says(cell: Cell) -> bool:
    return cell.text not in ("", numbers.NOTHING) or bool(cell.note)


def columns(*titles: str, numeric: Iterable[str] = ()) -> tuple[Column, ...]:
    """Columns of words, then columns of numbers."""
    return (*map(Column, titles), *(Column(title, numeric=True) for title in numeric))


def words(*texts: str) -> tuple[Cell, ...]:
    """Cells of plain text."""
    return tuple(map(Cell, texts))


def holds(_: Translate, good: bool) -> Cell:
    """Whether something is as it should be."""
    return Cell(_("yes"), tone="good") if good else Cell(_("NO"), tone="bad")


def number(value: float | None, written: Callable[[float], str]) -> Cell:
    """A number as `written` gives it, sorted by its value; a dash for None."""
    return NONE if value is None else Cell(written(value), float(value))


def decimals(count: int) -> Written:
    """A number with a fixed number of decimals."""
    return lambda value: figure(value, count)


def percents(count: int) -> Written:
    """A share as a percentage with a fixed number of decimals."""
    return lambda value: percent(value, count)


def figure(value: float | None, decimals: int) -> Cell:
    """A number with a fixed number of decimals, or a dash for None."""
    return number(value, lambda shown: numbers.fixed(shown, decimals))


def percent(value: float | None, decimals: int = 2) -> Cell:
    """A share as a percentage."""
    return number(value, lambda shown: numbers.percentage(shown, decimals))


def factor(uncertainty: float) -> Cell:
    """An uncertainty that is a factor less one, as the factor."""
    return number(uncertainty, numbers.factor)


def scientific(value: float | None) -> Cell:
    """A small number in scientific notation."""
    return number(value, numbers.scientific)


def count(value: float | None) -> Cell:
    """A whole number: GPUs, samples, MiB."""
    return number(value, numbers.whole)


def measured(value: float | None) -> Cell:
    """A throughput or a time, with four significant digits."""
    return number(value, numbers.significant)


def quotient(value: float | None) -> Cell:
    """A ratio, with three decimals."""
    return number(value, numbers.ratio)


def share(value: float | None) -> Cell:
    """A share in per cent, with one decimal."""
    return number(value, numbers.percentage)
