"""Starts one attempt of a case on the nodes of a cluster and watches it until nothing of it is left there."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from repro.cluster.ssh import RemoteError
from repro.launch.gpu_sampler import events_of
from repro.launch.local import Limits, Outcome, Silence
from repro.launch.ssh.agent_client import LEASE_S, AgentClient
from repro.launch.ssh.collector import LogCollector
from repro.launch.ssh.failure_causes import (
    DOCKER_REFUSED,
    FULL_MIB,
    MEMORY,
    FailureCollector,
    node_ended,
    node_full,
    node_gone,
    node_says,
    node_silent,
    rank_ended,
)
from repro.launch.ssh.nodes import NodePool
from repro.launch.ssh.work import Work, work_of
from repro.planning.plan import Unit
from repro.runs.failures import Failure, explain_logs, last_lines
from repro.runs.record import write_json
from repro.utils.signals import let_through

POLL_S = 0.1
STOP_S = 12.0
LOST: dict = {}


class ClusterAttempt:
    """One start of a trainer on nodes; its configuration, commands, logs and metrics come to `folder`."""

    def __init__(self, work: Work, folder: Path, pool: NodePool, limits: Limits):
        self._work, self._folder, self._pool, self._limits = work, folder, pool, limits
        self._inbox: queue.SimpleQueue[tuple[int, dict]] = queue.SimpleQueue()
        self._clients: dict[int, AgentClient] = {}
        self._ended: dict[int, dict] = {}
        self._failed: set[int] = set()
        self._failures = FailureCollector()

    def run(self, on_event: Callable[[dict], None] = lambda event: None) -> Outcome:
        """Start the ranks, hand the events of all of them to `on_event`, and wait for the end.

        Each event of a rank has its `rank` and `node`; samples of GPUs and states stand among them. One thread calls
        `on_event`. Whatever happens, also an interrupt, what was started on nodes that can be reached is ended when
        this returns; a node that cannot be reached ends it by itself within the time of its lease.
        """
        self._collector = LogCollector(self._folder, self._work.placement)
        write_json(self._folder / "config.json", {**self._work.config, "output": str(self._folder)})
        started = time.monotonic()
        with let_through():
            failure = self._recover(on_event)
        try:
            if failure is None:
                self._start()
                with let_through():
                    failure = self._watch(on_event, started)
        finally:
            self._stop()
        for event in self._drain():
            on_event(event)
        if failure is None:
            failure = self._unfinished()
        tail = self._log_tail(failure) if failure else ""
        if failure:
            failure = self._explained(failure)
        return Outcome(failure, time.monotonic() - started, tail)

    def _recover(self, on_event) -> Failure | None:
        """Bring back nodes that an earlier attempt lost; why one that is needed cannot take part."""
        needed = self._work.placement.nodes
        lost = self._pool.lost(needed)
        if lost:
            on_event({"event": "state", "text": f"connecting again to {', '.join(node.name for node in lost)}"})
        for node, error in self._pool.recover(needed).items():
            return node_says(node, str(error).removeprefix(f"{node}: "))
        return None

    def _start(self) -> None:
        members = [self._pool.members[node.name] for node in self._work.placement.nodes]
        hosts = [member.host for member in members]
        orders = [self._work.order(index, hosts) for index in range(len(members))]
        commands = {member.node.name: order["words"] for member, order in zip(members, orders, strict=True)}
        write_json(self._folder / "command.json", commands)
        for index, (member, order) in enumerate(zip(members, orders, strict=True)):
            try:
                self._clients[index] = member.start(order, lambda message, at=index: self._inbox.put((at, message)))
            except RemoteError as error:
                self._inbox.put((index, {"gone": str(error)}))

    def _watch(self, on_event, started: float) -> Failure | None:
        """Until all nodes have ended well: pass events on, and name the cause if something goes wrong."""
        silence = Silence(started)
        while len(self._ended) < len(self._work.placement.nodes) or self._failures:
            for event in self._drain(POLL_S):
                on_event(event)
            quiet = {index: client.silent() for index, client in self._clients.items() if index not in self._ended}
            for index, seconds in quiet.items():
                if seconds > LEASE_S:
                    self._lose(index, node_silent(self._name(index), seconds))
            failure = self._failures.cause(list(quiet.values()))
            if not failure and not self._failures:
                failure = silence.check(self._collector.bytes, self._limits) or self._too_long(started)
            if failure:
                return failure
        return None

    def _too_long(self, started: float) -> Failure | None:
        if time.monotonic() - started <= self._limits.total_s:
            return None
        return Failure("no end after {seconds:.0f} s, the limit for one run", {"seconds": self._limits.total_s})

    def _drain(self, patience: float = 0.0) -> Iterator[dict]:
        """Take what nodes have sent, waiting a little for the first of it; gives the events in it."""
        try:
            index, message = self._inbox.get(timeout=patience) if patience else self._inbox.get_nowait()
            while True:
                yield from self._take(index, message)
                index, message = self._inbox.get_nowait()
        except queue.Empty:
            yield from self._collector.events()

    def _take(self, index: int, message: dict) -> Iterator[dict]:
        node = self._name(index)
        if message.get("free_mib", FULL_MIB) < FULL_MIB:
            self._failures.add(node_full(node, message["free_mib"]))
        if "file" in message:
            self._collector.write(index, message["file"], message["at"], message["data"])
        elif "sample" in message:
            yield from ({**event, "node": node} for event in events_of(message["sample"]))
        elif "rank" in message or "end" in message:
            yield from self._collector.events()
            if "rank" in message:
                self._rank_ended(message["rank"], message["status"])
            else:
                self._node_ended(index, message)
        elif "error" in message:
            self._ended[index] = message
            self._failures.add(node_says(node, message["error"]))
        elif message.get("gone"):
            self._lose(index, node_gone(node, message["gone"]))

    def _rank_ended(self, rank: int, status: int) -> None:
        if not self._collector.finished(rank):
            self._failed.add(rank)
            self._failures.add(*rank_ended(rank, self._work.placement.node_of(rank).name, status))

    def _node_ended(self, index: int, message: dict) -> None:
        """Everything on a node has ended: name a rank that left its work, or what else is known of the end."""
        self._ended[index] = message
        status, ranks = message["end"], self._work.placement.ranks(index)
        if status is None or self._failed.intersection(ranks):
            return
        containers = self._work.cluster.containers
        if self._work.placement.world_size == 1 and not (containers and status in DOCKER_REFUSED):
            if status or not self._collector.finished(0):
                self._rank_ended(0, 128 - status if containers and status > 128 else status)
        elif status:
            logs = self._collector.launcher_log(index), self._collector.rank_folder(ranks[0]) / "stderr"
            said = next((lines[-1] for lines in map(last_lines, logs) if lines), "")
            self._failures.add(node_ended(self._name(index), status, containers, said))
        for rank in self._collector.unfinished():
            if rank in ranks and not status:
                self._rank_ended(rank, 0)

    def _lose(self, index: int, failure: Failure) -> None:
        """Nothing more comes from a node; what it sent stays."""
        if index not in self._ended:
            self._ended[index] = LOST
            self._failures.add(failure)

    def _stop(self) -> None:
        """End what still runs on nodes, and let go of those that do not answer: they end it by their lease."""
        for client in self._clients.values():
            if not client.gone.is_set():
                client.stop()
        deadline = time.monotonic() + STOP_S
        for index, client in self._clients.items():
            patience = 0.0 if self._ended.get(index) is LOST else deadline - time.monotonic()
            if not client.gone.wait(max(0.0, patience)):
                client.close()
                if self._name(index) in self._pool.members:
                    self._pool.drop(self._name(index))

    def _unfinished(self) -> Failure | None:
        for rank in self._collector.unfinished():
            return rank_ended(rank, self._work.placement.node_of(rank).name, 0)[0]
        return None

    def _name(self, index: int) -> str:
        return self._work.placement.nodes[index].name

    def _explained(self, failure: Failure) -> Failure:
        """With what the logs, the kernels and the disks of the nodes tell of the cause."""
        logs, device = self._collector.log_files(), self._work.config["device"]
        told = failure if failure.hint else explain_logs(failure, logs, device)
        if told.hint is None and any(message.get("memory_kills") for message in self._ended.values()):
            return Failure(told.message, told.values, MEMORY)
        return told

    def _log_tail(self, failure: Failure) -> str:
        """The last lines of the rank that failed, or else of the first rank on the node that the failure names."""
        nodes = [node.name for node in self._work.placement.nodes]
        index = nodes.index(failure.values["node"]) if failure.values.get("node") in nodes else 0
        rank = failure.values.get("rank", self._work.placement.ranks(index)[0])
        logs = [self._collector.rank_folder(rank) / name for name in ("stderr", "stdout")]
        return "\n".join(next(filter(None, map(last_lines, [*logs, self._collector.launcher_log(index)])), []))


def cluster_attempts(pool: NodePool, run: str, limits: Limits, spread: bool) -> Callable[[Unit, Path], ClusterAttempt]:
    """What `Bench` needs to start a run's attempts on a cluster; `spread` uses as many nodes as can be."""

    def attempt_of(unit: Unit, folder: Path) -> ClusterAttempt:
        work = work_of(pool.cluster, pool.code, unit, spread, pool.port, run, folder.name)
        return ClusterAttempt(work, folder, pool, limits)

    return attempt_of
