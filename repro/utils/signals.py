"""Lets SIGINT and SIGTERM end a run at any moment, except while something must be finished."""

from __future__ import annotations

import signal
import threading
from typing import ClassVar

KINDS = (signal.SIGINT, signal.SIGTERM)


class held:
    """A block in which a signal raises KeyboardInterrupt only inside `let_through`, or else at the block's end.

    It concerns the signals that would raise KeyboardInterrupt: one that is ignored or has a handler of another kind
    keeps its effect. `came` says whether a signal has come. Of nested blocks the outermost counts; in threads other
    than the main one, which get no signals, a block does nothing.
    """

    now: ClassVar[held | None] = None

    def __init__(self) -> None:
        self.came = self.open = False
        self._kinds: list[signal.Signals] = []

    def __enter__(self) -> held:
        if held.now or not _in_main_thread():
            return held.now or self
        self._kinds = [kind for kind in KINDS if signal.getsignal(kind) is signal.default_int_handler]
        for kind in self._kinds:
            signal.signal(kind, self._take)
        held.now = self
        return self

    def __exit__(self, kind: type | None, error: object, traceback: object) -> None:
        if held.now is not self:
            return
        held.now = None
        for each in self._kinds:
            signal.signal(each, signal.default_int_handler)
        if self.came and kind is None:
            raise KeyboardInterrupt

    def _take(self, number: int, frame: object) -> None:
        self.came = True
        if self.open or held.now is not self:
            self.open = False
            raise KeyboardInterrupt


class let_through:
    """A block within `held`, such as one that waits, in which a signal raises; one that came before raises at once."""

    def __enter__(self) -> None:
        self._held = held.now if _in_main_thread() else None
        if self._held:
            self._held.open = True
            if self._held.came:
                self._held.open = False
                raise KeyboardInterrupt

    def __exit__(self, *error: object) -> None:
        if self._held:
            self._held.open = False


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
