"""What attempts of every launcher share: how one is run and ends, its limits, and how a stall is noticed."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from repro.runs.attempts import CutLog
from repro.runs.failures import Failure, no_number
from repro.runs.metrics import DamagedLine, parse
from repro.utils.signals import held

SLICE_S = 0.1
PAUSE_S = 5.0
"""For how long a loop that looks many times a second does not look before this process counts as stopped."""

Event = dict
OnEvent = Callable[[Event], None]


def ignore(event: Event) -> None:
    """An `on_event` for those who want no events."""


@dataclass(frozen=True)
class Outcome:
    """How an attempt ended. `trainer_s` is the time from the first process's start to the last one's end.

    `cut` are the logs that are incomplete in the attempt's folder, `nodes` those of a cluster that its ranks ran on.
    """

    failure: Failure | None
    trainer_s: float
    log_tail: str = ""
    cut: tuple[CutLog, ...] = ()
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Limits:
    """When to give up: seconds without a byte from any rank, and seconds in all."""

    stall_timeout_s: float = 120.0
    total_s: float = 3600.0


class Attempt(Protocol):
    """One start of a unit's ranks; its configuration, commands, logs and metrics are in a folder of its own."""

    def run(self, on_event: OnEvent = ignore, stop: threading.Event | None = None) -> Outcome:
        """Start the ranks, pass their events to `on_event`, and wait for the end.

        Events are those of the ranks' metrics files, each with its `rank` (on a cluster also its `node`), samples of
        GPUs (`gpu`), and what the attempt waits for (`state`). One thread at a time calls `on_event`.

        Once `stop` is set or a signal has come, KeyboardInterrupt is raised. However this call ends, no process of
        the attempt is left when it does, except on nodes that cannot be reached, which end theirs by themselves.
        """
        ...


class PlacedAttempt(Attempt, Protocol):
    """An attempt that can be confined to some of a machine's GPUs, or of a cluster's nodes."""

    def on(self, names: Sequence[str]) -> Attempt:
        """The same on these GPUs, as CUDA_VISIBLE_DEVICES names them, or on these nodes of the inventory."""
        ...


class Interrupts:
    """Tells an attempt to end early: a signal has come, or its run is being broken off."""

    def __init__(self, signals: held, stop: threading.Event | None):
        self._signals, self._stop = signals, stop

    def check(self) -> None:
        """KeyboardInterrupt if the attempt has to end."""
        if self._signals.came or (self._stop is not None and self._stop.is_set()):
            raise KeyboardInterrupt

    def sleep(self, seconds: float) -> None:
        """Wait, unless the attempt has to end meanwhile: then KeyboardInterrupt."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self.check()
            time.sleep(min(left, SLICE_S))
        self.check()


@contextmanager
def interruptible(stop: threading.Event | None = None) -> Iterator[Interrupts]:
    """A block that is ended by polling alone, in the main thread and in others, so that nothing in it is cut short."""
    with held() as signals:
        yield Interrupts(signals, stop)


class Tail:
    """Reads the events that were added to a rank's metrics since the last read; `damaged` are the lines that are none."""

    def __init__(self, path: Path):
        self.path = path
        self.last: Event = {}
        self.damaged: list[DamagedLine] = []
        self._offset = self._lines = 0

    def read(self) -> list[Event]:
        """The events in the new whole lines; none if there is no such file yet."""
        try:
            with open(self.path, "rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        events, damaged = parse(whole, self.path.name, self._lines)
        self._offset += len(whole)
        self._lines += len(events) + len(damaged)
        self.damaged += damaged
        if events:
            self.last = events[-1]
        return events

    @property
    def finished(self) -> bool:
        """Whether the rank reported the end of its work."""
        return self.last.get("event") == "end"


class LossWatch:
    """Passes events on, and notices when rank 0's loss is no number any more: `failure` says so."""

    def __init__(self, on_event: OnEvent):
        self._on_event = on_event
        self.failure: Failure | None = None

    def __call__(self, event: Event) -> None:
        self._on_event(event)
        if self.failure is None and event["event"] == "iteration" and event.get("rank") == 0:
            self.failure = None if math.isfinite(event["loss"]) else no_number(event["iteration"])


class PauseDetector:
    """Notices that this process did not run for a while: suspended with its machine, stopped, or starved.

    `length` is how long the last pause was, in seconds, 0 before there was one.
    """

    def __init__(self) -> None:
        self._looked = self._now()
        self._ended, self.length = float("-inf"), 0.0

    def look(self) -> float:
        """Seconds since the last pause ended; to be called again and again, a pause is that it was not."""
        now = self._now()
        if now - self._looked > PAUSE_S:
            self._ended, self.length = now, now - self._looked
        self._looked = now
        return now - self._ended

    @staticmethod
    def _now() -> float:
        """Seconds of a clock that goes on while the machine is suspended."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)


class StallDetector:
    """Notices ranks that hang, because none of them writes any more, and attempts that take too long."""

    def __init__(self, limits: Limits):
        self._limits = limits
        self._started = self._since = self._checked = time.monotonic()
        self._written = -1

    def pause(self) -> None:
        """Leave out the time until the next check: nobody knows what is written."""
        self._since = time.monotonic()

    def check(self, written: int) -> Failure | None:
        """The failure, if a limit is exceeded; `written` is how many bytes all ranks have written."""
        now = time.monotonic()
        if now - self._checked > PAUSE_S:  # ranks may have written all the time, and nobody looked
            self._since = now
        self._checked = now
        if written != self._written:
            self._written, self._since = written, now
        if now - self._since > self._limits.stall_timeout_s:
            return Failure(
                "no rank has printed anything for {seconds:.0f} s: at least one hangs",
                {"seconds": self._limits.stall_timeout_s},
            )
        if now - self._started > self._limits.total_s:
            return Failure("no end after {seconds:.0f} s, the limit for one run", {"seconds": self._limits.total_s})
        return None
