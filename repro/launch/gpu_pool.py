"""Hands out the GPUs of this machine to attempts that run concurrently, where no speed is measured."""

from collections.abc import Sequence

from repro.launch.base import Places


class GpuPool(Places):
    """Which GPUs the attempts that run at the same time have.

    Parameters
    ----------
    gpus : as CUDA_VISIBLE_DEVICES names them; none on the CPU.
    jobs : the maximum number of attempts at the same time, which share GPUs where there are too few; None for as many
        as fit without sharing.
    """

    def __init__(self, gpus: Sequence[str], jobs: int | None):
        self._load = dict.fromkeys(gpus, 0)
        self._jobs = jobs
        self._running = 0

    def take(self, ranks: int) -> tuple[str, ...] | None:
        """GPUs for an attempt of so many ranks, those with the fewest attempts; None if it has to wait."""
        chosen = sorted(self._load, key=self._load.__getitem__)[:ranks]
        shared = any(self._load[gpu] for gpu in chosen)
        if self._running and (shared if self._jobs is None else self._running >= self._jobs):
            return None
        for gpu in chosen:
            self._load[gpu] += 1
        self._running += 1
        return tuple(gpu for gpu in self._load if gpu in chosen)

    def give_back(self, gpus: Sequence[str]) -> None:
        """Return the GPUs of an attempt that has ended."""
        for gpu in gpus:
            self._load[gpu] -= 1
        self._running -= 1
