"""Processes that a test starts: found by their command line, and interruptible as from a terminal."""

import os
import signal
from pathlib import Path

from tests.support.patience import wait_until


def processes_of(folder: Path) -> list[tuple[int, str]]:
    """Number and command line of the processes whose command line names a folder, such as an attempt's."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if str(folder) in command:
            found.append((int(entry.name), command))
    return found


def stop(pid: int) -> None:
    """Stop a process, and wait for it: until each of its threads has seen the signal, one that wakes may still run."""
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: states(pid) == {"T"}, f"process {pid} was not stopped")


def states(pid: int) -> set[str]:
    """The states of a process's threads, as letters of proc(5)."""
    stats = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    return {text.rpartition(")")[2].split()[0] for text in stats}


def heed_interrupts() -> None:
    """As from a terminal: what a script starts in the background ignores SIGINT by inheritance, and under nohup SIGHUP."""
    for kind in (signal.SIGINT, signal.SIGHUP):
        signal.signal(kind, signal.SIG_DFL)
