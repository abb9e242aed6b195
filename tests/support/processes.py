"""Processes that a test starts: found by their command line, and interruptible as from a terminal."""

import signal
from pathlib import Path


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


def heed_interrupts() -> None:
    """As from a terminal: what a script starts in the background ignores SIGINT by inheritance, and under nohup SIGHUP."""
    for kind in (signal.SIGINT, signal.SIGHUP):
        signal.signal(kind, signal.SIG_DFL)
