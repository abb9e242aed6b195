"""Writes what nodes send into an attempt's folder, where each rank's files are as those of a local attempt are."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path

from repro.analysis.adapter_traffic import FILE, readings
from repro.launch.agent.ranks import LAUNCHER_LOG, RANK_LOG, RANK_METRICS, TRACE
from repro.launch.attempt import Event
from repro.launch.attempt_folder import AttemptFolder
from repro.launch.placement import Placement
from repro.runs.attempts import CutLog

LOG_CAP = 256 << 20
"""How many bytes of one log are kept at most: a rank that prints without end must not fill the controller's disk."""
GAP = "\n[{bytes} bytes that were printed here are not kept]\n"


@dataclass
class _Copy:
    """How much of a node's file is known to be printed, and how much of it was written here."""

    printed: int = 0
    written: int = 0
    next: int = 0


class LogCollector(AttemptFolder):
    """The folder of an attempt over several nodes, filled by what they send; only names that belong to a node's own ranks are taken from it.

    With `traces`, also the traces of kernels of the first node, which are cut as logs are.
    """

    def __init__(self, folder: Path, placement: Placement, cap: int = LOG_CAP, traces: bool = False):
        logs = (folder / "logs" / f"launcher-{safe(node.name)}.log" for node in placement.nodes)
        super().__init__(folder, placement.world_size, logs)
        self._cap, self._traces, self._placement = cap, traces, placement
        self._new: set[int] = set()
        self._copies: dict[Path, _Copy] = {}

    @property
    def bytes(self) -> int:
        """How many bytes all ranks and launchers are known to have written."""
        return sum(copy.printed for copy in self._copies.values())

    def write(self, index: int, name: str, offset: int, data: str) -> None:
        """Add a piece of a file from the node at a position; OSError if the disk here is full.

        Pieces come in their order. One further on, which only a log may have, leaves a gap that the log then shows.
        """
        path = self._path(index, name)
        if path is None:
            return
        copy, content = self._copies.setdefault(path, _Copy()), data.encode("latin-1")
        copy.printed = max(copy.printed, offset + len(content))
        gap = offset - copy.next
        fits = copy.written + len(content) <= self._cap
        if gap < 0 or not fits or (gap and (not content or RANK_METRICS.fullmatch(name))):
            return
        with open(path, "ab") as file:
            file.write((GAP.format(bytes=gap).encode() if gap else b"") + content)
        copy.written += len(content)
        copy.next = offset + len(content)

    def write_adapters(self, index: int, sent: object) -> None:
        """Keep the counters of the adapters of the node at a position, before its ranks started and after they ended."""
        path = self.folder / FILE.format(safe(self._placement.nodes[index].name))
        path.write_text(json.dumps(readings(sent), indent=1) + "\n")

    def sizes(self, index: int, sizes: dict[str, int]) -> None:
        """Take the sizes that files have in the end on the node at a position."""
        for name, size in sizes.items():
            if path := self._path(index, name):
                copy = self._copies.setdefault(path, _Copy())
                copy.printed = max(copy.printed, size)

    def cut(self) -> list[CutLog]:
        """The logs that were cut, sorted by their paths."""
        return [
            CutLog(path.relative_to(self.folder).as_posix(), copy.printed, copy.written)
            for path, copy in sorted(self._copies.items())
            if copy.written < copy.printed
        ]

    def _path(self, index: int, name: str) -> Path | None:
        ranks = self._placement.ranks(index)
        if name == LAUNCHER_LOG:
            return self.launcher_logs[index]
        if (match := RANK_METRICS.fullmatch(name)) and int(match[1]) in ranks:
            self._new.add(int(match[1]))
            return self.tails[int(match[1])].path
        if (match := RANK_LOG.fullmatch(name)) and int(match[1]) < len(ranks) and match[2] not in (".", ".."):
            return self.rank_folder(ranks[int(match[1])]) / match[2]
        if self._traces and index == 0 and TRACE.fullmatch(name):
            return self.folder / name
        return None

    def events(self) -> list[Event]:
        """The new events of all ranks, each with its rank and node."""
        new, self._new = sorted(self._new), set()
        return [
            {**event, "rank": rank, "node": self._placement.node_of(rank).name}
            for rank in new
            for event in self.tails[rank].read()
        ]


def safe(name: str) -> str:
    """A name as a part of a file's or container's name; one that has to be changed for it gets its hash, to stay unique."""
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "-", name)
    return plain if plain == name else f"{plain}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
