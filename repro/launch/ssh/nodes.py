"""The nodes of a run: connected, locked against other runs, checked, and brought back when one was lost."""

from __future__ import annotations

import getpass
import json
import queue
import secrets
import socket
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from repro.cluster.cluster import Cluster, ClusterError, Node
from repro.cluster.ssh import Remote, RemoteError
from repro.launch.nodes.code_upload import Code, deliver
from repro.launch.nodes.commands import OWN, Host
from repro.launch.nodes.node_check import check_order, host_of, problems
from repro.launch.nodes.work import LEASE_S
from repro.launch.ssh.agent_client import AgentClient

Item = TypeVar("Item")
T = TypeVar("T")
ANSWER_S = 40


class LockedError(RemoteError):
    """A node is in use by another run."""


class NodeSession:
    """One node of a run, open from construction until `close`; RemoteError if it cannot take part."""

    def __init__(self, cluster: Cluster, node: Node, code: Code, owner: dict, port: int):
        self.cluster, self.node, self._code = cluster, node, code
        self.remote = Remote(cluster, node)
        self._lease: AgentClient | None = None
        try:
            deliver(self.remote, code)
            self.removed = self._lock(owner)
            self.facts, self.host = self._check(port)
        except BaseException:
            self.release()
            raise

    @property
    def lost(self) -> bool:
        """Whether the node gave up its lock, or sent nothing for as long as its lease."""
        return self._lease is None or self._lease.gone.is_set() or self._lease.silent() > LEASE_S

    def start(self, order: dict, on_message: Callable[[dict], None]) -> AgentClient:
        """Start an agent on this node with an order."""
        return AgentClient(self.remote, self._code.agent(self.cluster.work, self.cluster.python), order, on_message)

    def release(self) -> None:
        """Give the lock back once the node has removed what is left of the run."""
        if self._lease:
            self._lease.stop()
            self._lease.gone.wait(LEASE_S)
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self.remote.close()

    def _lock(self, owner: dict) -> list[str]:
        """Hold the node's lock and lease; the names of leftover containers that were removed."""
        answers: queue.Queue[dict] = queue.Queue()
        order = {
            "do": "hold",
            "work": self.cluster.work,
            "owner": owner,
            "label": OWN,
            "containers": self.cluster.containers,
        }
        self._lease = self.start(order, answers.put)
        try:
            answer = answers.get(timeout=ANSWER_S)
        except queue.Empty:
            raise RemoteError(self.node.name, f"no answer within {ANSWER_S} s") from None
        if "held" in answer:
            raise LockedError(self.node.name, _held(answer["held"]))
        if "locked" not in answer:
            raise RemoteError(self.node.name, f"it cannot be locked: {answer.get('error') or answer.get('gone')}")
        return answer["removed"]

    def _check(self, port: int) -> tuple[dict, Host]:
        argv = self._code.agent(self.cluster.work, self.cluster.python)
        asked = time.time()
        done = self.remote.run(argv, stdin=json.dumps(check_order(self.cluster, port)) + "\n", timeout=ANSWER_S)
        facts = json.loads(done.stdout)
        if "error" in facts:
            raise RemoteError(self.node.name, facts["error"])
        found = problems(self.cluster, self.node, facts, _skew(facts["time"], asked, time.time()), port)
        if found:
            raise NodeProblems(self.node.name, found)
        return facts, host_of(self.node, facts)


class NodeProblems(RemoteError):
    """What `repro.launch.nodes.node_check.problems` found on a node."""

    def __init__(self, node: str, found: list[str]):
        super().__init__(node, found[0])
        self.args = ("\n".join(found),)


def _skew(read: float, asked: float, answered: float) -> float:
    """By how many seconds a clock is ahead at least, if it was read between two readings of this one."""
    return max(0.0, read - answered) - max(0.0, asked - read)


def _held(owner: dict) -> str:
    if not owner.keys() >= {"who", "since", "what"}:
        return "in use by another run"
    return f"in use by {owner['who']} since {owner['since']} for `{owner['what']}`; wait for that to end"


class NodePool:
    """All nodes of a cluster for one run. Use it as a context; ClusterError names every node that cannot take part.

    `what` says to others who want the nodes what they are used for.
    """

    def __init__(self, cluster: Cluster, code: Code, what: str, port: int | None = None):
        self.cluster, self.code, self.port = cluster, code, port or cluster.port
        self._owner = {
            "who": f"{getpass.getuser()}@{socket.gethostname()}",
            "what": what,
            "since": time.strftime("%Y-%m-%d %H:%M:%S %z"),
            "mark": secrets.token_hex(8),
        }
        self.members: dict[str, NodeSession] = {}

    def __enter__(self) -> NodePool:
        failed = self.recover()
        if failed:
            self.__exit__()
            lines = [str(error) for error in failed.values()]
            raise ClusterError("\n".join([f"cluster {self.cluster.name} cannot be used now:", *lines]))
        return self

    def __exit__(self, *error: object) -> None:
        _on_each(lambda member: member.release(), self.members.values())
        self.members = {}

    def lost(self, nodes: Iterable[Node]) -> list[Node]:
        """Those of the nodes that are not open, or no longer."""
        return [node for node in nodes if node.name not in self.members or self.members[node.name].lost]

    def recover(self, nodes: Iterable[Node] | None = None) -> dict[str, RemoteError]:
        """Open all nodes, or these, that are not open; the errors of those that cannot be opened, by name."""
        missing = self.lost(self.cluster.nodes if nodes is None else nodes)
        for node in missing:
            if node.name in self.members:
                self.drop(node.name)
        failed = {}
        for node, found in zip(missing, _on_each(self._open, missing), strict=True):
            if isinstance(found, NodeSession):
                self.members[node.name] = found
            elif isinstance(found, RemoteError):
                failed[node.name] = found
            else:
                raise found
        return failed

    def drop(self, name: str) -> None:
        """Close the connection to a node that was lost; `recover` opens it again."""
        self.members.pop(name).close()

    def _open(self, node: Node) -> NodeSession:
        return NodeSession(self.cluster, node, self.code, self._owner, self.port)


def _on_each(work: Callable[[Item], T], given: Iterable[Item]) -> list[T | Exception]:
    """What `work` returned or raised for each, all at once."""
    items = list(given)

    def one(item: Item) -> T | Exception:
        try:
            return work(item)
        except Exception as error:
            return error

    if not items:
        return []
    with ThreadPoolExecutor(len(items)) as pool:
        return list(pool.map(one, items))
