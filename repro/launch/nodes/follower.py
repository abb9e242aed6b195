"""Follows an attempt on nodes by their messages: passes events on, and names the cause when something goes wrong."""

from __future__ import annotations

import contextlib
import queue
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from repro.analysis.measurement import LOG
from repro.launch.agent.ranks import RANK_METRICS
from repro.launch.attempt import Event, Interrupts, Limits, LossWatch, OnEvent, PauseDetector, StallDetector
from repro.launch.attempt_folder import rank_ended
from repro.launch.gpu_sampler import events_of
from repro.launch.nodes.collector import LogCollector
from repro.launch.nodes.failure_causes import FailureCollector, follows_another, node_ended, node_says
from repro.launch.nodes.holder import held_text, others_text
from repro.launch.nodes.work import LEASE_S, NodeWork
from repro.runs.attempts import CutLog
from repro.runs.failures import Failure, explain_logs, last_lines
from repro.utils.i18n import N_
from repro.utils.signals import as_of_a_process

POLL_S = 0.1
TAKE_S = 0.5
WAKE_S = 3.0
"""After a pause, how long it takes to read what nodes sent meanwhile."""
AFTERMATH_S = 10.0
"""After a pause, how long it takes beyond a lease to find out which nodes have given this controller up."""
MARGIN_S = 3.0
"""How much sooner than this controller a node may count its lease from: beats come every 2 s."""
LOST: dict = {}
FULL_MIB = 20
FULL = N_("the disk is full: free some space, then resume the run")
MEMORY = N_("the kernel of this node ran out of memory and killed processes")
AGENT_SILENT = N_(
    "nothing was heard from the agent on {node} for {seconds:.0f} s, while the node itself answers: it was stopped"
)
NODE_SILENT = N_("nothing was heard from {node} for {seconds:.0f} s: it is down, cut off, or stopped")
CONTROLLER_SLEPT = N_(
    "this controller did not run for {seconds:.0f} s (suspended, stopped, or short of processors), and nodes end "
    "an attempt after {lease:.0f} s without it"
)
CUT = N_("{path}, from which figures are read, was cut: {kept} of {printed} bytes are kept; print less")
ENGINE_RESTARTED = N_("Docker on {node} was killed, stopped or restarted, which ended the container")
INCOMPLETE = N_("the job has ended, but not all that {node} wrote has arrived here")


@dataclass(frozen=True)
class End:
    """The transport itself has ended: no node sends anything more. `secondary` as `FailureCollector.add` has it."""

    failure: Failure | None
    secondary: bool = False


class AttemptFollower:
    """What is known of the nodes and ranks of one attempt.

    Parameters
    ----------
    ends_ranks_by : signals by which the transport ends ranks itself.
    """

    def __init__(self, work: NodeWork, folder: Path, limits: Limits, ends_ranks_by: frozenset[int] = frozenset()):
        self.folder = folder
        self._work, self._limits, self._ends_ranks_by = work, limits, ends_ranks_by
        self._collector = LogCollector(folder, work.placement, traces=work.tracing is not None)
        self._inbox: queue.SimpleQueue[tuple[int, dict | End]] = queue.SimpleQueue()
        self._ended: dict[int, dict] = {}
        self._failed: set[int] = set()
        self._launchers: set[int] = set()
        self._pauses = PauseDetector()
        self._failures = FailureCollector()
        self._end: End | None = None

    def put(self, index: int, message: dict) -> None:
        """Take a message of the node at a position; from any thread."""
        self._inbox.put((index, message))

    def end(self, failure: Failure | None, secondary: bool = False) -> None:
        """Take that nothing more comes from any node, and why; from any thread, after their messages."""
        self._inbox.put((0, End(failure, secondary)))

    @property
    def succeeded(self) -> bool:
        """Whether all nodes have ended, and nothing went wrong."""
        return len(self._ended) == len(self._work.placement.nodes) and not self._failures

    def is_lost(self, index: int) -> bool:
        """Whether the connection to the node at a position was given up."""
        return self._ended.get(index) is LOST

    def follow(
        self,
        on_event: OnEvent,
        silences: Callable[[], Mapping[int, float] | None],
        interrupts: Interrupts,
        answers: Callable[[int], bool] = lambda index: False,
    ) -> Failure | None:
        """Pass events on until all nodes have ended well; the cause if something goes wrong.

        `silences` and `answers` as `repro.launch.nodes.attempt.NodeTransport` has them. While nothing can be read, ranks that
        seem to print nothing do not count as hanging.
        """
        stall, loss, self._pauses = StallDetector(self._limits), LossWatch(on_event), PauseDetector()
        while len(self._ended) < len(self._work.placement.nodes) or self._failures:
            interrupts.check()
            woken = self._pauses.look()
            for event in self.events(POLL_S):
                loss(event)
            heard = silences()
            if heard is None:
                stall.pause()
            silent = {index: seconds for index, seconds in (heard or {}).items() if index not in self._ended}
            for index, seconds in silent.items():
                if seconds > LEASE_S * self._work.cluster.patience and woken > WAKE_S:
                    message = AGENT_SILENT if answers(index) else NODE_SILENT
                    self._lose(index, Failure(message, {"node": self._name(index), "seconds": seconds}))
            failure = self._failures.cause(list(silent.values()))
            if not failure and not self._failures:
                failure = loss.failure or stall.check(self._collector.bytes)
            if failure:
                return failure
        return None

    def events(self, patience: float = 0.0) -> Iterator[Event]:
        """Take what nodes have sent, waiting up to `patience` seconds for the first of it; gives the events in it.

        With `patience` it comes to an end while nodes go on sending, without it when there is nothing more.
        """
        until = time.monotonic() + TAKE_S if patience else float("inf")
        with contextlib.suppress(queue.Empty):
            index, message = self._inbox.get(timeout=patience) if patience else self._inbox.get_nowait()
            while True:
                yield from self._take(index, message)
                if time.monotonic() > until:
                    break
                index, message = self._inbox.get_nowait()
        yield from self._collector.events()

    def cut(self) -> list[CutLog]:
        """The logs that were cut."""
        return self._collector.cut()

    def cut_evidence(self) -> Failure | None:
        """The failure of an attempt whose figures would be read from a file that was cut."""
        for log in self.cut():
            if log.path == LOG or RANK_METRICS.fullmatch(log.path):
                return Failure(CUT, log.as_json())
        return None

    def damage(self) -> Failure | None:
        """The failure of an attempt whose ranks left lines in their metrics that are no events."""
        return self._collector.damage()

    def unfinished(self) -> Failure | None:
        """The failure of the first rank that has not come to its end."""
        for rank in self._collector.unfinished():
            return rank_ended(rank, 0, self._work.placement.node_of(rank).name)
        return None

    def explained(self, failure: Failure) -> Failure:
        """The failure with the cause that the logs, kernels and disks of the nodes show."""
        if failure.hint or (self._end and failure is self._end.failure):
            return failure
        explained = explain_logs(failure, self._collector.log_files(), self._work.config.device)
        if explained.hint is None and any(message.get("memory_kills") for message in self._ended.values()):
            return Failure(explained.message, explained.values, MEMORY)
        return explained

    def log_tail(self, failure: Failure) -> str:
        """The last lines of the rank that failed, or else of the first rank on the node that the failure names."""
        nodes = [node.name for node in self._work.placement.nodes]
        index = nodes.index(failure.values["node"]) if failure.values.get("node") in nodes else 0
        rank = failure.values.get("rank", self._work.placement.ranks(index)[0])
        return self._collector.log_tail(rank, self._collector.launcher_logs[index])

    def _take(self, index: int, message: dict | End) -> Iterator[Event]:
        if isinstance(message, End):
            self._take_end(message)
            return
        node = self._name(index)
        if message.get("free_mib", FULL_MIB) < FULL_MIB:
            values = {"node": node, "free": message["free_mib"]}
            self._failures.add(Failure(N_("the disk of {node} has only {free} MiB left"), values, FULL))
        if "deleted" in message:
            values = {"node": node, "folder": message["deleted"]}
            self._failures.add(Failure(N_("{folder} on {node} was deleted or moved while ranks wrote to it"), values))
        if "file" in message:
            self._collector.write(index, message["file"], message["at"], message["data"])
        elif "adapters" in message:
            self._collector.write_adapters(index, message["adapters"])
        elif "sample" in message:
            yield from ({**event, "node": node} for event in events_of(message["sample"]))
        elif "rank" in message or "end" in message:
            yield from self._collector.events()
            if "rank" in message:
                self._rank_ended(message["rank"], message["status"])
            else:
                self._node_ended(index, message)
        elif "lost" in message:  # with the connection, it is that which says more
            values = {"node": node, "said": message["lost"]}
            self._failures.add(Failure(N_("{node} is no longer locked for this run: {said}"), values), secondary=True)
        elif "held" in message:
            self._failures.add(node_says(node, held_text(self._work.cluster, message["held"])))
        elif "others" in message:
            self._failures.add(node_says(node, others_text(self._work.cluster, message["others"])))
        elif "error" in message:
            self._ended[index] = message
            self._failures.add(node_says(node, message["error"]))
        elif "launcher" in message:
            yield from self._collector.events()
            self._launcher_ended(index, message["launcher"])
        elif "engine" in message:
            self._failures.add(Failure(ENGINE_RESTARTED, {"node": node}), explains=True)
        elif message.get("gone"):
            ended = N_("the agent on {node} ended, and its ranks with it: {said}")
            lost = N_("{node} was lost: {said}")
            values = {"node": node, "said": message["gone"]}
            self._lose(index, Failure(ended if message.get("connected") else lost, values))

    def _take_end(self, end: End) -> None:
        missing = [index for index in range(len(self._work.placement.nodes)) if index not in self._ended]
        if missing and end.failure:
            self._end = end
            self._failures.add(self._blamed(end.failure), end.secondary)
        elif missing:
            self._failures.add(self._blamed(Failure(INCOMPLETE, {"node": self._name(missing[0])})))
        self._ended |= {index: {} for index in missing}

    def _rank_ended(self, rank: int, status: int) -> None:
        if -status in self._ends_ranks_by:
            self._failed.add(rank)
        elif not self._collector.finished(rank):
            self._failed.add(rank)
            failure = self._collector.ended_early(rank, status, self._work.placement.node_of(rank).name)
            self._failures.add(failure, follows_another(status))

    def _node_ended(self, index: int, message: dict) -> None:
        """Everything on a node has ended: name a rank that left its work, or what else is known of the end."""
        self._ended[index] = message
        self._collector.sizes(index, message.get("sizes", {}))
        status, ranks = message["end"], self._work.placement.ranks(index)
        self._launcher_ended(index, status)
        if status == 0 and not self._failed.intersection(ranks):
            for rank in self._collector.unfinished():
                if rank in ranks:
                    self._rank_ended(rank, 0)

    def _launcher_ended(self, index: int, status: int | None) -> None:
        """What started a node's ranks has ended: name what went wrong, unless a rank of the node is known to have failed."""
        ranks = self._work.placement.ranks(index)
        if not status or index in self._launchers or self._failed.intersection(ranks):
            return
        self._launchers.add(index)
        runtime = self._work.cluster.runtime
        client_killed = runtime.engine and status < 0
        if self._work.placement.world_size == 1 and not client_killed and status not in runtime.refusals:
            self._rank_ended(0, as_of_a_process(status) if runtime.in_image else status)
        else:
            logs = self._collector.launcher_logs[index], self._collector.rank_folder(ranks[0]) / "stderr"
            lines = next(filter(None, map(last_lines, logs)), [])
            begun = any(self._collector.tails[rank].last for rank in ranks)
            self._failures.add(node_ended(self._name(index), status, runtime, lines, begun))

    def _lose(self, index: int, failure: Failure) -> None:
        """Nothing more comes from a node; what it sent is kept. No node is to blame where the controller was away."""
        if index not in self._ended:
            self._ended[index] = LOST
            self._failures.add(self._blamed(failure))

    def _blamed(self, failure: Failure) -> Failure:
        """The failure, or that this controller was away for longer than nodes go on without it."""
        lease, aftermath = self._work.lease_s, LEASE_S * self._work.cluster.patience + AFTERMATH_S
        away = self._pauses.length if self._pauses.look() < aftermath else 0.0
        if away <= lease - MARGIN_S:
            return failure
        return Failure(CONTROLLER_SLEPT, {"seconds": away, "lease": lease})

    def _name(self, index: int) -> str:
        return self._work.placement.nodes[index].name
