"""Hands out the processors and the memory of this machine to attempts on the CPU that run concurrently."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from repro.launch.base import Places
from repro.planning.rehearsal import memory_mib
from repro.runs.plan import Plan


class RankPool(Places):
    """Which attempts run at the same time: one rank per processor, within the memory that is free.

    An attempt with more ranks than there are processors runs by itself.

    Parameters
    ----------
    processors, free_mib : what this machine has for all attempts together.
    needed_mib : memory of an attempt by its number of ranks, the largest of the plan.
    jobs : the largest number of attempts at a time; None for any.
    """

    def __init__(self, processors: int, free_mib: float, needed_mib: dict[int, float], jobs: int | None = None):
        self._processors, self._free, self._needed, self._jobs = processors, free_mib, needed_mib, jobs
        self._taken: list[int] = []

    @classmethod
    def of_this_machine(cls, plan: Plan, jobs: int | None = None) -> RankPool:
        """The processors and the memory that are free now, for the attempts of a plan."""
        needed: dict[int, float] = {}
        for unit in plan.units:
            needed[unit.world_size] = max(needed.get(unit.world_size, 0.0), memory_mib(unit.report, unit.config))
        return cls(len(os.sched_getaffinity(0)), free_mib(), needed, jobs)

    def take(self, ranks: int) -> tuple[str, ...] | None:
        """A name for each rank of an attempt; None if it has to wait."""
        together = [*self._taken, ranks]
        full = sum(together) > self._processors or sum(map(self._needed.__getitem__, together)) > self._free
        if self._taken and (full or len(self._taken) == self._jobs):
            return None
        self._taken.append(ranks)
        return tuple(map(str, range(ranks)))

    def give_back(self, names: Sequence[str]) -> None:
        """The attempt that had these ranks has ended."""
        self._taken.remove(len(names))


def free_mib(meminfo: Path = Path("/proc/meminfo")) -> int:
    """MiB that processes can have without swapping, as the kernel estimates it."""
    (line,) = (line for line in meminfo.read_text().splitlines() if line.startswith("MemAvailable:"))
    return int(line.split()[1]) // 1024
