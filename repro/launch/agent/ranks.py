"""What the ranks on the node that this runs on write, and which of them have ended; needs Python 3.8 alone."""

from __future__ import annotations

import contextlib
import os
import re
import select
import time
from collections.abc import Callable, Iterator

from repro.launch.agent.node import first_process
from repro.launch.agent.patience import limit
from repro.launch.agent.processes import command_line, environment, stat

LAUNCHER_LOG = "launcher.log"
RANK_METRICS = re.compile(r"metrics-rank(\d+)\.jsonl")
RANK_LOG = re.compile(r"logs/local_rank_(\d+)/([^/\x00-\x1f\x7f\ud800-\udfff]+)")
"""A file of a rank's logs; names that are not text, or would steer a terminal, are not taken."""
TRACE_NAME = "trace"
TRACE = re.compile(TRACE_NAME + r"\.\d+")
"""What the tracer of kernels writes: the process's number is appended."""
CHUNK = 1 << 16
CHUNKS_AT_ONCE = 64
TAIL = 1 << 20
BLIND_S = 0.02
QUIET_S = 3.0
"""How long a launcher goes on at most after it waited for a rank that failed."""
SAID = re.compile(rb"CalledProcessError: .* (?:returned non-zero exit status (\d+)|died with <Signals\.\w+: (\d+)>)\.")
"""With which words OneFlow's launcher ends after a rank that failed."""
EXITING = 0x4  # PF_EXITING in Linux's include/linux/sched.h, among the flags of /proc/PID/stat


class Files:
    """What was added to the logs and metrics in a folder since the last time, in pieces; links are skipped.

    Of a log of more than `cap` bytes, what lies between its beginning and its last `TAIL` bytes is never sent: they
    are sent by `rest`, when it has its final size. Metrics have no such gap: each of their lines counts. With `traces`
    the traces of kernels are sent too, as logs are.
    """

    def __init__(self, folder: str, cap: int, traces: bool = False):
        self._folder, self._head, self._traces = folder, max(cap - TAIL, 0), traces
        self._sent: dict[str, int] = {}
        self._told: dict[str, int] = {}

    def added(self) -> Iterator[tuple[str, int, bytes]]:
        """(path below the folder, offset, bytes); a file that is still empty comes once, with none.

        All of the metrics, for a rank that has ended is judged by them; of each log a few MiB at a time. A log of
        which no more is sent comes with its size as the offset and no bytes, for it shows that its rank goes on.
        """
        for relative, path, size in self._files():
            metrics = RANK_METRICS.fullmatch(relative)
            offset = self._sent.get(relative, -1)
            most = size if metrics else min(size, max(offset, 0) + CHUNK * CHUNKS_AT_ONCE, self._head)
            if most > offset:
                yield from self._pieces(path, relative, max(offset, 0), most)
            elif size > self._told.get(relative, max(offset, self._head)):
                self._told[relative] = size
                yield relative, size, b""

    def more(self) -> bool:
        """Whether `added` has more to send at once."""
        return any(self._sent.get(name, -1) < min(size, self._head) for name, _, size in self._files())

    def rest(self) -> Iterator[tuple[str, int, bytes]]:
        """The end of each file, as `added` gives it, at most `TAIL` bytes; what is before that is left out."""
        for relative, path, size in self._files():
            offset = max(self._sent.get(relative, 0), 0)
            if size > offset:
                yield from self._pieces(path, relative, max(offset, size - TAIL), size)

    def sizes(self) -> dict[str, int]:
        """The size of each file, by its path below the folder."""
        return {relative: size for relative, _, size in self._files()}

    def _files(self) -> Iterator[tuple[str, str, int]]:
        """(path below the folder, path, size)."""
        for base, _, names in os.walk(self._folder):
            for name in names:
                path = os.path.join(base, name)
                relative = os.path.relpath(path, self._folder)
                if self._is_wanted(relative) and os.path.isfile(path) and not os.path.islink(path):
                    yield relative, path, os.path.getsize(path)

    def _is_wanted(self, relative: str) -> bool:
        if self._traces and TRACE.fullmatch(relative):
            return True
        return relative == LAUNCHER_LOG or bool(RANK_METRICS.fullmatch(relative) or RANK_LOG.fullmatch(relative))

    def _pieces(self, path: str, relative: str, offset: int, end: int) -> Iterator[tuple[str, int, bytes]]:
        with open(path, "rb") as file:
            file.seek(offset)
            while True:
                data = file.read(min(CHUNK, end - offset))
                yield relative, offset, data
                offset += len(data)
                self._sent[relative] = offset
                if not data or offset >= end:
                    break


class Statuses:
    """The exit statuses of a launcher's ranks, which may have waited for one before it is looked at here.

    `gone` are those processes, with when each was first missed.
    """

    def __init__(self) -> None:
        self.gone: dict[int, float] = {}

    def of(self, pid: int) -> int | None:
        """The status of a process (negative: a signal), None while it runs or its status is not certain.

        One that is gone ended with 0 if the launcher still goes on after `QUIET_S`: any other makes it end them all.
        """
        fields, now = stat(pid), time.monotonic()
        if not fields:
            return 0 if now - self.gone.setdefault(pid, now) > limit(QUIET_S) else None
        if fields[0] != "Z":
            return None
        word = int(fields[-1])
        return -(word & 0x7F) if word & 0x7F else word >> 8

    def failed_first(self, pids: dict[int, int], log: bytes) -> tuple[int, int] | None:
        """(rank, status) of the only one of these ranks that is gone, with the status that the log of the ended launcher says."""
        gone, said = [rank for rank, pid in pids.items() if pid in self.gone], SAID.findall(log)
        if len(gone) != 1 or not said:
            return None
        status, number = said[-1]
        return gone[0], int(status) if status else -int(number)


def end_of(path: str) -> bytes:
    """The last `TAIL` bytes of a file; none if it cannot be read."""
    try:
        with open(path, "rb") as file:
            file.seek(max(os.fstat(file.fileno()).st_size - TAIL, 0))
            return file.read(TAIL)
    except OSError:
        return b""


class Ranks:
    """Sees the launcher's children end before the launcher does: one that leaves quietly keeps the others waiting.

    `launcher_of` gives the launcher's process number, 0 until it has started.
    """

    def __init__(self, launcher_of: Callable[[], int], first: int, count: int):
        self._launcher_of, self._first, self._count = launcher_of, first, count
        self._launcher = 0
        self._pids: dict[int, int] = {}
        self._reported: set[int] = set()
        self._handles: dict[int, int] = {}
        self._statuses = Statuses()

    def wait(self, seconds: float) -> None:
        """Until a rank ends, or for a while; the launcher looks for ended ranks but once a second.

        While not all are known, and where the kernel or Python gives no handles of processes, for a very short while.
        """
        unknown = self._launcher and len(self._pids) < self._count
        blind = unknown or len(self._handles) < len(self._pids) - len(self._reported)
        if blind or not self._handles:
            time.sleep(BLIND_S if blind else seconds)
            return
        poll = select.poll()
        for handle in self._handles.values():
            poll.register(handle, select.POLLIN)
        poll.poll(1000 * seconds)

    def ended(self) -> list[tuple[int, int]]:
        """(rank, status) of those that have ended since the last call, as `Statuses` has it.

        What ends because the launcher or its container does is skipped: that end says more.
        """
        self._launcher = self._launcher or self._launcher_of()
        if self._launcher:
            for index, pid in new_ranks(self._launcher, self._count, self._pids).items():
                self._pids[index] = pid
                self._watch(pid)
        ended = []
        for index, pid in sorted(self._pids.items()):
            status = self._statuses.of(pid)
            if pid in self._handles and (status is not None or pid in self._statuses.gone):
                os.close(self._handles.pop(pid))  # which would end every `wait` at once
            if status is not None and index not in self._reported and self._goes_on():
                self._reported.add(index)
                ended.append((self._first + index, status))
        return ended

    def failed_first(self, log: bytes) -> tuple[int, int] | None:
        """(rank, status) of the one that the launcher ended for, if that was not seen before; `log` is the launcher's."""
        pids = {self._first + index: pid for index, pid in self._pids.items() if index not in self._reported}
        return self._statuses.failed_first(pids, log)

    def _goes_on(self) -> bool:
        """Whether the launcher does, and its parent, which as a container's first process takes all others along."""
        launcher = stat(self._launcher)
        return _is_alive(launcher) and _is_alive(stat(int(launcher[1])))

    def _watch(self, pid: int) -> None:
        with contextlib.suppress(AttributeError, OSError):
            self._handles[pid] = os.pidfd_open(pid)


def launcher_of(started: int, container: str, inside: list[str]) -> Callable[[], int]:
    """What finds OneFlow's launcher, 0 until it runs.

    Parameters
    ----------
    started : the process that was started, which is the launcher itself unless one of the others is given.
    container : an engine's; the launcher is the only child of its first process.
    inside : the words with which the launcher's command line begins, somewhere below what was started.
    """
    if container:

        def find() -> int:
            first = first_process(container)
            return next(iter(children(first)), 0) if first else 0

        return find
    return (lambda: _below(started, inside)) if inside else (lambda: started)


def _below(pid: int, words: list[str]) -> int:
    """The first descendant of a process whose command line begins with these words; 0 if there is none."""
    for child in children(pid):
        if command_line(child)[: len(words)] == words:
            return child
        if descendant := _below(child, words):
            return descendant
    return 0


def new_ranks(launcher: int, count: int, known_ranks: dict[int, int]) -> dict[int, int]:
    """Local rank -> process number of those among a launcher's `count` ranks that are not `known` yet.

    A process shows itself which rank it is. One that has ended already is known by its place, if all are seen at once:
    with one missing, hidden or waited for, those behind it would be taken for the ranks before them.
    """
    if len(known_ranks) == count:
        return {}
    pids = children(launcher)
    ranks = range(count) if len(pids) == count else map(_local_rank, pids)
    return {rank: pid for rank, pid in zip(ranks, pids) if rank is not None and pid not in known_ranks.values()}


def _local_rank(pid: int) -> int | None:
    """The rank that a process has by its environment; None if that cannot be read, or is still its launcher's."""
    rank = environment(pid).get("LOCAL_RANK")
    return None if rank is None else int(rank)


def children(pid: int) -> list[int]:
    """A process's children in the order of their start; a moment in which one is waited for may hide another."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return [int(child) for child in file.read().split()]
    except OSError:
        return []


def _is_alive(fields: list[str]) -> bool:
    """Whether a process, by its `stat`, is there, has not ended, and is not ending."""
    return bool(fields) and fields[0] != "Z" and not int(fields[6]) & EXITING
