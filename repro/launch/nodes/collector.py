"""Writes what nodes send into an attempt's folder, where each rank's files are as those of a local attempt are."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

from repro.launch.attempt import Event, Tail
from repro.launch.placement import Placement

RANK_LOG = re.compile(r"logs/local_rank_(\d+)/([^/\0]+)")
METRICS = re.compile(r"metrics-rank(\d+)\.jsonl")
LAUNCHER_LOG = "launcher.log"


class LogCollector:
    """The folder of an attempt over several nodes; only names that belong to a node's own ranks are taken from it."""

    def __init__(self, folder: Path, placement: Placement):
        self.folder, self.bytes = folder, 0
        self._placement = placement
        self.tails = {rank: Tail(folder / f"metrics-rank{rank}.jsonl") for rank in range(placement.world_size)}
        self._new: set[int] = set()
        self._sizes: dict[Path, int] = defaultdict(int)
        for rank in self.tails:
            self.rank_folder(rank).mkdir(parents=True)

    def rank_folder(self, rank: int) -> Path:
        """Where a rank's standard output and error are written."""
        return self.folder / "logs" / f"local_rank_{rank}"

    def launcher_log(self, index: int) -> Path:
        """What the launcher, or Docker, printed on the node at a position."""
        return self.folder / "logs" / f"launcher-{safe(self._placement.nodes[index].name)}.log"

    def log_files(self) -> list[Path]:
        """Everything that ranks and launchers printed, rank 0's standard output first."""
        ranks = [self.rank_folder(rank) / name for rank in self.tails for name in ("stdout", "stderr")]
        launchers = [self.launcher_log(index) for index in range(len(self._placement.nodes))]
        return [path for path in [*ranks, *launchers] if path.exists()]

    def write(self, index: int, name: str, offset: int, data: str) -> None:
        """Add a piece of a file from the node at a position; OSError if the disk here is full."""
        path = self._path(index, name)
        if path is None or offset != self._sizes[path]:
            return
        content = data.encode("latin-1")
        with open(path, "ab") as file:
            file.write(content)
        self._sizes[path] += len(content)
        self.bytes += len(content)

    def _path(self, index: int, name: str) -> Path | None:
        ranks = self._placement.ranks(index)
        if name == LAUNCHER_LOG:
            return self.launcher_log(index)
        if (found := METRICS.fullmatch(name)) and int(found[1]) in ranks:
            self._new.add(int(found[1]))
            return self.tails[int(found[1])].path
        if (found := RANK_LOG.fullmatch(name)) and int(found[1]) < len(ranks) and found[2] not in (".", ".."):
            return self.rank_folder(ranks[int(found[1])]) / found[2]
        return None

    def events(self) -> list[Event]:
        """The new events of all ranks, each with its rank and node."""
        new, self._new = sorted(self._new), set()
        return [
            {**event, "rank": rank, "node": self._placement.node_of(rank).name}
            for rank in new
            for event in self.tails[rank].read()
        ]

    def finished(self, rank: int) -> bool:
        """Whether a rank reported the end of its work."""
        return self.tails[rank].last.get("event") == "end"

    def unfinished(self) -> list[int]:
        """The ranks that did not."""
        return [rank for rank in self.tails if not self.finished(rank)]


def safe(name: str) -> str:
    """A name as a part of a file's or container's name."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", name)
