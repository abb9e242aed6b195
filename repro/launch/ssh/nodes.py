"""The nodes of a run: connected, locked against other runs, checked, and brought back when one was lost."""

from __future__ import annotations

import contextlib
import json
import queue
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from repro.cluster.cluster import Cluster, ClusterError, Node
from repro.cluster.rank_environment import after_prologue
from repro.cluster.ssh import Remote, RemoteError, each_of
from repro.launch.nodes.agent_answer import ask_agent
from repro.launch.nodes.code_upload import UploadedCode, deliver
from repro.launch.nodes.commands import NodeFacts
from repro.launch.nodes.holder import held_text, holder, others_text
from repro.launch.nodes.node_check import check_order, host_of, problems
from repro.launch.nodes.work import LEASE_S
from repro.launch.ssh.agent_client import CONNECTION_LOST, AgentClient

T = TypeVar("T")
ANSWER_S = 40
ANSWERS_S = 5.0


class LockedError(RemoteError):
    """A node is in use by another run."""


class NodeSession:
    """One node of a run, locked from construction until `close`; RemoteError if it cannot be."""

    def __init__(self, cluster: Cluster, node: Node, code: UploadedCode, owner: dict):
        self.cluster, self.node, self._code = cluster, node, code
        self.remote = Remote(cluster, node)
        self._owner = owner
        self._lease: AgentClient | None = None
        self._answers: queue.Queue[dict] = queue.Queue()
        self._without_lock = ""
        self._on_lost: Callable[[str], object] = str
        self.facts: dict = {}
        self.host: NodeFacts
        try:
            deliver(self.remote, code)
            self.removed = self._lock()
        except BaseException:
            self.release()
            raise

    def check(self, port: int) -> None:
        """Learn `facts` and `host` of the node; RemoteError if it cannot take part."""
        asked = time.time()
        self.facts = ask_agent(self.remote, self._agent(), check_order(self.cluster, port), ANSWER_S)
        faults = problems(self.cluster, self.node, self.facts, _skew(self.facts["time"], asked, time.time()), port)
        if faults:
            raise NodeProblems(self.node.name, faults)
        self.host = host_of(self.node, self.facts)

    @property
    def lost(self) -> bool:
        """Whether the node gave up its lock, or sent nothing for as long as its lease."""
        unheard = (
            self._lease is None or self._lease.gone.is_set() or self._lease.silent() > LEASE_S * self.cluster.patience
        )
        return unheard or bool(self._without_lock)

    @property
    def answers(self) -> bool:
        """Whether the node has sent something just now."""
        return not self.lost and self._lease is not None and self._lease.silent() < ANSWERS_S * self.cluster.patience

    def start(self, order: dict, on_message: Callable[[dict], None]) -> AgentClient:
        """Start an agent on this node with an order."""
        argv = self._agent(self._owner["mark"])
        return AgentClient(self.remote, argv, order, on_message)

    def end(self, agent: str) -> None:
        """End an agent on this node, by its identity, that does not do so itself, as one that is stopped."""
        argv = self._agent(self._owner["mark"])
        order = json.dumps({"do": "end", "process": agent}) + "\n"
        with contextlib.suppress(RemoteError):  # then its lease ends it, if ever it goes on
            self.remote.run(argv, stdin=order, check=False, timeout=ANSWER_S)

    def announce(self, run: str) -> None:
        """Let the node tell others which run it is held for."""
        if self._lease:
            self._lease.tell(run=run)

    def when_lost(self, on_lost: Callable[[str], object]) -> None:
        """Call this with the reason once the node is no longer locked for this run; at once if it is so already."""
        self._on_lost = on_lost
        if self._without_lock:
            on_lost(self._without_lock)

    def release(self) -> None:
        """Give the lock back once the node has removed what is left of the run."""
        if self._lease:
            self._lease.stop()
            self._lease.gone.wait(LEASE_S * self.cluster.patience)
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self.remote.close()

    def _agent(self, *mark: str) -> list[str]:
        agent = self._code.agent(self.cluster, *mark)
        return after_prologue(self.cluster.prologue, agent)

    def _lock(self) -> list[str]:
        """Hold the node's lock and lease; the names of leftover containers that were removed."""
        order = {
            "do": "hold",
            "work": self.cluster.work,
            "owner": {**self._owner, "node": self.node.name},
            "containers": self.cluster.runtime.engine,
        }
        self._lease, limit = self.start(order, self._hear), ANSWER_S * self.cluster.patience
        try:
            answer = self._answers.get(timeout=limit)
        except queue.Empty:
            raise RemoteError(self.node.name, f"no answer within {limit:.0f} s") from None
        held = answer.get("held") or {}
        other = held.get("node", self.node.name)  # this node is held by this run where its holder hangs
        if held.get("mark") == self._owner["mark"] and other != self.node.name:
            raise RemoteError(
                self.node.name,
                f"{other} and {self.node.name} are the same machine, and each node is one of its own; leave one of them out "
                f"of {self.cluster.folder / 'hosts.yml'}",
            )
        if "held" in answer:
            raise LockedError(self.node.name, held_text(self.cluster, answer["held"]))
        if "others" in answer:
            raise LockedError(self.node.name, others_text(self.cluster, answer["others"]))
        if "locked" not in answer:
            raise RemoteError(self.node.name, f"it cannot be locked: {answer.get('error') or answer.get('gone')}")
        return answer["removed"]

    def _hear(self, message: dict) -> None:
        """Take a message of the agent that holds the lock: its first answer, and the loss of the lock."""
        self._answers.put(message)
        if "lost" in message or "gone" in message:
            why = message.get("gone", "")
            ended = "the process that held it has ended" + (f": {why}" if why not in ("", CONNECTION_LOST) else "")
            self._without_lock = message.get("lost", ended)
            self._on_lost(self._without_lock)


class NodeProblems(RemoteError):
    """What `repro.launch.nodes.node_check.problems` found on a node."""

    def __init__(self, node: str, sentences: list[str]):
        super().__init__(node, sentences[0])
        self.args = ("\n".join(sentences),)


def _skew(read: float, asked: float, answered: float) -> float:
    """By how many seconds a clock is ahead at least, if it was read between two readings of this one."""
    return max(0.0, read - answered) - max(0.0, asked - read)


class NodePool:
    """All nodes of a cluster for one run. Use it as a context; ClusterError names every node that cannot take part.

    `what` says to others who want the nodes what they are used for.
    """

    def __init__(self, cluster: Cluster, code: UploadedCode, what: str, port: int | None = None):
        self.cluster, self.code, self.port = cluster, code, port or cluster.port
        self._owner = holder(what)
        self.members: dict[str, NodeSession] = {}

    def __enter__(self) -> NodePool:
        try:
            failed = self.recover()
            if failed:
                lines = [str(error) for error in failed.values()]
                raise ClusterError("\n".join([f"cluster {self.cluster.name} cannot be used now:", *lines]))
        except BaseException:
            self.__exit__()
            raise
        self.members = {node.name: self.members[node.name] for node in self.cluster.nodes}
        return self

    def __exit__(self, *error: object) -> None:
        each_of(lambda member: member.release(), self.members.values())
        self.members = {}

    def namesakes(self) -> Iterator[str]:
        """What is to be said of nodes that have the same host name, by which a report could not tell them apart."""
        names: dict[str, list[str]] = {}
        for name, member in self.members.items():
            names.setdefault(member.facts["host"], []).append(name)
        for host, nodes in names.items():
            if len(nodes) > 1:
                yield (
                    f"{', '.join(nodes)} all have the host name {host}, and results count nodes by it; give each a name of "
                    "its own (hostnamectl set-hostname NAME)"
                )

    def announce(self, run: str) -> None:
        """Let the nodes tell others which run they are held for."""
        self._owner = {**self._owner, "run": run}
        for member in self.members.values():
            member.announce(run)

    def over(self, work: Callable[[Remote], T]) -> dict[str, T | Exception]:
        """What `work` gives or raises for every node that is held, by name, over the connections that are open."""
        return dict(zip(self.members, each_of(lambda member: work(member.remote), self.members.values()), strict=True))

    def on_each(self, work: Callable[[Remote], T]) -> dict[str, T]:
        """What `work` gives for every node that is held; ClusterError with a line for each where it fails."""
        done = self.over(work)
        if failed := [str(error) for error in done.values() if isinstance(error, Exception)]:
            raise ClusterError("\n".join(failed))
        return {name: result for name, result in done.items() if not isinstance(result, Exception)}

    def lost(self, nodes: Iterable[Node]) -> list[Node]:
        """Those of the nodes that are not open, or no longer."""
        return [node for node in nodes if node.name not in self.members or self.members[node.name].lost]

    def recover(self, nodes: Iterable[Node] | None = None) -> dict[str, RemoteError]:
        """Open all nodes, or these, that are not open; the errors of those that cannot be opened, by name.

        All are locked before one is checked: a machine under two names is known only while both hold it. Whatever it
        raises, all that were opened are members, which the pool closes at its end.
        """
        missing = self.lost(self.cluster.nodes if nodes is None else nodes)
        for node in missing:
            if node.name in self.members:
                self.drop(node.name)
        failed = self._errors(self._open, missing)
        return failed | self._errors(self._check, [node for node in missing if node.name not in failed])

    def drop(self, name: str) -> None:
        """Close the connection to a node that was lost; `recover` opens it again."""
        self.members.pop(name).close()

    def _errors(self, step: Callable[[Node], None], nodes: list[Node]) -> dict[str, RemoteError]:
        """Take a step with each node; the errors of those that cannot take part, by name."""
        failed = {}
        for node, error in zip(nodes, each_of(step, nodes), strict=True):
            if isinstance(error, RemoteError):
                failed[node.name] = error
            elif error:
                raise error
        return failed

    def _open(self, node: Node) -> None:
        self.members[node.name] = NodeSession(self.cluster, node, self.code, self._owner)

    def _check(self, node: Node) -> None:
        try:
            self.members[node.name].check(self.port)
        except RemoteError:
            self.members.pop(node.name).release()
            raise
