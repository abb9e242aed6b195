"""One attempt of a unit on the nodes of a cluster: a transport starts and ends it, a follower watches it."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from repro.launch.attempt import Interrupts, Limits, OnEvent, Outcome, ignore, interruptible
from repro.launch.nodes.follower import AttemptFollower
from repro.launch.nodes.work import NodeWork
from repro.runs.failures import Failure, last_lines
from repro.runs.record import write_json
from repro.utils.errors import FAILED, ReproError


class NotStarted(ReproError):
    """An attempt that cannot start, with the failure that says why."""

    status = FAILED

    def __init__(self, failure: Failure):
        super().__init__(failure.text())
        self.failure = failure


class NodeTransport(Protocol):
    """How one attempt gets to its nodes: starts their agents, brings their messages, and ends them.

    Attributes
    ----------
    ends_ranks_by : the signals with which it ends ranks itself: one that ends by them tells nothing of the cause.
    log : a log of its own in the attempt's folder, "" if it has none.
    """

    ends_ranks_by: frozenset[int]
    log: str

    def prepare(self, on_event: OnEvent, interrupts: Interrupts) -> NodeWork:
        """Wait until the nodes can be used; the work, which says which they are. NotStarted says why not."""
        ...

    def start(self, follower: AttemptFollower) -> None:
        """Give the nodes their orders; from now on their messages go to `follower.put`."""
        ...

    def silences(self) -> Mapping[int, float] | None:
        """For how many seconds nothing has come from each node, by its position; None while nothing can be read."""
        ...

    def answers(self, index: int) -> bool:
        """Whether the node at a position is known to be up and connected, whatever becomes of its agent."""
        ...

    def stop(self, follower: AttemptFollower) -> None:
        """End what still runs on nodes, and release what `prepare` and `start` took; called however it ended."""
        ...


@dataclass
class NodesAttempt:
    """One start of a trainer on nodes; its configuration, commands, logs and metrics come to `folder`."""

    transport: NodeTransport
    folder: Path
    limits: Limits

    def run(self, on_event: OnEvent = ignore, stop: threading.Event | None = None) -> Outcome:
        """As `repro.launch.attempt.Attempt` says; a node that cannot be reached ends its ranks by its lease."""
        with interruptible(stop) as interrupts:
            try:
                work = self.transport.prepare(on_event, interrupts)
            except NotStarted as error:
                return Outcome(error.failure, 0.0, self._own_log_tail())
            follower = AttemptFollower(work, self.folder, self.limits, self.transport.ends_ranks_by)
            started = time.monotonic()
            try:
                write_json(self.folder / "config.json", replace(work.config, output=str(self.folder)).as_json())
                self.transport.start(follower)
                failure = follower.follow(on_event, self.transport.silences, interrupts, self.transport.answers)
            finally:
                self.transport.stop(follower)
        for event in follower.events():
            on_event(event)
        failure = failure or follower.cut_evidence() or follower.damage() or follower.unfinished()
        tail = (follower.log_tail(failure) or self._own_log_tail()) if failure else ""
        explained = follower.explained(failure) if failure else None
        nodes = tuple(node.name for node in work.placement.nodes)
        return Outcome(explained, time.monotonic() - started, log_tail=tail, cut=tuple(follower.cut()), nodes=nodes)

    def _own_log_tail(self) -> str:
        return "\n".join(last_lines(self.folder / self.transport.log)) if self.transport.log else ""
