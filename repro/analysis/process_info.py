"""The processes of a run, read back from its files: hosts, versions, devices, and NCCL's transports."""

from dataclasses import dataclass

from repro.analysis.nccl_transport import lacks_verbs, ways_in
from repro.runs.attempts import AttemptRecord
from repro.runs.files import RunPath, names, opened
from repro.runs.metrics import METRICS, parse
from repro.runs.plan import Plan


@dataclass(frozen=True)
class ProcessInfo:
    """What the successful attempts of a unit reported about their processes.

    `versions` maps a name to all values that ranks reported; `nodes` and `ranks` are the numbers of hosts and ranks in
    an attempt's start events. A set is empty if nothing was recorded; several values mean that ranks or attempts
    differed. `lacks_verbs` is whether NCCL could not open the library that it reaches InfiniBand with.
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
    lacks_verbs: bool = False

    def version(self, name: str) -> frozenset[str]:
        """Every value that was reported of a version; empty if no rank reported it."""
        return self.versions.get(name, frozenset())


def process_info(files: RunPath, attempts: list[AttemptRecord], world_size: int) -> ProcessInfo:
    """Read the start events and the NCCL lines of a unit's successful attempts, all of them on `world_size` ranks."""
    folders = [files / attempt.folder for attempt in attempts if attempt.status == "ok"]
    by_attempt = [
        [start for rank in range(world_size) if (start := start_event(folder / METRICS.format(rank)))]
        for folder in folders
    ]
    starts = [start for attempt_starts in by_attempt for start in attempt_starts]
    hosts = [{start["host"] for start in attempt_starts if start.get("host")} for attempt_starts in by_attempt]
    versions = [readable(start.get("versions") or {}) for start in starts]
    names = {name for by_library in versions for name in by_library}
    return ProcessInfo(
        attempts=len(folders),
        hosts=frozenset().union(*hosts),
        nodes=frozenset(len(attempt_hosts) for attempt_hosts in hosts if attempt_hosts),
        ranks=frozenset(len(attempt_starts) for attempt_starts in by_attempt if attempt_starts),
        devices=_values(starts, "device"),
        gpus=_values(starts, "gpu"),
        gpu_memories_mib=_values(starts, "gpu_memory_mib"),
        versions={name: _values(versions, name) for name in sorted(names)},
        transports=frozenset(transport for folder in folders for transport in transports(folder)),
        lacks_verbs=any(lacks_verbs(_logs(folder)) for folder in folders),
    )


def program_starts(files: RunPath, plan: Plan, attempts: list[AttemptRecord]) -> dict[str, dict]:
    """The start event of rank 0 in each program's first successful attempt, by the label of its units.

    `files` are the run's. A program without a start event has no entry.
    """
    units = {unit.name: unit for unit in plan.units}
    starts: dict[str, dict] = {}
    for attempt in attempts:
        unit = units.get(attempt.unit)
        if unit and attempt.status == "ok":
            metrics = files / attempt.folder / METRICS.format(0)
            if unit.label not in starts and (start := start_event(metrics)):
                starts[unit.label] = start
    return starts


def readable(versions: dict) -> dict:
    """Versions as text where a library reports its own as a number: NCCL 2708 or 21210, cuDNN 7605 or 91900, CUDA 10020.

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
            first = parse(file.readline(), metrics.name).events
    except OSError:
        return None
    return first[0] if first and first[0]["event"] == "start" else None


def transports(attempt: RunPath) -> set[str]:
    """The transports of NCCL's channels ("P2P", "SHM", "NET/IB", "NET/Socket"), from any log of an attempt."""
    return ways_in(_logs(attempt))


def _logs(attempt: RunPath) -> list[RunPath]:
    logs = [attempt / name for name in names(attempt) if not name.rpartition("/")[2].startswith("metrics-rank")]
    return [log for log in logs if log.is_file()]


def _values(tables: list[dict], name: str) -> frozenset[str]:
    return frozenset(str(table[name]) for table in tables if table.get(name) is not None)
