"""What the ranks on the node that this runs on write, and which of them have ended; needs Python 3.8 alone."""
from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Callable, Iterator

CHUNK = 1 << 16
CHUNKS_AT_ONCE = 64
BLIND_S = 0.02
EXITING = 0x4  # PF_EXITING in Linux's include/linux/sched.h, among the flags of /proc/PID/stat


class Files:
    """What was added to the regular files of a folder since the last look, in pieces; links are passed over."""

    def __init__(self, folder: str, left_out: tuple[str, ...]):
        self._folder, self._left_out = folder, left_out
        self._sent: dict[str, int] = {}

    def added(self) -> Iterator[tuple[str, int, bytes]]:
        """(path below the folder, offset, bytes); a file that is still empty comes once, with none."""
        for base, _, names in os.walk(self._folder):
            for name in names:
                path = os.path.join(base, name)
                relative = os.path.relpath(path, self._folder)
                if relative not in self._left_out and not os.path.islink(path):
                    yield from self._added_to(path, relative)

    def _added_to(self, path: str, relative: str) -> Iterator[tuple[str, int, bytes]]:
        offset = self._sent.get(relative, -1)
        if os.stat(path).st_size <= offset:
            return
        offset = max(offset, 0)
        with open(path, "rb") as file:
            file.seek(offset)
            for _ in range(CHUNKS_AT_ONCE):
                data = file.read(CHUNK)
                yield relative, offset, data
                offset += len(data)
                self._sent[relative] = offset
                if len(data) < CHUNK:
                    break


class Ranks:
    """Sees the launcher's children end before the launcher does: one that leaves quietly keeps the others waiting.

    `launcher_of` gives the launcher's process number, 0 until it has started.
    """

    def __init__(self, launcher_of: Callable[[], int], first: int, count: int):
        self._launcher_of, self._first, self._count = launcher_of, first, count
        self._launcher = 0
        self._pids: list[int] = []
        self._told: set[int] = set()
        self._handles: dict[int, int] = {}

    def wait(self, seconds: float) -> None:
        """Until a rank ends, or for a while; the launcher looks for ended ranks but once a second.

        Where the kernel or Python gives no handles of processes, that is a very short while.
        """
        if not self._handles:
            time.sleep(BLIND_S if len(self._told) < len(self._pids) else seconds)
            return
        poll = select.poll()
        for handle in self._handles.values():
            poll.register(handle, select.POLLIN)
        poll.poll(1000 * seconds)

    def ended(self) -> list[tuple[int, int]]:
        """(rank, status) of those that have ended since the last look; 0 for one that the launcher has waited for.

        Any other status makes the launcher end them all. What ends because the launcher or its container does is
        passed over: that end says more.
        """
        self._launcher = self._launcher or self._launcher_of()
        if self._launcher and not self._pids:
            self._pids = ranks_of(self._launcher, self._count)
            for pid in self._pids:
                self._watch(pid)
        found = []
        for index, pid in enumerate(self._pids):
            status = exit_status(pid)
            if status is not None and index not in self._told and self._goes_on():
                self._told.add(index)
                found.append((self._first + index, status))
                if pid in self._handles:
                    os.close(self._handles.pop(pid))
        return found

    def _goes_on(self) -> bool:
        """Whether the launcher does, and its parent, which as a container's first process takes all others along."""
        launcher = _stat(self._launcher)
        return _is_alive(launcher) and _is_alive(_stat(int(launcher[1])))

    def _watch(self, pid: int) -> None:
        with contextlib.suppress(AttributeError, OSError):
            self._handles[pid] = os.pidfd_open(pid)


def ranks_of(launcher: int, count: int) -> list[int]:
    """The process numbers of a launcher's ranks, in their order; none unless all are seen at once.

    With one missing, hidden or waited for already, those behind it would be taken for the ranks before them.
    """
    found = children(launcher)
    return found[:count] if len(found) >= count else []


def children(pid: int) -> list[int]:
    """A process's children in the order of their start; a moment in which one is waited for may hide another."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return [int(child) for child in file.read().split()]
    except OSError:
        return []


def _is_alive(fields: list[str]) -> bool:
    """Whether a process, by what `_stat` tells of it, is there, has not ended, and is not ending."""
    return bool(fields) and fields[0] != "Z" and not int(fields[6]) & EXITING


def exit_status(pid: int) -> int | None:
    """The status of a child that has ended (negative: a signal), None while it runs, 0 once it has been waited for."""
    fields = _stat(pid)
    if not fields:
        return 0
    if fields[0] != "Z":
        return None
    word = int(fields[-1])
    return -(word & 0x7F) if word & 0x7F else word >> 8


def _stat(pid: int) -> list[str]:
    """The fields of a process from its state on, empty if it is gone."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return []
