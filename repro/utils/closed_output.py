"""Ends a process whose standard output nobody reads any more, as SIGPIPE would: with its status, and no traceback."""

from __future__ import annotations

import io
import os
import select
import signal
import sys
from types import TracebackType


def end_without_reader() -> None:
    """From now on this process ends so when it prints what nobody reads, as after `head` with its lines."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # what fails only in Python's own last flush changes no exit status
    sys.excepthook = _end


def _end(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    if not (isinstance(error, BrokenPipeError) and _is_closed()):
        sys.__excepthook__(kind, error, traceback)
        return
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or what is still to be flushed would fail once more
    sys.exit(128 + signal.SIGPIPE)


def _is_closed() -> bool:
    """Whether who read the standard output has gone; any other pipe that broke is an error."""
    output = select.poll()
    output.register(1, 0)
    return bool(output.poll(0))
