"""The folder of an attempt, the same wherever its ranks run: what each rank printed and measured, and how it ended."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from repro.launch.attempt import Tail
from repro.runs.failures import Failure, last_lines
from repro.runs.metrics import METRICS, damage
from repro.utils.i18n import N_
from repro.utils.signals import signal_name


class AttemptFolder:
    """The files of the ranks of an attempt; `launcher_logs` is what started them printed, on each of its machines."""

    def __init__(self, folder: Path, world_size: int, launcher_logs: Iterable[Path]):
        self.folder, self.launcher_logs = folder, tuple(launcher_logs)
        self.tails = {rank: Tail(folder / METRICS.format(rank)) for rank in range(world_size)}
        for rank in self.tails:
            self.rank_folder(rank).mkdir(parents=True)

    def rank_folder(self, rank: int) -> Path:
        """Where a rank's standard output and error are written."""
        return rank_folder(self.folder, rank)

    def log_files(self) -> list[Path]:
        """Everything that ranks and launchers printed, rank 0's standard output first."""
        ranks = [self.rank_folder(rank) / name for rank in self.tails for name in ("stdout", "stderr")]
        return [path for path in [*ranks, *self.launcher_logs] if path.exists()]

    def bytes_on_disk(self) -> int:
        """How many bytes all ranks and launchers have written here."""
        paths = [*self.log_files(), *(tail.path for tail in self.tails.values())]
        return sum(path.stat().st_size for path in paths if path.exists())

    def log_tail(self, rank: int, launcher_log: Path) -> str:
        """The last lines of a rank, or else of what started it."""
        logs = [self.rank_folder(rank) / "stderr", self.rank_folder(rank) / "stdout", launcher_log]
        return "\n".join(next(filter(None, map(last_lines, logs)), []))

    def finished(self, rank: int) -> bool:
        """Whether a rank reported the end of its work."""
        return self.tails[rank].finished

    def unfinished(self) -> list[int]:
        """The ranks that did not."""
        return [rank for rank in self.tails if not self.finished(rank)]

    def damage(self, ranks: Iterable[int] | None = None) -> Failure | None:
        """The failure of an attempt in which these ranks, by default all, left damaged metrics."""
        chosen = self.tails if ranks is None else ranks
        return damage(line for rank in chosen for line in self.tails[rank].damaged)

    def ended_early(self, rank: int, status: int, node: str = "") -> Failure:
        """The failure of a rank that ended with a status, negative for a signal, before its work was done."""
        if status == 0 and (damaged := self.damage([rank])):
            return damaged
        return rank_ended(rank, status, node)


def rank_folder(folder: Path, rank: int) -> Path:
    """Where a rank's standard output and error are written in the folder of its attempt."""
    return folder / "logs" / f"local_rank_{rank}"


def rank_ended(rank: int, status: int, node: str = "") -> Failure:
    """A rank that ended before its work was done, with a status that is negative for a signal; on a cluster on a node."""
    where: dict = {"rank": rank, "node": node} if node else {"rank": rank}
    if status < 0:
        messages = N_("rank {rank} was killed by {signal}"), N_("rank {rank} on {node} was killed by {signal}")
        where["signal"] = signal_name(-status)
    elif status:
        messages = (
            N_("rank {rank} exited with status {status}"),
            N_("rank {rank} on {node} exited with status {status}"),
        )
        where["status"] = status
    else:
        messages = (
            N_("rank {rank} ended before its work was done"),
            N_("rank {rank} on {node} ended before its work was done"),
        )
    return Failure(messages[bool(node)], where)
