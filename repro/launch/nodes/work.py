"""An attempt as the nodes of a cluster get it: where its ranks go, and each node's order and command."""

from __future__ import annotations

import hashlib
import posixpath
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from repro.cluster.cluster import Cluster
from repro.images.stack import TF32
from repro.launch.agent.ranks import LAUNCHER_LOG
from repro.launch.check_programs import CheckConfig, ProgramConfig
from repro.launch.gpu_sampler import sample_command
from repro.launch.nodes.code_upload import UploadedCode
from repro.launch.nodes.collector import LOG_CAP, safe
from repro.launch.nodes.commands import (
    OWN,
    NodeFacts,
    Share,
    caches,
    launcher_words,
    network_environment,
    node_argv,
    standins,
)
from repro.launch.nodes.libraries import forwarder_orders, library_environment
from repro.launch.nodes.tracing import Tracing
from repro.launch.placement import Placement, place
from repro.runs.unit import Unit

LEASE_S = 15.0
"""After how many seconds without a byte an agent and the controller give each other up, times the cluster's patience."""


@dataclass(frozen=True)
class NodeWork:
    """One attempt as the nodes get it: the unit, where its ranks go, and the names it has there.

    With `tracing`, the kernels of rank 0 are traced. With `tf32`, the libraries may compute in TF32.
    """

    cluster: Cluster
    placement: Placement
    config: ProgramConfig
    port: int
    run: str
    unit: str
    attempt: str
    trainers: str
    script: str
    baseline: bool = False
    tracing: Tracing | None = None
    tf32: bool = False

    def on(self, nodes: Sequence[str]) -> NodeWork:
        """The same on these nodes of the cluster, which hold as many ranks each."""
        by_name = {node.name: node for node in self.cluster.nodes}
        placement = replace(self.placement, nodes=tuple(by_name[name] for name in nodes))
        return replace(self, placement=placement)

    @property
    def key(self) -> str:
        """Distinguishes the attempt in names on nodes, where not every character is allowed."""
        return hashlib.sha256("\0".join((self.run, self.unit, self.attempt)).encode()).hexdigest()[:10]

    @property
    def name(self) -> str:
        """What the names of the attempt's containers begin with."""
        return f"reproduction-{self.key}"

    @property
    def title(self) -> str:
        """What others are told of it who want one of its nodes."""
        return f"{self.unit}, {self.attempt}"

    @property
    def lease_s(self) -> float:
        """For how many seconds its nodes go on without a controller."""
        return LEASE_S * self.cluster.patience

    def folder(self, index: int) -> str:
        """The attempt's folder on the node at a position: one of its own, for nodes may share a file system."""
        return f"{self.cluster.work}/runs/{safe(self.run)}/{safe(self.unit)[:80]}-{self.key}-{index}"

    @property
    def code_folder(self) -> str:
        """The folder of the code on each node."""
        return posixpath.dirname(posixpath.dirname(self.trainers))

    def order(self, index: int, hosts: list[NodeFacts]) -> dict:
        """What the agent on the node at a position has to do; `hosts` in the order of the placement."""
        tracing = self.tracing if index == 0 else None
        share, device, folder = self._share(index, hosts), self.config.device, self.folder(index)
        name = f"{self.name}-{index}"
        environment = network_environment(self.cluster, device, share.nodes, self.placement.world_size)
        environment |= {} if self.baseline else library_environment(self.cluster, device)
        if not self.baseline and device == "cuda":
            environment |= TF32 if self.tf32 else dict.fromkeys(TF32, "0")
        libraries = forwarder_orders(self.cluster, self.code_folder) if device == "cuda" and not self.baseline else {}
        if tracing:
            environment |= tracing.environment(self.cluster, folder)
            libraries |= tracing.libraries(self.cluster, self.code_folder)
            share = replace(share, binds=tracing.binds(self.cluster, folder))
        output = [LAUNCHER_LOG, LAUNCHER_LOG]
        if share.exclusive:
            environment["GLOG_log_dir"] = f"{folder}/logs/local_rank_0"
            output = ["logs/local_rank_0/stdout", "logs/local_rank_0/stderr"]
        labels = {OWN: self.run, "reproduction.unit": self.unit, "reproduction.attempt": self.attempt}
        return {
            "do": "run",
            "work": self.cluster.work,
            "folder": folder,
            "config": self.config.written(folder, standins(self.cluster)).as_json(),
            "output": output,
            "logs": [f"local_rank_{rank}" for rank in range(share.ranks)],
            "first": self.placement.ranks(index)[0],
            "ranks": 0 if share.exclusive else share.ranks,
            "port": self.port if index == 0 and not share.exclusive else 0,
            "meeting": self._meeting(index, hosts) if share.nodes > 1 else {},
            "argv": node_argv(
                self.cluster,
                hosts[index],
                share=share,
                device=device,
                environment=environment,
                name=name,
                labels=labels,
            ),
            "caches": list(caches(self.cluster)),
            "libraries": libraries,
            "cupti": tracing.cupti_order(folder) if tracing else {},
            "container": name if self.cluster.runtime.engine else "",
            "inside": launcher_words(self.cluster, share) if self.cluster.runtime.wrapped else [],
            "sample": sample_command() if device == "cuda" else [],
            "log_cap": LOG_CAP,
        }

    def _meeting(self, index: int, hosts: list[NodeFacts]) -> dict:
        """What `repro.launch.agent.meeting.meet` does on the node at a position."""
        own = {"address": hosts[0].address, "port": self.port, "key": self.key}
        return {**own, "index": index, "others": len(self.placement.nodes) - 1}

    def _share(self, index: int, hosts: list[NodeFacts]) -> Share:
        return Share(
            rank=index,
            nodes=len(self.placement.nodes),
            ranks=self.placement.per_node,
            master=hosts[0].address,
            port=self.port,
            folder=self.folder(index),
            trainers=self.trainers,
            script=self.script,
            baseline=self.baseline,
        )


def work_of(
    cluster: Cluster, code: UploadedCode, unit: Unit, spread: bool, port: int, run: str, attempt: str
) -> NodeWork:
    """An attempt as its nodes get it; ValueError if the cluster cannot hold it."""
    baseline = bool(unit.baseline_of)
    folder = f"{code.folder(cluster.work)}/repro/{'baselines' if baseline else 'trainers'}"
    script = code.baseline_script if baseline else code.script
    return NodeWork(
        cluster=cluster,
        placement=_placed(cluster, unit.name, unit.world_size, spread),
        config=unit.config,
        port=port,
        run=run,
        unit=unit.name,
        attempt=attempt,
        trainers=folder,
        script=script,
        baseline=baseline,
        tf32=unit.tf32,
    )


def check_work(
    cluster: Cluster, code: UploadedCode, program: Path, name: str, config: CheckConfig, port: int, folder: Path
) -> NodeWork:
    """An attempt of a check's program as its nodes get it, on as many of them as possible; `name` is what others see.

    ValueError if the cluster cannot hold it.
    """
    return NodeWork(
        cluster=cluster,
        placement=_placed(cluster, name, config.ranks, spread=True),
        config=config,
        port=port,
        run=folder.parent.name,
        unit=name,
        attempt=folder.name,
        trainers=f"{code.folder(cluster.work)}/repro/trainers",
        script=program.name,
        tf32=config.tf32,
    )


def dry_lines(cluster: Cluster, code: UploadedCode, units: Iterable[Unit], spread: bool, port: int) -> Iterator[str]:
    """Every command of every node, as `make bench DRY_RUN=1` prints it; nothing is asked of any node.

    What only a node knows is in angle brackets: its address on the cluster's interface, and the user's numbers.
    """
    for unit in units:
        work = work_of(cluster, code, unit=unit, spread=spread, port=port, run="<run>", attempt="repeat-1.attempt-1")
        hosts = dry_hosts(work)
        yield f"# {unit.name}: {unit.world_size} ranks, {work.placement.per_node} per node"
        for index, node in enumerate(work.placement.nodes):
            yield f"# on {node.name} ({node.user}@{node.address} port {node.port}):"
            yield shlex.join(work.order(index, hosts)["argv"])


def dry_hosts(work: NodeWork) -> list[NodeFacts]:
    """The nodes of an attempt as commands have them that are shown and not run."""
    cluster = work.cluster
    return [
        NodeFacts(
            f"<address of {cluster.interface} on {node.name}>",
            "<uid>:<gid>",
            f"{cluster.work}/venv/lib/<python>/site-packages/oneflow/distributed/launch.py",
        )
        for node in work.placement.nodes
    ]


def _placed(cluster: Cluster, name: str, ranks: int, spread: bool) -> Placement:
    placement = place(cluster, ranks, spread)
    if placement is None:
        raise ValueError(f"{name}: {ranks} ranks do not fit on {cluster.name}")
    return placement
