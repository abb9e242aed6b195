"""Containers and processes of runs on the node that this runs on: whose they are, and which a dead run left.

An agent labels what it starts with its account, its work folder and itself: a container by labels, processes without
one by variables of their environment. Removed without asking is only what has this account's and this folder's labels
and whose agent has ended. Needs Python 3.8 and nothing else.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from typing import NamedTuple

from repro.launch.agent.lock import account
from repro.launch.agent.node import docker
from repro.launch.agent.patience import limit
from repro.launch.agent.processes import command, end, environment, goes_on, identity, of_account, printable

RUN, USER, WORK, AGENT = (f"reproduction.{name}" for name in ("run", "user", "work", "agent"))
MARKS = ("REPRODUCTION_AGENT", "REPRODUCTION_WORK")
ROUNDS = 5
WAIT_S = 10.0


class LeftContainer(NamedTuple):
    """A container of a run, by the labels that its agent gave it; texts that are empty are not known."""

    id: str
    name: str
    runs: bool
    run: str
    user: str
    work: str
    agent: str

    @property
    def abandoned(self) -> bool:
        """Whether the agent that started it is known and has ended."""
        return bool(self.agent) and not goes_on(self.agent)

    def described(self) -> dict:
        """Its name, owner and state, as messages show them."""
        uid = int(self.user) if self.user.isdigit() else None
        return {
            "name": self.name,
            "run": self.run,
            "account": "" if uid is None else account(uid),
            "work": self.work,
            "abandoned": self.abandoned,
            "mine": uid == os.getuid(),
        }


def labels(work: str) -> list[str]:
    """The options of `docker run` that label a container of this agent."""
    given = {USER: str(os.getuid()), WORK: os.path.realpath(work), AGENT: identity(os.getpid())}
    return [word for name, value in given.items() for word in ("--label", f"{name}={value}")]


def mark(work: str) -> dict[str, str]:
    """The variables by which processes of this agent are found; Apptainer, told to clean the environment, keeps them."""
    given = dict(zip(MARKS, (identity(os.getpid()), os.path.realpath(work))))
    return {**given, **{f"APPTAINERENV_{name}": value for name, value in given.items()}}


def sweep_processes(work: str) -> list[str]:
    """End the processes that dead agents of this account left which used the same work folder; what they were."""
    left = {}
    for pid in of_account():
        agent, folder = map(environment(pid).get, MARKS)
        if agent and folder == os.path.realpath(work) and not goes_on(agent) and pid != os.getpid():
            left[identity(pid)] = f"process {pid} ({command(pid)})"
    end(left)
    return list(left.values())


def containers() -> list[LeftContainer]:
    """The containers of all runs that the engine has, in whatever state; none if it does not answer."""
    fields = [".ID", ".Names", ".Status", *(f'(.Label "{name}")' for name in (RUN, USER, WORK, AGENT))]
    form = "[" + ",".join(f"{{{{json {field}}}}}" for field in fields) + "]"
    try:
        lines = docker("ps", "--all", "--no-trunc", "--filter", f"label={RUN}", "--format", form).stdout.splitlines()
    except (OSError, subprocess.TimeoutExpired):
        return []
    listed = []
    for line in lines:
        number, name, status, *own = map(printable, json.loads(line))
        listed.append(LeftContainer(number, name, not status.startswith(("Exited", "Created", "Dead")), *own))
    return listed


def left_behind(work: str) -> list[LeftContainer]:
    """What dead runs of this account have left that used the same work folder."""
    mine = (str(os.getuid()), os.path.realpath(work))
    return [container for container in containers() if (container.user, container.work) == mine and container.abandoned]


def sweep(work: str) -> list[str]:
    """Remove what `left_behind` gives, until it gives nothing; the names of what was removed."""
    removed: list[str] = []
    for _ in range(ROUNDS):
        abandoned = left_behind(work)
        if not abandoned:
            break
        removed += [container.name for container in abandoned]
        remove(abandoned)
        time.sleep(0.2)
    return list(dict.fromkeys(removed))


def remove(chosen: list[LeftContainer]) -> None:
    """Remove containers whether they run or not."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        docker("rm", "--force", "--volumes", *(container.id for container in chosen))


def clear(work: str) -> tuple[list[str], list[dict]]:
    """Sweep; the names of what was removed, and as `Container.described` what still runs and is not this run's to end.

    A container whose agent lives may be about to end with it: that is waited for, for a while.
    """
    removed = sweep(work)
    deadline = time.monotonic() + limit(WAIT_S)
    while True:
        others = [container for container in containers() if container.runs]
        if (
            not others
            or all(container.abandoned or not container.agent for container in others)
            or time.monotonic() > deadline
        ):
            return removed, [container.described() for container in others]
        time.sleep(0.5)
        removed += sweep(work)
