"""Frees the nodes of a cluster of a run that has stopped or hangs, over SSH: first asked, then ended."""

from __future__ import annotations

from dataclasses import dataclass

from repro.cluster.cluster import Cluster
from repro.cluster.ssh import Remote, on_all
from repro.launch.nodes.agent_answer import ask_agent
from repro.launch.nodes.code_upload import UploadedCode, deliver
from repro.launch.nodes.holder import container_text, described, is_heard, last_heard, whom_to_ask

ANSWER_S = 60


@dataclass(frozen=True)
class Occupancy:
    """Who holds a node, and what the end of that would take along, as `repro.launch.agent.unlock.survey` tells it.

    `patience` is the cluster's.
    """

    node: str
    holder: dict | None
    processes: list[tuple[int, str]]
    containers: list[dict]
    patience: float = 1.0

    @property
    def nothing(self) -> bool:
        """Whether nobody holds the node and nothing of a dead run is left there."""
        return self.holder is None and not self.containers

    def refusal(self, force: bool) -> str:
        """Why this account or this call does not end it; "" if it does."""
        if self.holder and not self.holder["may_end"]:
            return f"{self.node}: {whom_to_ask(self.holder)}"
        if self.holder and is_heard(self.holder, self.patience) and not force:
            return f"{self.node}: that run is still heard of. Interrupt it where it was started, or end it with FORCE=1"
        return ""

    def lines(self) -> list[str]:
        """The description that the user reads before anything is ended."""
        if self.nothing:
            return [f"{self.node}: free"]
        if self.holder is None:
            first = f"{self.node}: free, but a dead run has left something"
        else:
            heard = "still heard of" if is_heard(self.holder, self.patience) else last_heard(self.holder)
            first = f"{self.node}: held by {described(self.holder)}; {heard}"
        ended = [f"    ends process {number}: {command}" for number, command in self.processes]
        return [first, *ended, *(f"    removes container {container_text(container)}" for container in self.containers)]


def survey(cluster: Cluster) -> dict[str, Occupancy | Exception]:
    """What holds each node, by its name, or why that cannot be asked."""
    code = UploadedCode()

    def ask(remote: Remote) -> Occupancy:
        deliver(remote, code)
        answer = _ask(remote, code, {"do": "holder"})
        processes = [(number, command) for number, command in answer["processes"]]
        return Occupancy(
            remote.node.name,
            answer["holder"],
            processes=processes,
            containers=answer["containers"],
            patience=cluster.patience,
        )

    return on_all(cluster, ask)


def free(cluster: Cluster, chosen: list[Occupancy]) -> dict[str, str | Exception]:
    """End what holds these nodes if it still is what was shown; by the node's name "", or what is left."""
    code, by_name = UploadedCode(), {occupancy.node: occupancy for occupancy in chosen}

    def end(remote: Remote) -> str:
        shown = by_name[remote.node.name].holder
        answer = _ask(remote, code, {"do": "unlock", "process": shown["process"] if shown else ""})
        if answer["left"]:
            return f"process {', '.join(map(str, answer['left']))} does not end; restart the node"
        return f"in use by {described(answer['holder'])} now" if answer["holder"] else ""

    return on_all(cluster, end, [node for node in cluster.nodes if node.name in by_name])


def _ask(remote: Remote, code: UploadedCode, order: dict) -> dict:
    return ask_agent(remote, code.agent(remote.cluster), order, ANSWER_S)
