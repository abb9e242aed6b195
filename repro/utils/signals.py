"""Lets SIGINT, SIGTERM and SIGHUP end a run at any moment, except while something must be finished."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import ClassVar

KINDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def heed_signals() -> None:
    """Let SIGTERM, and the end of a terminal, raise KeyboardInterrupt as SIGINT does, unless they are ignored (nohup)."""
    for kind in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(kind) is not signal.SIG_IGN:
            signal.signal(kind, signal.default_int_handler)


class held:
    """A block that a signal does not break off: `came` tells of it, and KeyboardInterrupt is raised at the block's end.

    Whatever waits inside the block polls `came`; so can other threads, where `with held()` gives the block of the main
    thread. It concerns the signals that would raise KeyboardInterrupt: one that is ignored or has a handler of another
    kind keeps its effect. Of nested blocks the outermost counts. Only the main thread gets signals: where it holds
    none, a block of another thread does nothing.
    """

    now: ClassVar[held | None] = None

    def __init__(self) -> None:
        self.came = False
        self._kinds: list[signal.Signals] = []

    def __enter__(self) -> held:
        if held.now or threading.current_thread() is not threading.main_thread():
            return held.now or self
        self._kinds = [kind for kind in KINDS if signal.getsignal(kind) is signal.default_int_handler]
        for kind in self._kinds:
            signal.signal(kind, self._take)
        held.now = self
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, traceback: object) -> None:
        if held.now is not self:
            return
        held.now = None
        for number in self._kinds:
            signal.signal(number, signal.default_int_handler)
        if self.came and kind is None:
            raise KeyboardInterrupt

    def _take(self, number: int, frame: FrameType | None) -> None:
        self.came = True
        if held.now is not self:
            raise KeyboardInterrupt


def signal_name(number: int) -> str:
    """The name of a signal; Python has none for most real-time signals."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def as_of_a_process(status: int) -> int:
    """What an engine gives as a container's status as of a process: minus the signal for 128 and a signal's number."""
    return 128 - status if 128 < status < 128 + signal.NSIG else status
