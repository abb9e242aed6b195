"""One process at a time carries a run out or records it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from repro.runs.files import RecordError
from repro.runs.record import Run


@contextmanager
def occupied(run: Run) -> Iterator[None]:
    """Hold the lock of a run's folder, which ends with this process; RecordError if another process holds it.

    Where folders cannot be locked, as on some network file systems, nobody is refused.
    """
    folder = os.open(run.folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RecordError(
                f"{run.folder} is in use: another process carries the run out or records it. Try again once that has ended"
            ) from None
        except OSError:
            pass
        yield
    finally:
        os.close(folder)
