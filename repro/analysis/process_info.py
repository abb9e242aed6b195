"""Reads back from a run's files what its processes were: hosts, versions, device, and the transport NCCL chose."""

import json
from dataclasses import dataclass

from repro.analysis.nccl_transport import ways_in
from repro.runs.files import RunPath, names, opened


@dataclass(frozen=True)
class Observed:
    """What the successful attempts of a unit said of themselves.

    `versions` maps a name to every value that a rank reported; `nodes` and `ranks` are the numbers of hosts and of
    ranks that an attempt's start events name. A set is empty where nothing tells; several values mean that they
    differed.
    """

    attempts: int
    hosts: frozenset[str]
    nodes: frozenset[int]
    ranks: frozenset[int]
    devices: frozenset[str]
    gpus: frozenset[str]
    gpu_memories_mib: frozenset[str]
    versions: dict[str, frozenset[str]]
    transports: frozenset[str]

    def version(self, name: str) -> frozenset[str]:
        """Every value that was reported of a version; empty if no rank reported it."""
        return self.versions.get(name, frozenset())


def observe(files: RunPath, attempts: list[dict], world_size: int) -> Observed:
    """Read the start events and the NCCL lines of a unit's successful attempts from the files of a run."""
    folders = [files / attempt["folder"] for attempt in attempts if attempt["status"] == "ok"]
    starts = [[start_event(folder / f"metrics-rank{rank}.jsonl") for rank in range(world_size)] for folder in folders]
    told = [start for ranks in starts for start in ranks if start]
    hosts = [{start["host"] for start in ranks if start and start.get("host")} for ranks in starts]
    versions = [readable(start.get("versions") or {}) for start in told]
    names = {name for each in versions for name in each}
    return Observed(
        attempts=len(folders),
        hosts=frozenset(host for each in hosts for host in each),
        nodes=frozenset(len(each) for each in hosts if each),
        ranks=frozenset(sum(start is not None for start in ranks) for ranks in starts) - {0},
        devices=_values(told, "device"),
        gpus=_values(told, "gpu"),
        gpu_memories_mib=_values(told, "gpu_memory_mib"),
        versions={name: _values(versions, name) for name in sorted(names)},
        transports=frozenset(transport for folder in folders for transport in transports(folder)),
    )


def readable(versions: dict) -> dict:
    """Versions as text where a library tells its own as a number: NCCL 2708 or 21210, cuDNN 7605 or 91900, CUDA 10020.

    Sources: NCCL_VERSION in nccl.h (another scale from 2.9 on), CUDNN_VERSION in cudnn_version.h (another scale from 9
    on), CUDART_VERSION.
    """
    texts = dict(versions)
    for name, value in versions.items():
        if name == "nccl" and isinstance(value, int):
            major = 10_000 if value >= 10_000 else 1000
            texts[name] = f"{value // major}.{value % major // 100}.{value % 100}"
        elif name == "cudnn" and isinstance(value, int):
            major = 10_000 if value >= 90_000 else 1000
            texts[name] = f"{value // major}.{value % major // 100}.{value % 100}"
        elif name == "cuda" and isinstance(value, int):
            texts[name] = f"{value // 1000}.{value % 1000 // 10}"
    return texts


def start_event(metrics: RunPath) -> dict | None:
    """The start event of a rank's metrics, None if there is none."""
    try:
        with opened(metrics) as file:
            event = json.loads(file.readline())
    except (OSError, ValueError):
        return None
    return event if isinstance(event, dict) and event.get("event") == "start" else None


def transports(attempt: RunPath) -> set[str]:
    """How NCCL's channels go ("P2P", "SHM", "NET/IB", "NET/Socket"), from what NCCL_DEBUG=INFO left in any log."""
    logs = [attempt / name for name in names(attempt) if not name.rpartition("/")[2].startswith("metrics-rank")]
    return ways_in(log for log in logs if log.is_file())


def _values(tables: list[dict], name: str) -> frozenset[str]:
    return frozenset(str(table[name]) for table in tables if table.get(name) is not None)
