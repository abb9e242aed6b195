"""Who brought simulated nodes up: a person on the command line, or a process whose end makes them leftovers."""

import contextlib
import os
from pathlib import Path

PERSON = "command line"


def started(pid: int | str) -> str | None:
    """When a process started, in clock ticks since the machine did; None if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return None


def has_ended(pid: int) -> bool:
    """Whether a process is gone, or has ended and closed its files though its parent has not asked for it.

    Its program is gone before it closes them, and its first thread may be.
    """
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state in "ZX" and len(os.listdir(f"/proc/{pid}/task")) == 1
    except OSError:
        return True
