"""What the nodes of a job are, asked on the nodes themselves: no compute node needs to be reached over SSH."""

from __future__ import annotations

import queue
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from repro.cluster.fingerprint import SCRIPT, probe_arguments, probed
from repro.cluster.ssh import CommandResult
from repro.launch.attempt import Interrupts, Limits, OnEvent
from repro.launch.check_programs import CheckConfig, ProgramOf
from repro.launch.nodes.attempt import NodesAttempt, NotStarted
from repro.launch.nodes.code_upload import UploadedCode
from repro.launch.nodes.failure_causes import node_says
from repro.launch.nodes.follower import AttemptFollower
from repro.launch.nodes.holder import held_text, others_text
from repro.launch.nodes.node_check import check_order, host_of, problems
from repro.launch.nodes.work import check_work
from repro.launch.slurm.allocation import Allocation, SlurmStep
from repro.launch.slurm.batch_script import SlurmWork, work_of_step
from repro.runs.failures import Failure
from repro.utils.i18n import N_

PROBE_S = 180.0
SLICE_S = 0.2
WHAT = "what the nodes of a job are"
PROBLEMS = N_("job {job} cannot use its nodes: {said}")


class StepAnswers:
    """Takes what the nodes of a step send."""

    def __init__(self) -> None:
        self.inbox: queue.SimpleQueue[tuple[int, dict, float]] = queue.SimpleQueue()

    def put(self, index: int, message: dict) -> None:
        self.inbox.put((index, message, time.time()))

    def end(self, failure: Failure | None, secondary: bool = False) -> None:
        self.inbox.put((-1, {"failure": failure}, time.time()))


def inspect(allocation: Allocation, code: UploadedCode, port: int, interrupts: Interrupts) -> None:
    """Ask each node of a job what it is, for its `facts` and `fingerprints`; NotStarted names nodes that cannot be used."""
    cluster, answers, sent = allocation.request.cluster, StepAnswers(), time.time()
    order = {
        **check_order(cluster, port),
        "do": "probe",
        "script": SCRIPT.read_text(encoding="utf-8"),
        "arguments": probe_arguments(cluster),
        "container": "",
    }
    owner = allocation.request.owner(WHAT, allocation.request.run)
    step = allocation.start(owner, dict.fromkeys(allocation.names, order), code, answers)
    received = _received(allocation, step, answers=answers, key="probe", patience=PROBE_S, interrupts=interrupts)
    allocation.wait(step)
    for node in allocation.nodes():
        message, at = received[node.name]
        allocation.facts[node.name] = message["facts"]
        allocation.fingerprints[node.name] = probed(cluster, node.name, output=message["probe"], sent=sent, received=at)
    sentences = [
        line for node in allocation.nodes() for line in problems(cluster, node, allocation.facts[node.name], 0.0, port)
    ]
    if sentences:
        raise NotStarted(Failure(PROBLEMS, {"job": allocation.number, "said": "; ".join(sentences)}))


def ask(
    allocation: Allocation,
    names: Iterable[str],
    code: UploadedCode,
    argv: list[str],
    patience: float,
    interrupts: Interrupts,
) -> dict[str, CommandResult]:
    """What a program prints on these nodes of a job, by their names; NotStarted names a node that does not answer."""
    cluster, answers = allocation.request.cluster, StepAnswers()
    order = {"do": "ask", "argv": argv, "patience_s": patience, "work": cluster.work, "container": ""}
    owner = allocation.request.owner(WHAT, allocation.request.run)
    step = allocation.start(owner, dict.fromkeys(names, order), code, answers)
    received = _received(
        allocation, step, answers=answers, key="status", patience=patience + PROBE_S, interrupts=interrupts
    )
    allocation.wait(step)
    return {
        name: CommandResult(message["stdout"], message["stderr"], message["status"])
        for name, (message, _) in received.items()
    }


def _received(
    allocation: Allocation, step: SlurmStep, answers: StepAnswers, key: str, patience: float, interrupts: Interrupts
) -> dict[str, tuple[dict, float]]:
    """Each node's answer, the message that has this key, and when it came."""
    received: dict[str, tuple[dict, float]] = {}
    limit = patience * allocation.request.cluster.patience
    deadline = time.monotonic() + limit
    while len(received) < len(step.names):
        interrupts.check()
        try:
            index, message, at = answers.inbox.get(timeout=SLICE_S)
        except queue.Empty:
            if time.monotonic() > deadline:
                late = ", ".join(name for name in step.names if name not in received)
                said = f"{late}: no answer within {limit:.0f} s"
                raise NotStarted(Failure(PROBLEMS, {"job": allocation.number, "said": said})) from None
            continue
        if message.get("failure"):
            raise NotStarted(message["failure"])
        if "held" in message:
            raise NotStarted(node_says(step.names[index], held_text(allocation.request.cluster, message["held"])))
        if "others" in message:
            raise NotStarted(node_says(step.names[index], others_text(allocation.request.cluster, message["others"])))
        if "error" in message:
            raise NotStarted(node_says(step.names[index], message["error"]))
        if key in message:
            received[step.names[index]] = message, at
    return received


class StepTransport:
    """What an attempt sends to a step of a job and hears from it; see `repro.launch.nodes.attempt.NodeTransport`."""

    ends_ranks_by: frozenset[int] = frozenset()
    log = ""

    def __init__(self, code: UploadedCode):
        self._code = code
        self._allocation: Allocation
        self._work: SlurmWork
        self._step: SlurmStep | None = None

    def orders(self) -> dict[str, dict]:
        """What the agents of the nodes have to do, by the names of the nodes."""
        facts = self._allocation.facts
        return self._work.orders([host_of(node, facts[node.name]) for node in self._work.placement.nodes])

    def start(self, follower: AttemptFollower) -> None:
        """Give the nodes their orders; `follower` gets the end where that fails."""
        owner = self._allocation.request.owner(self._work.title, self._work.run)
        try:
            self._step = self._allocation.start(owner, self.orders(), self._code, follower)
        except NotStarted as error:
            follower.end(error.failure)

    def silences(self) -> dict[int, float] | None:
        return self._allocation.silences(self._step) if self._step else {}

    def answers(self, index: int) -> bool:
        """Nothing is known of a node but what its agent sends."""
        return False


class CheckTransport(StepTransport):
    """A step for a check, in a job that goes on after it."""

    def __init__(self, code: UploadedCode, allocation: Allocation, work: SlurmWork):
        super().__init__(code)
        self._allocation, self._work = allocation, work

    def prepare(self, on_event: OnEvent, interrupts: Interrupts) -> SlurmWork:
        return self._work

    def stop(self, follower: AttemptFollower) -> None:
        if self._step:
            self._allocation.wait(self._step) if follower.succeeded else self._allocation.stop(self._step)


def programs_in_job(allocation: Allocation, name: str, code: UploadedCode, program: Path, limits: Limits) -> ProgramOf:
    """The maker of attempts of one process of a check's program on a node of a job."""
    node = next(node for node in allocation.nodes() if node.name == name)
    request = allocation.request
    alone = replace(request.cluster, nodes=(node,))

    def attempt_of(config: CheckConfig, folder: Path) -> NodesAttempt:
        work = check_work(alone, code, program, f"{program.stem} on {name}", config, alone.port, folder)
        step = work_of_step(request, replace(work, run=request.run))
        return NodesAttempt(CheckTransport(code, allocation, step), folder, limits)

    return attempt_of
