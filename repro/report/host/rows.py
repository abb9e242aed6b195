"""One row for each distinct configuration and program of a host's page, over the runs that have it, and its goal.

The session of a machine is the unit (`repro.runs.sessions`). Repeats of one run, and runs of one session, share machine,
driver, clocks and the day, so how far they lie apart says nothing of what another session would give. A row is the
geometric mean of its sessions' means, with the interval by which these lie apart.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from repro.analysis.ratio import Ratio, ratio_over_sessions
from repro.analysis.results import Result
from repro.report.host.run import KeptRun
from repro.runs.unit import Unit, configuration
from repro.utils.stats import geometric_mean, median

MET, MISSED, OPEN, OLD = "met", "missed", "undecided", "older code"
"""Statuses of a goal. OLD is a row that only older code of its program has been measured for."""
LEAST_SESSIONS = 2
"""Sessions without which no goal is decided: a single one says nothing about other machines and days."""
PRECISIONS = ("fp32", "tf32", "amp")
"""The order of precisions in tables."""


@dataclass(frozen=True)
class RatioGoal:
    """Between what a ratio should be. `of` is "ratio" (OneFlow over a baseline), "efficiency", "peak" or "expectation".

    `at_most` is infinite where more is better; an expectation that is exceeded is as wrong as one that is missed.
    `where` narrows it: what it names of `model`, `program`, `precision`, `baseline`, `shape` and `gpus` must be so. `by` is
    who set it, `why` for what reason, by language.
    """

    of: str
    at_least: float
    at_most: float = math.inf
    where: dict = field(default_factory=dict, hash=False)
    by: dict = field(default_factory=dict, hash=False)
    why: dict = field(default_factory=dict, hash=False)

    def __str__(self) -> str:
        if self.of in ("efficiency", "peak"):
            return f"≥ {100 * self.at_least:g}%"
        if not math.isfinite(self.at_most):
            return f"≥ {self.at_least:.2f}"
        return f"{self.at_least:.2f}–{self.at_most:.2f}"

    def holds(self, value: float) -> bool:
        """Whether a value by itself is within the goal."""
        return self.at_least <= value <= self.at_most

    def status(self, ratio: Ratio) -> str:
        """MET if the whole interval is within, MISSED if it is wholly outside, otherwise OPEN.

        An interval of too little confidence decides nothing.
        """
        interval = ratio.decisive
        if interval is None:
            return OPEN
        if interval.low >= self.at_least and interval.high <= self.at_most:
            return MET
        return MISSED if interval.high < self.at_least or interval.low > self.at_most else OPEN


APART = 0.01
"""From which relative difference on a row shows the steady state instead of the figure of the report's rule.

A row of a log is stamped when its loss has reached the host. The first one of a log is late by what the device had still
to compute when the program's start was over, so that a short training seems faster than it is.
"""
LENGTH = ("iterations", "log_interval")
"""What of a configuration says how long it trains, and how often it prints."""


@dataclass(frozen=True)
class RunRatio:
    """What one run has of a configuration, what that is over, and their ratio.

    `base` is a baseline, the same training on one GPU, the published program, or None for an expectation.
    `ratio` is None where there is nothing to compare with; `steady` is the same in the steady state, where it is known.
    `session` is that of the run; measurements without one count as of one session. `shared` is whether another program used
    the host's processors meanwhile.
    """

    kept_run: KeptRun
    result: Result
    base: Result | None
    ratio: Ratio | None
    steady: float | None = None
    session: str = ""
    shared: bool = False

    @property
    def configuration(self) -> str:
        """What makes measurements of several runs one row: configurations, how they were measured, programs, GPUs."""
        return self._named([configuration(side.unit) for side in (self.result, self.base) if side])

    def configuration_of(self, side: Result) -> str:
        """The same of one side by itself, over nothing."""
        return self._named([configuration(side.unit)])

    @property
    def own(self) -> str:
        """What is trained, whatever it is over, for however many iterations and however many of them make a row."""
        config, *about, _ = configuration(self.result.unit)
        return self._named([{name: value for name, value in config.items() if name not in LENGTH}, *about])

    def _named(self, sides: list) -> str:
        return json.dumps([sides, [gpu["name"] for gpu in self.kept_run.gpus[:1]]], sort_keys=True)

    @property
    def own_code(self) -> str:
        """Which code of the program it was measured with, whatever it is over."""
        return self.kept_run.code(self.result.unit)

    @property
    def code(self) -> tuple[str, ...]:
        """Which code of the programs it was measured with."""
        return tuple(self.kept_run.code(side.unit) for side in (self.result, self.base) if side)


@dataclass(frozen=True)
class HostRow:
    """A configuration over the runs that have it, oldest first.

    `superseded` are those whose code of the programs is another than the newest run's; they do not count. `expected` is
    what the performance model expects, in samples/s; `goal` is None if there is none. A row is `current` if the newest
    run of the program, in any configuration, was made with the same code.
    """

    measurements: tuple[RunRatio, ...]
    superseded: tuple[RunRatio, ...] = ()
    goal: RatioGoal | None = None
    expected: float | None = None
    current: bool = True

    @property
    def runs(self) -> tuple[KeptRun, ...]:
        """The runs that count."""
        return tuple(measurement.kept_run for measurement in self.measurements)

    @property
    def unit(self) -> Unit:
        """The unit of the newest run."""
        return self.measurements[-1].result.unit

    @property
    def base(self) -> Unit:
        """The unit that the newest run's is over; IndexError where it is over an expectation."""
        return self.bases[-1].unit

    @property
    def results(self) -> list[Result]:
        """The results of the runs that count."""
        return [measurement.result for measurement in self.measurements]

    @property
    def bases(self) -> list[Result]:
        """What they are over."""
        return [measurement.base for measurement in self.measurements if measurement.base]

    @property
    def sessions(self) -> tuple[str, ...]:
        """The sessions of the runs that count, oldest first."""
        return tuple(dict.fromkeys(measurement.session for measurement in self.measurements))

    @property
    def shared(self) -> bool:
        """Whether another program used the host's processors during every run that counts."""
        return all(measurement.shared for measurement in self.measurements)

    @property
    def in_steady_state(self) -> bool:
        """Whether the row shows the steady state, because the figure of the report's rule differs by more than APART."""
        complete = all(measurement.steady and measurement.ratio for measurement in self.measurements)
        if not complete:
            return False
        by_rule, steady = (geometric_mean(self._by_session(ratio_of)) for ratio_of in (_by_rule, _steady))
        return abs(by_rule / steady - 1) > APART

    @property
    def ratio(self) -> Ratio | None:
        """The geometric mean of the sessions' means, with the interval by which these lie apart; TooFew of a single one.

        That of the report's rule, or that in the steady state where the row shows this.
        """
        ratios = self._by_session(_steady if self.in_steady_state else _by_rule)
        return ratio_over_sessions(ratios) if ratios else None

    @property
    def by_rule(self) -> float:
        """The same mean by the report's rule, whatever the row shows."""
        return geometric_mean(self._by_session(_by_rule))

    @property
    def throughput(self) -> float:
        """The same mean of the runs' medians, samples/s; its quotient with `base_throughput` is the ratio."""
        return geometric_mean(self._by_session(lambda measurement: self._speed(measurement.result)))

    @property
    def base_throughput(self) -> float:
        """The throughput of what the row is over, samples/s; ValueError where it is over an expectation."""
        return geometric_mean(self._by_session(lambda measurement: self._speed(measurement.base)))

    @property
    def memory_mib(self) -> float | None:
        """The median of the runs' memory, MiB per GPU; None if no run has any."""
        measured = [result.memory_mib for result in self.results if result.memory_mib is not None]
        return median(measured) if measured else None

    def _speed(self, result: Result | None) -> float | None:
        if result is None:
            return None
        return result.steady if self.in_steady_state else result.throughput

    @property
    def status(self) -> str:
        """The goal's status, OPEN with fewer than LEAST_SESSIONS, OLD if not current; empty without a goal."""
        if not self.goal or not self.ratio:
            return ""
        if not self.current:
            return OLD
        return self.goal.status(self.ratio) if len(self.sessions) >= LEAST_SESSIONS else OPEN

    def _by_session(self, of: Callable[[RunRatio], float | None]) -> list[float]:
        """For each session the geometric mean of what its runs have; none of one without."""
        groups: dict[str, list[float]] = defaultdict(list)
        for measurement in self.measurements:
            if value := of(measurement):
                groups[measurement.session].append(value)
        return list(map(geometric_mean, groups.values()))


def rows(measurements: Iterable[RunRatio]) -> list[HostRow]:
    """A row for each configuration, by model, precision, number of GPUs and name.

    Those runs count whose code of the programs is that of the newest run that has the configuration. Measurements with
    older code do not count either if they are over something else than the newest ones, nor do those of a shared host where
    others count. A run that has a configuration
    under two names counts once, with the first, because both share what varies between runs.
    """
    groups: dict[str, dict[str, RunRatio]] = {}
    newest: dict[str, str] = {}
    for measurement in sorted(measurements, key=lambda measurement: measurement.kept_run.age):
        groups.setdefault(measurement.configuration, {}).setdefault(measurement.kept_run.run.id, measurement)
        newest[measurement.own] = measurement.own_code
    all_rows: list[HostRow] = []
    alone: dict[str, tuple[RunRatio, ...]] = defaultdict(tuple)
    for group in (list(by_run.values()) for by_run in groups.values()):
        code = group[-1].code
        newest_code = tuple(
            measurement
            for measurement in group
            if measurement.code == code and measurement.own_code == newest[measurement.own]
        )
        superseded = tuple(measurement for measurement in group if measurement not in newest_code)
        if counting := tuple(of for of in newest_code if not of.shared) or newest_code:
            all_rows.append(HostRow(counting, superseded))
        else:
            alone[group[0].own] += superseded
    all_rows = [replace(row, superseded=(*alone.pop(row.measurements[0].own, ()), *row.superseded)) for row in all_rows]
    return sorted(all_rows, key=lambda row: (*_kind(row.unit), row.base.label if row.bases else ""))


def _by_rule(measurement: RunRatio) -> float | None:
    return measurement.ratio.value if measurement.ratio else None


def _steady(measurement: RunRatio) -> float | None:
    return measurement.steady


def _kind(unit: Unit) -> tuple:
    """Orders units by model, precision, number of GPUs and name."""
    return unit.config.model, PRECISIONS.index(unit.precision), unit.world_size, unit.name
