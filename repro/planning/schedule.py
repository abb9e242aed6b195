"""In which order the attempts of a run start, and on which nodes where several run side by side.

An attempt on several nodes needs the network between them, so at most one such attempt runs at a time; beside it run
attempts on one node each. Nothing is then shared that a measurement could feel.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeVar

P = TypeVar("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Block:
    """Attempts that follow each other in one place: a repeat of a unit, and of the units that are measured against it.

    `nodes` is how many nodes it takes, 0 on a single machine; `seconds` is how long it is expected to take.
    """

    name: str
    repeat: int
    nodes: int = 0
    seconds: float = 0.0


class FreeNodes:
    """Which nodes of a cluster are free; no node is handed out twice, nor the network between nodes."""

    def __init__(self, names: Iterable[str]):
        self._names = tuple(names)
        self._taken: set[str] = set()
        self._network = False

    def take(self, count: int, usable: Callable[[str], bool] = lambda name: True) -> tuple[str, ...] | None:
        """The first `count` free nodes; None if so many are not free, or several while others use the network.

        Nodes that are not `usable` are taken only by a block for which the usable ones do not suffice.
        """
        good = [name for name in self._names if usable(name)]
        allowed = good if len(good) >= count else self._names
        free = [name for name in allowed if name not in self._taken]
        if len(free) < count or (count > 1 and self._network):
            return None
        chosen = tuple(free[:count])
        self._taken |= set(chosen)
        self._network |= count > 1
        return chosen

    def give_back(self, names: Collection[str]) -> None:
        """A block that had these nodes has ended."""
        self._taken -= set(names)
        self._network &= len(names) < 2


def in_order(blocks: Iterable[Block]) -> list[Block]:
    """Repeat by repeat; of a repeat those on most nodes first, then the longest; equal ones stay in their order."""
    return sorted(blocks, key=lambda block: (block.repeat, -block.nodes, -block.seconds))


def drawn(turns: Sequence[T], block: Block, run: str) -> list[T]:
    """A block's turns in random order, so that no program is always the first on a machine that drifts.

    The order follows from the name of the run, so whoever has the run can draw it again.
    """
    return Random(f"{run} {block.name} {block.repeat}").sample(turns, len(turns))


def startable(
    waiting: Sequence[Block], running: Collection[str], take: Callable[[Block], P | None]
) -> tuple[Block, P] | None:
    """The next block to start, with what `take` gives it; None if all have to wait.

    It is the first that finds a place. No unit runs next to itself, and no repeat begins while one of the repeat
    before still waits, so that every unit has been run as often as the others when a machine drifts.
    """
    for block in waiting:
        if block.repeat > waiting[0].repeat:
            return None
        if block.name not in running and (place := take(block)) is not None:
            return block, place
    return None


def duration_s(blocks: Iterable[Block], nodes: int) -> float:
    """Seconds until all blocks have ended on so many nodes, if each takes as long as expected.

    ValueError if one needs more nodes than there are.
    """
    waiting, free, now = in_order(blocks), FreeNodes(map(str, range(nodes))), 0.0
    if any(not 1 <= block.nodes <= nodes for block in waiting):
        raise ValueError(f"a block needs no node, or more than {nodes}")
    running: list[tuple[float, str, tuple[str, ...]]] = []
    while waiting or running:
        while choice := startable(waiting, {name for _, name, _ in running}, lambda block: free.take(block.nodes)):
            block, names = choice
            waiting.remove(block)
            heapq.heappush(running, (now + block.seconds, block.name, names))
        now, _, names = heapq.heappop(running)
        free.give_back(names)
    return now
