"""Shows what holds the node that this runs on and ends it on request; needs only Python 3.8."""

from __future__ import annotations

import os
import time

from repro.launch.agent.leftovers import LeftContainer, containers, remove
from repro.launch.agent.lock import current_holder
from repro.launch.agent.patience import limit
from repro.launch.agent.processes import END_S, POLL_S, command, end, number, of_run


def survey() -> dict:
    """Who holds the node, and what its end would take along.

    `holder` as `repro.launch.agent.lock.holder_of` gives it, or None; `processes` as pairs of number and command;
    `containers` of the holder, and of dead runs of this account.
    """
    holder, processes, chosen = _found()
    return {
        "holder": holder,
        "processes": [[number(process), command(number(process))] for process in processes],
        "containers": [container.described() for container in chosen],
    }


def free(expected: str) -> dict:
    """End what `survey` shows, if the holder is the process with the identity `expected` still, "" for none.

    `error` says why nothing was ended; else `left` has the numbers of processes that did not end, and `holder` who
    holds the node now.
    """
    holder, processes, chosen = _found()
    if (holder["process"] if holder else "") != expected:
        return {"error": "another run has the node by now, or none; nothing was ended"}
    if holder and not holder["may_end"]:  # the engine would let whoever may use it remove the holder's containers
        return {"error": f"process {holder['pid']} is another account's; nothing was ended"}
    left = end(processes)
    if chosen:
        remove(chosen)
    return {"left": [number(process) for process in left], "holder": _next_holder(number(expected))}


def _next_holder(pid: int) -> dict | None:
    """Who has the lock after a process that was ended: its threads, and with them the lock, may end a little later."""
    deadline = time.monotonic() + limit(END_S)
    while (holder := current_holder()) and holder["pid"] == pid and time.monotonic() < deadline:
        time.sleep(POLL_S)
    return holder


def _found() -> tuple[dict | None, list[str], list[LeftContainer]]:
    holder = current_holder()
    processes = of_run(holder["pid"], holder.get("mark", "")) if holder and holder["pid"] else []
    me = os.getuid()
    chosen = [
        container
        for container in containers()
        if container.agent in processes or (container.abandoned and (me == 0 or container.user == str(me)))
    ]
    return holder, processes, chosen
