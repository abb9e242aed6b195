"""The measurements of an attempt, read from rank 0's log (by its report's rule) and rank 0's metrics.

A run records these figures when an attempt ends; `repro.analysis.evidence` recomputes them with the same functions.
"""

import math
import zlib
from collections import deque
from zipfile import BadZipFile

from repro.planning.plan import PARITY_ITERATIONS
from repro.published.logs import Log, LogError, parse
from repro.runs.failures import Failure, no_number
from repro.runs.files import RunPath, opened
from repro.runs.record import LAST_LOSSES
from repro.runs.unit import Unit

LOG = "logs/local_rank_0/stdout"
LOSSES_KEPT = max(2 * LAST_LOSSES, PARITY_ITERATIONS)


def read_log(attempt: RunPath) -> Log:
    """Rank 0's log of an attempt, in a folder or an archive; LogError if it is missing or cannot be read."""
    try:
        with opened(attempt / LOG) as file:
            return parse(file)
    except (OSError, BadZipFile, zlib.error) as error:
        raise LogError(f"cannot be read: {error}", LOG) from error


def measure(unit: Unit, log: Log) -> dict:
    """Read rank 0's log by the rule of the unit's report, as the published logs are read.

    Returns throughput in samples/s, latency in ms per iteration, and memory in MiB if the log states it; LogError if
    the rule cannot be applied.
    """
    return {
        "generation": log.generation,
        "throughput": unit.rule.throughput(log, unit.global_batch),
        "latency_ms": unit.rule.latency_ms(log, unit.global_batch),
        "memory_mib": log.memory_mib,
    }


class RankZero:
    """Collects the parts of rank 0's events that a run records; `started` is the Unix time at which the attempt began."""

    def __init__(self, started: float):
        self._started = started
        self._start: dict = {}
        self._end: dict = {}
        self._census: dict = {}
        self._losses: list[float] = []
        self._last_losses: deque[float] = deque(maxlen=LAST_LOSSES)
        self._first: float | None = None
        self._memory: list[float] = []
        self._not_finite: int | None = None

    def see(self, event: dict) -> None:
        """Take the next event."""
        if event["event"] == "start":
            self._start = event
        elif event["event"] == "end":
            self._end = event
        elif event["event"] == "census":
            self._census = event
        elif event["event"] == "iteration":
            self._first = self._first or event["time"]
            self._memory.append(event.get("memory_mib") or 0)
            if self._not_finite is None and not math.isfinite(event["loss"]):
                self._not_finite = event["iteration"]
            self._last_losses.append(event["loss"])
            if len(self._losses) < LOSSES_KEPT:
                self._losses.append(event["loss"])

    def no_number(self) -> Failure | None:
        """A training that loses its loss computes nothing, so its speed is not a result."""
        if self._not_finite is None:
            return None
        return no_number(self._not_finite)

    def figures(self) -> dict:
        """What was seen; `first_row_s` is the time from the attempt's start to rank 0's first printed row.

        `memory_peak_mib` is the largest reading; `memory_allocated_mib` is the most that the program's tensors held,
        `operators` how often each type of operator is in the compiled job, both where the program reports them; `data`
        is what it says that it read, `rdma` whether OneFlow's own transfers between nodes used RDMA.
        """
        return {
            "losses": self._losses,
            "last_losses": list(self._last_losses),
            "memory_peak_mib": max(self._memory, default=None),
            "first_row_s": self._first and self._first - self._started,
            "versions": self._start.get("versions"),
            "memory_allocated_mib": self._end.get("peak_allocated_mib"),
            "parameters": self._start.get("parameters"),
            "operators": self._census.get("operators"),
            "data": self._start.get("data"),
            "rdma": self._start.get("rdma"),
        }
