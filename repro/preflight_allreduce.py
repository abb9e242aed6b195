"""The check of collectives: what OneFlow's all-reduce reaches inside and between nodes, and what the links can do."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from repro.allreduce import LIMITS, PROGRAM, MeasurementError, Table, link_gbs, local_attempt_of, measure
from repro.hardware import Cluster, HardwareError, Node, from_devices
from repro.launch import Limits
from repro.preflight import Check, Finding, Machine, Stop, failed, ok, unavailable, warning
from repro.preflight_gpu import links, query

CPU_RANKS = 2
SHARE_GOOD, SHARE_LEAST = 0.8, 0.5
FILE = "allreduce.json"


@dataclass(frozen=True)
class Collectives:
    """Measures with an environment for this machine's GPUs, or over a cluster, into a folder."""

    folder: Path
    environment: dict
    cluster: object = None

    def checks(self) -> tuple[Check, ...]:
        inside = Check("allreduce", "all-reduce inside a node", self.look_inside)
        between = Check("allreduce-nodes", "all-reduce over all nodes", self.look_between, together=True)
        return inside, between

    def look_inside(self, machine: Machine) -> Finding:
        ranks, device, hardware = self._inside(machine)
        if ranks < 2:
            return unavailable("one rank has nothing to exchange")
        name = re.sub(r"\W+", "-", machine.name)
        if self.cluster is None:
            return self._judge(local_attempt_of(self.environment), ranks, device, name, hardware)
        node = next(node for node in self.cluster.nodes if node.name == machine.name)
        return self._over(replace(self.cluster, nodes=(node,)), ranks, device, name, hardware)

    def look_between(self, machines: Sequence[Machine]) -> Finding:
        if len(machines) < 2:
            return unavailable("a single machine has no peers")
        per_node, device, hardware = self._inside(machines[0])
        if hardware:
            node = replace(hardware.node, port_gbs=self.cluster.network_gbits / 8)
            hardware = replace(hardware, node=node, nodes=len(machines))
        return self._over(self.cluster, per_node * len(machines), device, "all-nodes", hardware)

    def _inside(self, machine: Machine) -> tuple[int, str, Cluster | None]:
        """Ranks and device of a machine, and its hardware if that is known."""
        try:
            names = [row["name"] for row in query(machine, "index", "name")]
        except Stop:
            return machine.wanted.gpus or CPU_RANKS, "cpu", None
        return len(names), "cuda", hardware_of(names, links(machine) if len(names) > 1 else None)

    def _over(self, cluster, ranks: int, device: str, name: str, hardware: Cluster | None) -> Finding:
        from repro.cluster import ClusterError

        try:
            with attempts(cluster, PROGRAM, "allreduce", LIMITS) as attempt_of:
                return self._judge(attempt_of, ranks, device, name, hardware)
        except ClusterError as error:
            said = "; ".join(str(error).splitlines()[1:]) or str(error)
            return failed(said, "It keeps `make bench` from starting as well.", "do what the message says")

    def _judge(self, attempt_of, ranks: int, device: str, name: str, hardware: Cluster | None) -> Finding:
        try:
            table = measure(attempt_of, ranks, device, self.folder / f"allreduce-{name}")
        except (MeasurementError, OSError) as error:
            return failed(
                str(error),
                "Ranks cannot exchange gradients: no run with several ranks works.",
                f"read the logs in {self.folder}; the checks port, names and gpu-peers say more",
            )
        limit = link_gbs(hardware) if hardware else None
        content = {**table.as_json(), "link_gbs": limit}
        (self.folder / f"allreduce-{name}" / FILE).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        return judge(table, limit)


def judge(table: Table, limit: float | None) -> Finding:
    """A table's finding; `limit` is what the links can do in GB/s, None if that is not known."""
    way = f" over {', '.join(table.transports)}" if table.transports else ""
    kind = "GPUs" if table.device == "cuda" else "CPU ranks"
    found = f"{table.ranks} {kind}: {table.bus_gbs:.1f} GB/s{way}, {table.latency_us:.0f} us for the smallest"
    if limit is None:
        return ok(f"{found}; no figure of the links to compare with")
    share = table.bus_gbs / limit
    found = f"{found}; {share:.0%} of the {limit:.1f} GB/s that the links can do"
    means = "Gradients take longer to exchange than they should; scaling suffers."
    fix = "see gpu-peers, link and bandwidth; NCCL's lines in the logs name the way it took"
    if share < SHARE_LEAST:
        return failed(found, means, fix)
    return warning(found, means, fix) if share < SHARE_GOOD else ok(found)


def hardware_of(names: list[str], nvlinks: tuple[tuple[int, ...], ...] | None) -> Cluster | None:
    """The description of one node with these GPUs and NVLinks; None if the GPU is not described.

    Where each GPU has all its links to every other one there is a switch between them.
    """
    try:
        cluster = from_devices(names[0], len(names))
    except HardwareError:
        return None
    count = len(names)
    nvlinks = nvlinks or tuple((0,) * count for _ in range(count))
    switched = all(nvlinks[i][j] == cluster.gpu.links for i in range(count) for j in range(count) if i != j)
    gpu = cluster.gpu
    return replace(cluster, node=Node(gpu, count, None if switched else nvlinks, 1, cluster.node.port_gbs))


@contextmanager
def attempts(cluster, program: Path, name: str, limits: Limits):
    """The maker of attempts of a program over a cluster's nodes, which are held for as long as the context lasts."""
    from repro.cluster_launch import ClusterAttempt
    from repro.cluster_work import work_of
    from repro.delivery import Code
    from repro.fleet import Fleet
    from repro.plan import Unit

    code = Code(program)
    with Fleet(cluster, code, "make preflight") as fleet:

        def attempt_of(config: dict, folder: Path) -> ClusterAttempt:
            unit = Unit(name, "", config, {}, 1)
            work = work_of(cluster, code, unit, True, fleet.port, folder.parent.name, folder.name)
            return ClusterAttempt(work, folder, fleet, limits)

        yield attempt_of
