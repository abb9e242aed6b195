"""Holds nodes for something other than a run, such as provisioning, also before anything of the project is on them."""

from __future__ import annotations

import base64
import json
import queue
import zlib
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager

from repro.cluster.cluster import Cluster, Node
from repro.cluster.inventory import ClusterError
from repro.cluster.ssh import Remote, RemoteError, each_of
from repro.launch.nodes.holder import held_text, holder
from repro.launch.ssh.agent_client import AgentClient
from repro.launch.ssh.nodes import ANSWER_S
from repro.utils.paths import PACKAGE

AGENT = "repro.launch.agent"
BOOT = """
import base64, importlib.abc, importlib.util, json, sys, zlib
sent = json.loads(zlib.decompress(base64.b64decode(sys.argv[1])))
class Sent(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    def find_spec(self, name, path=None, target=None):
        return importlib.util.spec_from_loader(name, self) if name in sent else None
    def is_package(self, name):
        return any(other.startswith(name + ".") for other in sent)
    def get_source(self, name):
        return sent[name]
sys.meta_path.insert(0, Sent())
from repro.launch.agent.__main__ import main
main()
"""
"""Runs the agent from its argument alone: nothing is written to the node."""


@contextmanager
def held(cluster: Cluster, names: Collection[str], what: str) -> Iterator[None]:
    """Hold the nodes with these names for `what`, which others are told of who want one of them.

    ClusterError, with a line for each, where another holds one of them, or the lock cannot be used. A node that cannot be
    reached, or has no Python yet, is left to what is to be done there, which says so.
    """
    owner = holder(what)
    with ExitStack() as stack:
        nodes = [node for node in cluster.nodes if node.name in names]
        refused = [error for error in each_of(lambda node: _hold(cluster, node, owner, stack), nodes) if error]
        for error in refused:
            if not isinstance(error, RemoteError):
                raise error
        if refused:
            lines = [str(error) for error in refused]
            raise ClusterError("\n".join([f"nothing was done: cluster {cluster.name} cannot be changed now:", *lines]))
        yield


def _hold(cluster: Cluster, node: Node, owner: dict, stack: ExitStack) -> None:
    """Hold a node until the stack is left; RemoteError if another does."""
    try:
        remote = stack.enter_context(Remote(cluster, node))
        answers: queue.Queue[dict] = queue.Queue()
        order = {"do": "hold", "work": "/", "owner": {**owner, "node": node.name}, "containers": False}
        agent = AgentClient(remote, _argv(cluster, owner["mark"]), order, answers.put)
        answer = answers.get(timeout=ANSWER_S * cluster.patience)
    except (RemoteError, queue.Empty):
        return
    stack.callback(_release, agent, ANSWER_S * cluster.patience)
    if "held" in answer:
        raise RemoteError(node.name, held_text(cluster, answer["held"]))
    if "error" in answer and "locked" not in answer:
        raise RemoteError(node.name, f"it cannot be locked: {answer['error']}")


def _release(agent: AgentClient, limit_s: float) -> None:
    agent.stop()
    agent.gone.wait(limit_s)


def _argv(cluster: Cluster, mark: str) -> list[str]:
    folder = PACKAGE / "launch" / "agent"
    sources = {f"{AGENT}.{path.stem}": path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.py"))}
    sources = {**dict.fromkeys(("repro", "repro.launch", AGENT), ""), **sources}
    return [
        *cluster.interpreter,
        "-c",
        BOOT,
        base64.b64encode(zlib.compress(json.dumps(sources).encode())).decode(),
        mark,
    ]
