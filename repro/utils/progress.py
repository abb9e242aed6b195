"""Lines at intervals that say how far a long task is, so that none is silent."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SILENCE_S = 10.0
"""Seconds from one line to the next."""


def to_stderr(text: str) -> None:
    """Show a line beside what the task prints."""
    print(text, file=sys.stderr, flush=True)


class Steps:
    """How many steps of a task are done, for `said_meanwhile` to say.

    Parameters
    ----------
    total : how many steps there are, or how much work in any unit.
    what : what is counted, in the plural.
    """

    def __init__(self, total: float, what: str):
        self._total, self._what = total, what
        self._done, self._last = 0.0, ""

    def done(self, name: str = "", work: float = 1) -> None:
        """A step has ended; `name` says which."""
        self._done, self._last = self._done + work, name

    def now(self) -> str:
        """How much is done, and which step was the last."""
        behind = f" ({self._last})" if self._last else ""
        return f"{self._done:.0f} of {self._total:.0f} {self._what}{behind}"

    def share(self) -> float:
        """The part of the work that is done."""
        return self._done / self._total if self._total else 1.0


def time_left(spent: float, share: float) -> str:
    """ ", 4 min left" for work of which a share took `spent` seconds; "" if nothing is done yet, or more than expected."""
    return f", {duration(spent / share * (1 - share))} left" if 0 < share <= 1 else ""


class Stages:
    """What a task does now, of stages that differ too much in length for its time left to follow from how many there are."""

    def __init__(self, first: str):
        self.begin(first)

    def begin(self, what: str, seconds: float = 0) -> None:
        """A stage begins; `seconds` is about how long it and all that follow take, 0 if that is unknown."""
        self._what, self._seconds, self._began = what, seconds, time.monotonic()

    def now(self) -> str:
        """The stage, and the time left unless it takes longer than was assumed."""
        left = self._seconds - (time.monotonic() - self._began)
        return f"{self._what}, about {duration(left)} left" if left > 0 else self._what


@contextmanager
def said_meanwhile(
    now: Callable[[], str], say: Callable[[str], object] = to_stderr, share: Callable[[], float] = lambda: 0.0
) -> Iterator[None]:
    """Say every SILENCE_S seconds for how long the block has run, what it does now, and what is left.

    `share` is how much of the work is done, 0 as long as that cannot be said.
    """
    started, ended = time.monotonic(), threading.Event()

    def go_on() -> None:
        while not ended.wait(SILENCE_S):
            spent = time.monotonic() - started
            say(f"{duration(spent)}: {now()}{time_left(spent, share())}")

    thread = threading.Thread(target=go_on, daemon=True, name="progress")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def duration(seconds: float) -> str:
    """Seconds, or from 100 of them on minutes, for people."""
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
