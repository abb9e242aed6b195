"""What goes wrong on the nodes of an attempt, and which of several failures was the first cause."""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass

from repro.images.runtime import Runtime, refusal
from repro.runs.attempts import CutLog
from repro.runs.failures import Failure
from repro.utils.i18n import N_
from repro.utils.signals import signal_name

SETTLE_S = 1.5
QUIET_S = 5.0
FULL_MIB = 20
FULL = N_("the disk is full: free some space, then resume the run")
MEMORY = N_("the kernel of this node ran out of memory and killed processes")


@dataclass(frozen=True)
class NodeFailure:
    """A failure, when it was seen, and whether it may only follow from another: a rank aborts when it loses another.

    One that `explains` others is their cause, although they were seen before it.
    """

    failure: Failure
    seen: float
    secondary: bool = False
    explains: bool = False


class FailureCollector:
    """Collects failures for a short while after the first, since the cause may be reported after its consequence."""

    def __init__(self) -> None:
        self._found: list[NodeFailure] = []

    def __bool__(self) -> bool:
        return bool(self._found)

    def add(self, failure: Failure, secondary: bool = False, explains: bool = False) -> None:
        """Take a failure, as `NodeFailure` says."""
        self._found.append(NodeFailure(failure, time.monotonic(), secondary, explains))

    def cause(self, silences: list[float]) -> Failure | None:
        """The cause, once it is time to name it.

        That is `SETTLE_S` after the first failure, sooner when no node works any more; if all may follow from
        another one, not while a node is silent for longer than its heartbeat takes. `silences` are those of the nodes
        that still work, in seconds.
        """
        if not self._found or (silences and time.monotonic() - self._found[0].seen < SETTLE_S):
            return None
        causes = [cause for cause in self._found if not cause.secondary]
        if not causes and any(silence > QUIET_S for silence in silences):
            return None
        explaining = [cause for cause in self._found if cause.explains]
        return (explaining or causes or self._found)[0].failure


def follows_another(status: int) -> bool:
    """Whether a rank that ended with this status, negative for a signal, may have followed another: see `NodeFailure`."""
    return -status in (signal.SIGABRT, signal.SIGTERM)


def node_ended(node: str, status: int | None, runtime: Runtime, lines: list[str], begun: bool) -> Failure:
    """What was started on a node ended, and no rank of it was seen to end before.

    Parameters
    ----------
    lines : the last ones that it printed.
    begun : whether a rank of the node has started its work.
    """
    if status in runtime.refusals:
        said = refusal(lines)
        if begun:
            message = N_("{runtime} on {node} failed while the container ran: {said}")
        else:
            message = N_("{runtime} on {node} did not start the container: {said}")
        return Failure(message, {"runtime": runtime.launched_by, "node": node, "said": said})
    if runtime.engine and status is not None and status < 0:
        values = {"runtime": runtime.launched_by, "node": node, "signal": signal_name(-status)}
        return Failure(
            N_(
                "the client of {runtime} on {node}, which holds the container, was killed by {signal}, and the container ended"
            ),
            values,
        )
    if runtime.engine and status in (128 + signal.SIGKILL, 128 + signal.SIGTERM):
        return Failure(
            N_("the container on {node} was stopped from outside (status {status})"), {"node": node, "status": status}
        )
    return Failure(N_("the launcher on {node} exited with status {status}"), {"node": node, "status": status})


def engine_restarted(node: str) -> Failure:
    """The Docker engine of a node is not the one that started the container."""
    return Failure(N_("Docker on {node} was killed, stopped or restarted, which ended the container"), {"node": node})


def controller_slept(seconds: float, lease_s: float) -> Failure:
    """The controller did not run for longer than nodes wait for it, which is `lease_s` seconds."""
    return Failure(
        N_(
            "this controller did not run for {seconds:.0f} s (suspended, stopped, or short of processors), and nodes end "
            "an attempt after {lease:.0f} s without it"
        ),
        {"seconds": seconds, "lease": lease_s},
    )


def agent_silent(node: str, seconds: float) -> Failure:
    """Nothing came from the agent of a node that itself answers."""
    return Failure(
        N_(
            "nothing was heard from the agent on {node} for {seconds:.0f} s, while the node itself answers: it was stopped"
        ),
        {"node": node, "seconds": seconds},
    )


def agent_ended(node: str, reason: str) -> Failure:
    """The agent on a node ended before its work, over a connection that lives."""
    return Failure(N_("the agent on {node} ended, and its ranks with it: {said}"), {"node": node, "said": reason})


def node_silent(node: str, seconds: float) -> Failure:
    """Nothing came from a node, not even its heartbeat."""
    return Failure(
        N_("nothing was heard from {node} for {seconds:.0f} s: it is down, cut off, or stopped"),
        {"node": node, "seconds": seconds},
    )


def node_gone(node: str, reason: str) -> Failure:
    """The connection to a node ended."""
    return Failure(N_("{node} was lost: {said}"), {"node": node, "said": reason})


def lock_lost(node: str, reason: str) -> Failure:
    """A node that another run could have by now."""
    return Failure(N_("{node} is no longer locked for this run: {said}"), {"node": node, "said": reason})


def node_incomplete(node: str) -> Failure:
    """A job ended well, and what a node of it wrote did not come to its end here."""
    return Failure(N_("the job has ended, but not all that {node} wrote has arrived here"), {"node": node})


def node_says(node: str, message: str) -> Failure:
    """What a node itself reports."""
    return Failure(N_("{node}: {said}"), {"node": node, "said": message})


def evidence_cut(log: CutLog) -> Failure:
    """A file that figures are read from was cut."""
    return Failure(
        N_("{path}, from which figures are read, was cut: {kept} of {printed} bytes are kept; print less"),
        log.as_json(),
    )


def folder_gone(node: str, folder: str) -> Failure:
    """A node whose ranks have lost the folder that they write to."""
    return Failure(
        N_("{folder} on {node} was deleted or moved while ranks wrote to it"), {"folder": folder, "node": node}
    )


def node_full(node: str, free_mib: int) -> Failure:
    """A node on whose disk there is no room for logs."""
    return Failure(N_("the disk of {node} has only {free} MiB left"), {"node": node, "free": free_mib}, FULL)
