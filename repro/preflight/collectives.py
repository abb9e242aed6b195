"""The check of collectives: the bandwidth of OneFlow's all-reduce in and between nodes, compared with the links."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from repro.analysis.process_info import readable, transports
from repro.cluster.cluster import Cluster, ClusterError
from repro.launch.attempt import Limits, Outcome
from repro.launch.check_programs import CheckConfig, ProgramOf
from repro.launch.local_attempt import local_programs
from repro.perfmodel.communication import path
from repro.perfmodel.hardware import ClusterModel as Hardware
from repro.perfmodel.hardware import HardwareError, from_devices
from repro.perfmodel.hardware import NodeModel as HardwareNode
from repro.preflight.framework import (
    CheckAborted,
    CheckResult,
    Machine,
    PreflightCheck,
    failed,
    ok,
    unavailable,
    warning,
)
from repro.preflight.gpu import links, query
from repro.utils.errors import FAILED, ReproError
from repro.utils.i18n import Message
from repro.utils.paths import TRAINERS

CPU_RANKS = 2
SHARE_GOOD, SHARE_LEAST = 0.8, 0.5
FILE = "allreduce.json"


@dataclass(frozen=True)
class Collectives:
    """Measures all-reduces on this machine or over a cluster, and writes into a folder."""

    folder: Path
    environment: dict
    cluster: Cluster | None = None

    def checks(self) -> tuple[PreflightCheck, ...]:
        inside = PreflightCheck("allreduce", "all-reduce within a node", self.check_inside)
        between = PreflightCheck("allreduce-nodes", "all-reduce over all nodes", self.check_between, together=True)
        return inside, between

    def check_inside(self, machine: Machine) -> CheckResult:
        ranks, device, hardware = self._inside(machine)
        if ranks < 2:
            return unavailable(Message("a single rank has nothing to exchange"))
        name = re.sub(r"\W+", "-", machine.name)
        if self.cluster is None:
            return self._judge(local_programs(PROGRAM, LIMITS, self.environment), ranks, device, name, hardware)
        node = next(node for node in self.cluster.nodes if node.name == machine.name)
        return self._over(replace(self.cluster, nodes=(node,)), ranks, device, name, hardware)

    def check_between(self, machines: Sequence[Machine]) -> CheckResult:
        if self.cluster is None or len(machines) < 2:
            return unavailable(Message("a single machine has no other nodes"))
        per_node, device, hardware = self._inside(machines[0])
        if hardware:
            node = replace(hardware.node, port_gbs=self.cluster.network_gbits / 8)
            hardware = replace(hardware, node=node, nodes=len(machines))
        return self._over(self.cluster, per_node * len(machines), device=device, name="all-nodes", hardware=hardware)

    def _inside(self, machine: Machine) -> tuple[int, str, Hardware | None]:
        """Ranks and device of a machine, and its hardware if it is known."""
        try:
            names = [row["name"] for row in query(machine, "index", "name")]
        except CheckAborted:
            return machine.expected.gpus or CPU_RANKS, "cpu", None
        return len(names), "cuda", hardware_of(names, links(machine) if len(names) > 1 else None)

    def _over(self, cluster: Cluster, ranks: int, device: str, name: str, hardware: Hardware | None) -> CheckResult:
        try:
            with attempts(cluster, PROGRAM, "allreduce", LIMITS) as attempt_of:
                return self._judge(attempt_of, ranks, device, name, hardware)
        except ClusterError as error:
            message = "; ".join(str(error).splitlines()[1:]) or str(error)
            return failed(message, "`make bench` cannot start either.", "follow the message")

    def _judge(
        self, attempt_of: ProgramOf, ranks: int, device: str, name: str, hardware: Hardware | None
    ) -> CheckResult:
        try:
            table = measure(attempt_of, ranks, device, self.folder / f"allreduce-{name}")
        except (CollectiveError, OSError) as error:
            return failed(
                str(error),
                "Ranks cannot exchange gradients, so no run with several ranks works.",
                f"read the logs in {self.folder}; see also the checks port, names and gpu-peers",
            )
        limit = link_gbs(hardware) if hardware else None
        content = {**table.as_json(), "link_gbs": limit}
        (self.folder / f"allreduce-{name}" / FILE).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        return judge(table, limit)


def judge(table: CollectiveTable, limit: float | None) -> CheckResult:
    """The finding of a table; `limit` is the bandwidth of the links in GB/s, None if it is not known."""
    measured = Message(
        "{ranks}: {gbs:.1f} GB/s over {way}, {latency:.0f} µs for the smallest message",
        ranks=Message("{n} GPUs", n=table.ranks) if table.device == "cuda" else Message("{n} CPU ranks", n=table.ranks),
        gbs=table.bus_gbs,
        way=list(table.transports) or "?",
        latency=table.latency_us,
    )
    if limit is None:
        return ok(Message("{measured}; the bandwidth of the links is not known", measured=measured))
    share = table.bus_gbs / limit
    message = Message(
        "{measured}; {share:.0%} of the {limit:.1f} GB/s of the links", measured=measured, share=share, limit=limit
    )
    impact = "Gradient exchange takes too long, so scaling suffers."
    fix = "see gpu-peers, link and bandwidth; NCCL's log lines name the transport it used"
    if share < SHARE_LEAST:
        return failed(message, impact, fix)
    return warning(message, impact, fix) if share < SHARE_GOOD else ok(message)


def hardware_of(names: list[str], nvlinks: tuple[tuple[int, ...], ...] | None) -> Hardware | None:
    """The description of one node with these GPUs and NVLinks; None for an unknown GPU.

    If every GPU has all its links to every other one, there is a switch between them.
    """
    try:
        cluster = from_devices(names[0], len(names))
    except HardwareError:
        return None
    count = len(names)
    nvlinks = nvlinks or tuple((0,) * count for _ in range(count))
    switched = all(nvlinks[i][j] == cluster.gpu.links for i in range(count) for j in range(count) if i != j)
    gpu = cluster.gpu
    return replace(cluster, node=HardwareNode(gpu, count, None if switched else nvlinks, 1, cluster.node.port_gbs))


@contextmanager
def attempts(cluster: Cluster, program: Path, name: str, limits: Limits) -> Iterator[ProgramOf]:
    """The maker of attempts of a program over a cluster's nodes, which are held for as long as the context lasts."""
    from repro.launch.nodes.attempt import NodesAttempt
    from repro.launch.nodes.code_upload import UploadedCode
    from repro.launch.nodes.work import check_work
    from repro.launch.ssh.attempt import SshTransport
    from repro.launch.ssh.nodes import NodePool

    code = UploadedCode.of(cluster, program)
    with NodePool(cluster, code, "make preflight") as pool:

        def attempt_of(config: CheckConfig, folder: Path) -> NodesAttempt:
            work = check_work(cluster, code, program, name, config, pool.port, folder)
            return NodesAttempt(SshTransport(work, pool), folder, limits)

        yield attempt_of


PROGRAM = TRAINERS / "allreduce.py"
LIMITS = Limits(stall_timeout_s=600.0, total_s=1200.0)
SIZES = {"cuda": tuple(2**power for power in range(10, 29, 2)), "cpu": (2**10, 2**20)}
WINDOW_S = {"cuda": 0.1, "cpu": 0.02}
REPEATS = {"cuda": 5, "cpu": 3}


class CollectiveError(ReproError):
    """The measuring program failed; the message has the reason and the end of its log."""

    status = FAILED


@dataclass(frozen=True)
class CollectiveTable:
    """Measured all-reduces, one row per size (`bytes`, `seconds`, `algorithm_gbs`, `bus_gbs`), and pairs of neighbours.

    GB are 10^9 bytes. Bus bandwidth is 2(n-1)/n · S/T, the rate at which each rank would send in a ring all-reduce.
    For two neighbouring ranks, `pairs` has `from`, `to`, `bytes`, `seconds` and `gbs` in that direction.
    """

    device: str
    ranks: int
    rows: tuple[dict, ...]
    pairs: tuple[dict, ...]
    versions: dict
    libraries: tuple[str, ...]
    transports: tuple[str, ...]

    @property
    def bus_gbs(self) -> float:
        """The best bus bandwidth over all sizes, GB/s."""
        return max(row["bus_gbs"] for row in self.rows)

    @property
    def latency_us(self) -> float:
        """Time of the smallest all-reduce in microseconds, including OneFlow's launch overhead."""
        return self.rows[0]["seconds"] * 1e6

    def as_json(self) -> dict:
        return {**asdict(self), "bus_gbs": self.bus_gbs, "latency_us": self.latency_us}


def measure(attempt_of: ProgramOf, ranks: int, device: str, folder: Path) -> CollectiveTable:
    """Measure between `ranks` ranks on "cpu" or "cuda"; files stay in `folder`, which must not exist yet.

    `attempt_of` comes from `local_programs` or `attempts`, for the program PROGRAM.

    Raises
    ------
    MeasurementError
        The program failed, or a sum was wrong.
    """
    settings = {
        "sizes": list(SIZES[device]),
        "repeats": REPEATS[device],
        "window_s": WINDOW_S[device],
        "pairs": ranks > 1,
    }
    folder.mkdir(parents=True)
    events: list[dict] = []
    outcome = attempt_of(CheckConfig(device, ranks, settings), folder).run(events.append)
    if outcome.failure:
        raise CollectiveError(_reason(outcome))
    mine = [event for event in events if event.get("rank", 0) == 0]
    start = next(event for event in mine if event["event"] == "start")
    return CollectiveTable(
        device,
        ranks,
        rows=tuple(
            _row(event, "bytes", "calls", "windows_s", "seconds", "algorithm_gbs", "bus_gbs")
            for event in mine
            if event["event"] == "all_reduce"
        ),
        pairs=tuple(_row(event, "from", "to", "bytes", "seconds", "gbs") for event in mine if event["event"] == "pair"),
        versions=readable(start["versions"]),
        libraries=tuple(start["libraries"]),
        transports=tuple(sorted(transports(folder))),
    )


def _row(event: dict, *names: str) -> dict:
    return {name: event[name] for name in names}


def _reason(outcome: Outcome) -> str:
    failure = outcome.failure.text() if outcome.failure else ""
    return "\n".join((failure, *outcome.log_tail.splitlines()[-5:]))


def link_gbs(cluster: Hardware) -> float:
    """Bandwidth of a ring through all GPUs of a cluster, GB/s.

    Within a node this is NVLink as NCCL counts it (repro/data/hardware/gpus.toml), between nodes the full port rate.
    """
    return path(cluster, 0, 1, cluster.gpus, 1.0).gbs
