"""What goes wrong on the nodes of an attempt, and which of several failures was the first cause."""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass

from repro.images.runtime import Runtime, refusal
from repro.runs.failures import Failure
from repro.utils.i18n import N_
from repro.utils.signals import signal_name

SETTLE_S = 1.5
QUIET_S = 5.0


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


def node_says(node: str, message: str) -> Failure:
    """What a node itself reports."""
    return Failure(N_("{node}: {said}"), {"node": node, "said": message})
