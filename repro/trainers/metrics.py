"""A rank's metrics file, with one JSON object per line, and its memory use."""

from __future__ import annotations

import json
import os
import resource
import time
from pathlib import Path

MEBIBYTE = 2**20


class Metrics:
    """Appends events to `metrics-rank<k>.jsonl` in a folder; `write` flushes each line."""

    def __init__(self, folder: str, rank: int) -> None:
        Path(folder).mkdir(parents=True, exist_ok=True)
        self.file = open(Path(folder) / f"metrics-rank{rank}.jsonl", "a", encoding="utf-8")  # noqa: SIM115

    def write(self, event: str, **values) -> None:
        self.file.write(json.dumps({"event": event, **values, "time": values.get("time", time.time())}) + "\n")
        self.file.flush()

    def close(self) -> None:
        os.fsync(self.file.fileno())
        self.file.close()


class Memory:
    """Current and peak memory in MiB."""

    kind = ""

    def __init__(self) -> None:
        self.peak_mib = 0.0

    def used_mib(self) -> float:
        used = self.read_mib()
        self.peak_mib = max(self.peak_mib, used)
        return used

    def read_mib(self) -> float:
        raise NotImplementedError


class ProcessMemory(Memory):
    """Resident memory of this process; the kernel tracks the peak, so nothing between two readings is missed."""

    kind = "resident set of the process"

    def read_mib(self) -> float:
        self.peak_mib = max(self.peak_mib, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * resource.getpagesize() / MEBIBYTE
