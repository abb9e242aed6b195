"""How an attempt gets to its nodes over SSH: an agent on each of them, on connections that a pool holds."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from repro.cluster.cluster import Node
from repro.cluster.ssh import RemoteError, each_of
from repro.launch.attempt import Interrupts, Limits, OnEvent
from repro.launch.check_programs import CheckConfig, ProgramOf
from repro.launch.nodes.attempt import NodesAttempt, NotStarted
from repro.launch.nodes.failure_causes import node_says
from repro.launch.nodes.follower import AttemptFollower
from repro.launch.nodes.tracing import Tracing
from repro.launch.nodes.work import NodeWork, check_work, work_of
from repro.launch.ssh.agent_client import AgentClient
from repro.launch.ssh.nodes import NodePool
from repro.runs.record import write_json
from repro.runs.unit import Unit

STOP_S = 12.0


class SshTransport:
    """The agents of one attempt; see `repro.launch.nodes.attempt.NodeTransport`."""

    ends_ranks_by: frozenset[int] = frozenset()
    log = ""

    def __init__(self, work: NodeWork, pool: NodePool):
        self._work, self._pool = work, pool
        self._clients: dict[int, AgentClient] = {}

    def on(self, nodes: Sequence[str]) -> SshTransport:
        """The same on these nodes, by their names in the inventory."""
        return SshTransport(self._work.on(nodes), self._pool)

    def traced(self, tracing: Tracing) -> SshTransport:
        """The same with a trace of rank 0's kernels."""
        return SshTransport(replace(self._work, tracing=tracing), self._pool)

    def prepare(self, on_event: OnEvent, interrupts: Interrupts) -> NodeWork:
        """Connect again to nodes that an earlier attempt lost."""
        needed = self._work.placement.nodes
        lost = self._pool.lost(needed)
        if lost:
            on_event({"event": "state", "text": f"connecting again to {', '.join(node.name for node in lost)}"})
        for node, error in self._pool.recover(needed).items():
            raise NotStarted(node_says(node, str(error).removeprefix(f"{node}: ")))
        interrupts.check()
        return self._work

    def start(self, follower: AttemptFollower) -> None:
        """Give each node's agent its order."""
        members = [self._pool.members[node.name] for node in self._work.placement.nodes]
        hosts = [member.host for member in members]
        orders = [self._work.order(index, hosts) for index in range(len(members))]
        commands = {member.node.name: order["argv"] for member, order in zip(members, orders, strict=True)}
        write_json(follower.folder / "command.json", commands)

        def begin(index: int) -> None:
            members[index].when_lost(partial(_lock_lost, follower, index))
            try:
                self._clients[index] = members[index].start(orders[index], partial(follower.put, index))
            except RemoteError as error:
                follower.put(index, {"gone": str(error)})

        for error in filter(None, each_of(begin, range(len(members)))):
            raise error

    def silences(self) -> dict[int, float]:
        return {index: client.silent() for index, client in self._clients.items()}

    def answers(self, index: int) -> bool:
        """By the agent that holds the node's lock, which is another one."""
        member = self._pool.members.get(self._clients[index].node)
        return member is not None and member.answers

    def stop(self, follower: AttemptFollower) -> None:
        """Stop the agents, and drop nodes that do not answer: their agents end by their lease."""
        for client in self._clients.values():
            if not client.gone.is_set():
                client.stop()
        deadline = time.monotonic() + STOP_S * self._pool.cluster.patience
        for index, client in self._clients.items():
            patience = 0.0 if follower.is_lost(index) else deadline - time.monotonic()
            if not client.gone.wait(max(0.0, patience)):
                if client.identity and self.answers(index):
                    self._pool.members[client.node].end(client.identity)
                client.close()
                if client.node in self._pool.members:
                    self._pool.drop(client.node)


def _lock_lost(follower: AttemptFollower, index: int, reason: str) -> None:
    follower.put(index, {"lost": reason})


@dataclass
class SshAttempt(NodesAttempt):
    """An attempt on nodes that this controller chooses, the first of the cluster unless it is told others."""

    transport: SshTransport

    def on(self, names: Sequence[str]) -> SshAttempt:
        """The same on these nodes, by their names in the inventory."""
        return replace(self, transport=self.transport.on(names))

    def traced(self, tracing: Tracing) -> SshAttempt:
        """The same with a trace of rank 0's kernels in its folder."""
        return replace(self, transport=self.transport.traced(tracing))


def ssh_attempts(pool: NodePool, run: str, limits: Limits, spread: bool) -> Callable[[Unit, Path], SshAttempt]:
    """What makes a run's attempts on the nodes of a pool; `spread` uses as many of them as possible."""

    def attempt_of(unit: Unit, folder: Path) -> SshAttempt:
        work = work_of(pool.cluster, pool.code, unit=unit, spread=spread, port=pool.port, run=run, attempt=folder.name)
        return SshAttempt(SshTransport(work, pool), folder, limits)

    return attempt_of


def programs_on(pool: NodePool, node: Node, program: Path, limits: Limits) -> ProgramOf:
    """The maker of attempts of one process of a check's program on a node that a pool holds; the code there must have it.

    Nodes may share the folder of runs, so the node's name is part of each attempt's own.
    """
    exclusive = replace(pool.cluster, nodes=(node,))

    def attempt_of(config: CheckConfig, folder: Path) -> NodesAttempt:
        work = check_work(exclusive, pool.code, program, f"{program.stem} on {node.name}", config, pool.port, folder)
        return NodesAttempt(SshTransport(work, pool), folder, limits)

    return attempt_of
