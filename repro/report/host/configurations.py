"""The rows of a host's page by what was trained: one configuration, with either program and beside each baseline."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from repro.planning.programs import published_name
from repro.report.host.rows import HostRow
from repro.runs.unit import Unit
from repro.utils.grouping import by_key


@dataclass(frozen=True)
class Configuration:
    """What was trained, under its shortest name, and the rows in which it is compared with something."""

    name: str
    rows: tuple[HostRow, ...]

    @property
    def unit(self) -> Unit:
        """A unit of OneFlow's that trains it, or a baseline's if there is no other."""
        units = [row.unit for row in self.rows]
        return next((unit for unit in units if not unit.baseline_of), units[0])

    def of(self, program: str, baseline: str = "") -> HostRow | None:
        """The row in which a program is over a baseline; without one, the first of the program."""
        rows = (row for row in self.rows if not row.unit.baseline_of and row.unit.program == program)
        return next((row for row in rows if not baseline or row.base.label == baseline), None)


def configurations(rows: Iterable[HostRow]) -> list[Configuration]:
    """The configurations of these rows, in the order in which they first occur."""
    return [Configuration(name, tuple(group)) for name, group in by_key(rows, configuration_name).items()]


def configuration_name(row: HostRow) -> str:
    """The shortest of the names under which runs had the configuration of a row, without that of its program."""
    names = (published_name(result.unit) for result in row.results)
    return min(names, key=lambda name: (len(name), name))


def baselines(rows: Iterable[HostRow]) -> list[str]:
    """The baselines of these rows, the one of most rows first."""
    names = [row.base.label for row in rows]
    return sorted(dict.fromkeys(names), key=lambda name: (-names.count(name), name))
