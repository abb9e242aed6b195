"""The measuring rules: how a report reads one throughput and one latency off a training log, a class for each rule.

Each report printed what its own scripts computed, so a rule belongs to a report; its `source` names the script or the
log that it was read from. Rules are applied to published logs and to those of new runs alike. Case files are checked,
runs planned and pages written by what a class says of its rule; one from outside the project is a class in
`published/rules.py` of a folder in REPRO_MODELS (`repro.models.extensions`).
"""

from __future__ import annotations

import importlib.util
import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from repro.models.extensions import folders_of
from repro.published.logs import Log, LogError, LogRow
from repro.published.validators import Check, whole
from repro.utils.i18n import N_

T = TypeVar("T")


class RuleError(LogError):
    """A measuring rule cannot be applied to a log; the message says what is missing."""

    def __init__(self, log: Log, rule: Rule, reason: str):
        super().__init__(f"the rule '{rule.kind}' cannot be applied: {reason}", log.path)


@dataclass(frozen=True, kw_only=True)
class Rule(ABC):
    """How a report reads one throughput off a log, by the number of the printed row, counted from 1.

    The published figure is the median of `repeats` runs. `stated` is false where the report does not say all this.

    A rule's class has, besides its parameters as fields:

    kind : its name in case files.
    keys : the check of each parameter.
    words : what it computes, marked for translation, with the parameters' names in braces.
    reads : the rows that it needs, the same way; in messages, which are not translated.
    same_rows : whether it reads the same rows of a run however long that is.
    """

    kind: str = field(default="", init=False)
    repeats: int = 1
    stated: bool = True
    source: str = ""

    keys: ClassVar[Mapping[str, Check]]
    words: ClassVar[str]
    reads: ClassVar[str]
    same_rows: ClassVar[bool] = False

    @property
    def parameters(self) -> dict[str, int]:
        """The parameters that its kind has."""
        return {name: getattr(self, name) for name in self.keys}

    @property
    @abstractmethod
    def least_rows(self) -> int:
        """The minimum number of rows that a training must print. A first row that is measured would include its start."""

    @abstractmethod
    def throughput(self, log: Log, global_batch: int | None = None) -> float:
        """Throughput of a log in samples/s; `global_batch` is in samples per iteration, and not every rule needs it.

        Raises
        ------
        RuleError
            There are too few rows, a row or its stamp is missing, or the result is not a positive number.
        """

    def latency_ms(self, log: Log, global_batch: int | None = None) -> float:
        """Latency of a log in ms per iteration, global batch / throughput; arguments and errors as for `throughput`."""
        if not global_batch:
            raise RuleError(log, self, "the rows print no latency, and the log does not state the global batch size")
        return 1000 * global_batch / self.throughput(log, global_batch)

    def averaged(self, rows: Sequence[T]) -> Sequence[T]:
        """Of all rows of a log those whose printed throughput it averages; none if it does something else."""
        return ()

    def nearest(self, log: Log) -> Iterator[Rule]:
        """Rules of its kind that can be applied to a log with other rows than the published ones, the closest first."""
        yield from ()

    @classmethod
    def fault(cls, values: Mapping[str, Any]) -> tuple[str, str] | None:
        """The parameter of a case file that does not fit the others, and why; each by itself has passed its check."""
        return None


@dataclass(frozen=True, kw_only=True)
class MeanRows(Rule):
    """The mean of the printed throughput of all rows after the first `skip_first`."""

    kind: str = field(default="mean_rows", init=False)
    skip_first: int

    keys: ClassVar[Mapping[str, Check]] = {"skip_first": whole(0)}
    words = N_("mean of the printed throughput over all rows except the first {skip_first}")
    reads = "a row after the first {skip_first}"

    @property
    def least_rows(self) -> int:
        return self.skip_first + 1

    def throughput(self, log: Log, global_batch: int | None = None) -> float:
        require_rows(log, self, self.skip_first + 1)
        skipped = math.fsum(row.samples_per_s for row in log.rows[: self.skip_first])
        return positive(log, self, (log.samples_per_s_sum - skipped) / (log.row_count - self.skip_first), "throughput")

    def averaged(self, rows: Sequence[T]) -> Sequence[T]:
        return rows[self.skip_first :]


@dataclass(frozen=True, kw_only=True)
class Stamps(Rule):
    """Global batch x iterations / seconds between the Unix stamps of rows number `first_row` and `last_row`.

    Row n is the one printed at iteration n x print interval, so a log that holds only these two rows is enough.
    """

    kind: str = field(default="stamps", init=False)
    first_row: int
    last_row: int

    keys: ClassVar[Mapping[str, Check]] = {"first_row": whole(1), "last_row": whole(2)}
    words = N_(
        "samples between the time stamps of printed rows {first_row} and {last_row}, divided by the time between them"
    )
    reads = "the stamp of row {last_row}"
    same_rows = True

    @property
    def least_rows(self) -> int:
        return self.last_row

    def throughput(self, log: Log, global_batch: int | None = None) -> float:
        iterations, seconds = self._between_stamps(log)
        if not global_batch:
            raise RuleError(log, self, "it needs the global batch size, which the log does not state")
        return positive(log, self, global_batch * iterations / seconds, "throughput")

    def latency_ms(self, log: Log, global_batch: int | None = None) -> float:
        """The time between its stamps per iteration."""
        iterations, seconds = self._between_stamps(log)
        return 1000 * seconds / iterations

    def nearest(self, log: Log) -> Iterator[Rule]:
        rows = first_epoch(log)
        steps = [row.step for row in rows if row.step is not None]
        if steps and rows[0].stamp:
            yield Stamps(first_row=1, last_row=steps[-1] // max(1, steps[0]))

    @classmethod
    def fault(cls, values: Mapping[str, Any]) -> tuple[str, str] | None:
        first, last = values["first_row"], values["last_row"]
        return ("last_row", f"is {last}; must be above first_row, {first}") if last <= first else None

    def _between_stamps(self, log: Log) -> tuple[int, float]:
        """Iterations and seconds between its two rows."""
        interval = print_interval(log, self)
        stamps = {row.step: row.stamp for row in first_epoch(log) if row.step is not None}
        numbers = self.first_row, self.last_row
        first, last = (number * interval for number in numbers)
        times = []
        for number, step in zip(numbers, (first, last), strict=True):
            if step not in stamps:
                present = f"the rows of the first epoch go from step {min(stamps)} to {max(stamps)}"
                raise RuleError(log, self, f"row {number} (step {step}) is missing: {present}")
            if (stamp := stamps[step]) is None:
                raise RuleError(log, self, f"the row at step {step} has no Unix stamp")
            times.append(stamp)
        seconds = times[1] - times[0]
        if last <= first or seconds <= 0:
            raise RuleError(log, self, f"between steps {first} and {last} lie {seconds} s")
        return last - first, seconds


@dataclass(frozen=True, kw_only=True)
class LastRows(Rule):
    """The mean of the printed throughput of the last `rows`, and of their latency if it is printed."""

    kind: str = field(default="last_rows", init=False)
    rows: int

    keys: ClassVar[Mapping[str, Check]] = {"rows": whole(1)}
    words = N_("mean of the last {rows} printed rows, for both throughput and latency")
    reads = "{rows} rows behind the first"

    @property
    def least_rows(self) -> int:
        return self.rows + 1

    def throughput(self, log: Log, global_batch: int | None = None) -> float:
        rows = self._last(log)
        return positive(log, self, math.fsum(row.samples_per_s for row in rows) / len(rows), "throughput")

    def latency_ms(self, log: Log, global_batch: int | None = None) -> float:
        """The mean of the printed latencies, otherwise global batch / throughput."""
        rows = self._last(log)
        printed = [row.latency_s for row in rows if row.latency_s is not None]
        if len(printed) == len(rows):
            return positive(log, self, 1000 * math.fsum(printed) / len(rows), "latency")
        return super().latency_ms(log, global_batch)

    def averaged(self, rows: Sequence[T]) -> Sequence[T]:
        return rows[-self.rows :]

    def _last(self, log: Log) -> tuple[LogRow, ...]:
        require_rows(log, self, self.rows)
        return log.rows[-self.rows :]


@cache
def kinds() -> Mapping[str, type[Rule]]:
    """The classes of all rules by their names in case files, those from outside the project included."""
    for number, folder in enumerate(folders_of("published")):
        if (file := Path(folder) / "rules.py").is_file():
            _load(f"{__name__}_{number}", file)
    return {rule.kind: rule for rule in Rule.__subclasses__()}


def rule_of(values: Mapping[str, Any]) -> Rule:
    """The rule that a case file or a run's record describes; a record may have parameters of other kinds, all None."""
    kind = kinds()[values["kind"]]
    names = (*kind.keys, "repeats", "stated", "source")
    return kind(**{name: values[name] for name in names if values.get(name) is not None})


def _load(name: str, file: Path) -> None:
    """Import a file as a module of this name."""
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec and spec.loader, "a file that ends in .py has a loader"
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)


def first_epoch(log: Log) -> list[LogRow]:
    """Rows before the iteration count restarts: between epochs lie validation and saving."""
    return [row for row in log.rows if row.other.get("epoch", 0) == 0]


def print_interval(log: Log, rule: Rule) -> int:
    """Iterations between printed rows: as the log states it, else the step of its first row.

    Raises
    ------
    RuleError
        Rows of the first epoch are missing, or are not printed at its multiples, for instance because the first row
        was lost.
    """
    rows = first_epoch(log)
    if not rows:
        raise RuleError(log, rule, "it needs rows of the first epoch, the log holds none")
    stated = log.configuration.get("loss_print_every_n_iter", log.configuration.get("log_interval"))
    steps = [row.step for row in rows if row.step is not None]
    interval = stated if isinstance(stated, int) and stated > 0 else max(1, steps[0])
    for step in steps:
        if step % interval:
            reason = f"its rows are not printed every {interval} iterations: one is at step {step}"
            raise RuleError(log, rule, reason)
    return interval


def require_rows(log: Log, rule: Rule, rows: int) -> None:
    """RuleError if a log has fewer rows."""
    if log.row_count < rows:
        raise RuleError(log, rule, f"it needs {rows} rows, the log holds {log.row_count}")


def positive(log: Log, rule: Rule, value: float, name: str) -> float:
    """A figure of this name; RuleError unless it is a positive number."""
    if not (math.isfinite(value) and value > 0):
        raise RuleError(log, rule, f"the {name} it gives is {value}: not a positive number")
    return value
