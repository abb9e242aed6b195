"""The last known state of the ranks of a running attempt, as one line or as a table of nodes and ranks."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from repro.utils.printable import one_line

if TYPE_CHECKING:
    from rich.table import Table

COLUMNS = ("node", "rank", "iteration", "samples/s", "MiB", "GPU %", "silent s")
LONG_S = 10.0


@dataclass
class Rank:
    """The last known state of one rank; `heard` is when its last event came, in seconds of the watch's clock."""

    number: int
    heard: float
    node: str = ""
    state: str = "starting"
    iteration: int = 0
    throughput: float | None = None
    memory_mib: float | None = None


class Watch:
    """Follows one attempt by its events.

    Parameters
    ----------
    name : what is running.
    iterations : how many each rank is to do.
    world_size : the number of ranks.
    clock : gives seconds.
    """

    def __init__(self, name: str, iterations: int, world_size: int, clock: Callable[[], float] = time.monotonic):
        self.name, self.iterations, self._clock = name, iterations, clock
        self.ranks = [Rank(number, clock()) for number in range(world_size)]
        self.waiting_for = ""
        self._utilisation: dict[tuple[str, int], int] = {}

    def event(self, event: dict) -> None:
        """Take an event of a rank's metrics file, of a node's GPU (`gpu`), or what the attempt waits for (`state`)."""
        if event["event"] == "state":
            self.waiting_for = one_line(event["text"])
        elif event["event"] == "gpu":
            self._utilisation[event.get("node", ""), event["index"]] = event["utilisation"]
        else:
            self._hear(self.ranks[event["rank"]], event)

    def _hear(self, rank: Rank, event: dict) -> None:
        rank.heard, rank.node, self.waiting_for = self._clock(), event.get("node", ""), ""
        rank.state = "ended" if event["event"] == "end" else "running"
        rank.iteration = event.get("iteration", rank.iteration)
        rank.throughput = event.get("throughput", rank.throughput)
        rank.memory_mib = event.get("memory_mib", rank.memory_mib)

    def silence(self, rank: Rank) -> float:
        """Seconds since the rank's last event, since the start if there was none; 0 once it has ended."""
        return 0.0 if rank.state == "ended" else self._clock() - rank.heard

    def slowest(self) -> Rank:
        """The rank that is furthest behind; of several the one that has been silent longest."""
        return self._last(self.ranks)

    def _last(self, ranks: list[Rank]) -> Rank:
        return min(ranks, key=self._behind)

    def _behind(self, rank: Rank) -> tuple[bool, int, float]:
        return rank.state == "ended", rank.iteration, rank.heard

    def throughput(self) -> float | None:
        """Samples/s of the whole attempt by its latest row; every rank states the same figure."""
        return next((rank.throughput for rank in self.ranks if rank.throughput is not None), None)

    def line(self) -> str:
        """How far the attempt is and which rank is last."""
        if self.waiting_for:
            return f"{self.name}: {self.waiting_for}"
        slowest, speed = self.slowest(), self.throughput()
        parts = [f"{self.name}: iteration {slowest.iteration}/{self.iterations}"]
        parts += [f"{speed:.1f} samples/s"] if speed is not None else []
        place = f"rank {slowest.number}" + (f" on {slowest.node}" if slowest.node else "")
        if slowest.state == "ended":
            return ", ".join([*parts, "all ranks have ended"])
        return ", ".join([*parts, f"slowest {place}, silent {self.silence(slowest):.1f} s"])

    def rows(self, most: int) -> list[tuple[str, ...]]:
        """The cells of the table, at most `most` rows: one per rank, or one per node where there are more ranks.

        A node's row has the lowest iteration, the highest memory, the lowest utilisation, and the silence of the
        rank that is last. Where there are even more nodes than rows, those that are furthest behind are shown. The
        ranks of a node have its GPUs in their order.
        """
        nodes: dict[str, list[Rank]] = {}
        for rank in self.ranks:
            nodes.setdefault(rank.node, []).append(rank)
        used = {
            rank.number: self._utilisation.get((node, position))
            for node, ranks in nodes.items()
            for position, rank in enumerate(ranks)
        }
        slowest = self.slowest()
        groups = [[rank] for rank in self.ranks] if len(self.ranks) <= most else list(nodes.values())
        if len(groups) > most:
            groups.sort(key=lambda ranks: self._behind(self._last(ranks)))
            left = len(groups) - most + 1
            return [*(self._row(ranks, used, slowest) for ranks in groups[: most - 1]), _only(f"{left} more nodes")]
        return [self._row(ranks, used, slowest) for ranks in groups]

    def _row(self, ranks: list[Rank], utilisation: dict[int, int | None], slowest: Rank) -> tuple[str, ...]:
        last = self._last(ranks)
        late = last is slowest and self.silence(last) >= LONG_S
        memory = max((rank.memory_mib for rank in ranks if rank.memory_mib is not None), default=None)
        used = [used for rank in ranks if (used := utilisation[rank.number]) is not None]
        return (
            last.node,
            _numbers([rank.number for rank in ranks]),
            f"{last.iteration}/{self.iterations}" if last.state == "running" else last.state,
            "" if last.throughput is None else f"{last.throughput:.1f}",
            "" if memory is None else f"{memory:.0f}",
            f"{min(used)}" if used else "",
            "" if last.state == "ended" else f"{self.silence(last):.1f}{' <' if late else ''}",
        )

    def table(self, most: int) -> Table:
        """The table for a terminal, with what is waited for above it; columns without a value are left out."""
        from rich.table import Table
        from rich.text import Text

        rows = self.rows(most)
        present = [i for i in range(len(COLUMNS)) if any(row[i] for row in rows)]
        table = Table(box=None, header_style="bold", title=Text(self.waiting_for) or None, title_justify="left")
        for i in present:
            table.add_column(COLUMNS[i], justify="left" if i == 0 else "right", no_wrap=True)
        for row in rows:
            table.add_row(*(Text(row[i]) for i in present), style="yellow" if row[-1].endswith("<") else None)
        return table


def _only(text: str) -> tuple[str, ...]:
    return text, *[""] * (len(COLUMNS) - 1)


def _numbers(numbers: list[int]) -> str:
    """Ascending numbers in short: "0-7" where they follow each other, else "0,2,5"."""
    if len(numbers) > 1 and numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"{numbers[0]}-{numbers[-1]}"
    return ",".join(map(str, numbers))
