"""Starts the programs of checks, such as the one that compares operators with the CPU, here or on nodes that are held."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from repro.launch.attempt import Attempt, Limits, Outcome
from repro.launch.local import LocalAttempt
from repro.utils.paths import TRAINER_PYTHON

if TYPE_CHECKING:
    from repro.cluster.cluster import Node
    from repro.launch.ssh.nodes import NodePool


class Program(Protocol):
    """A program of a check that is ready to start."""

    def run(self, on_event: Callable[[dict], None]) -> Outcome: ...


AttemptOf = Callable[[dict, Path], Program]
"""Makes such a program from its configuration and the folder for its files."""


def local_attempts(program: Path, limits: Limits, environment: dict, python: str = str(TRAINER_PYTHON)) -> AttemptOf:
    """The maker of attempts of a program on this machine; `environment` is that of the stack."""
    return lambda config, folder: LocalAttempt(
        config, folder.resolve(), limits, None, (python, str(program)), environment=environment
    )


class Stoppable:
    """An attempt as a program, which ends with KeyboardInterrupt once `stop` is set."""

    def __init__(self, attempt: Attempt, stop: threading.Event):
        self._attempt, self._stop = attempt, stop

    def run(self, on_event: Callable[[dict], None]) -> Outcome:
        return self._attempt.run(on_event, self._stop)


def on_held_node(pool: NodePool, node: Node, program: Path, limits: Limits, stop: threading.Event) -> AttemptOf:
    """The maker of attempts of one process of a program on a node that a pool holds; the code there must have it.

    Nodes may share the folder of runs, so the node's name is part of each attempt's own.
    """
    from repro.launch.nodes.attempt import NodesAttempt
    from repro.launch.nodes.work import work_of
    from repro.launch.ssh.attempt import SshTransport
    from repro.planning.plan import Unit

    alone = replace(pool.cluster, nodes=(node,))

    def attempt_of(config: dict, folder: Path) -> Program:
        unit = Unit(f"{program.stem} on {node.name}", "", config, {}, 1)
        run, name = folder.parent.name, folder.name
        work = replace(work_of(alone, pool.code, unit, False, pool.port, run, name), script=program.name)
        return Stoppable(NodesAttempt(SshTransport(work, pool), folder, limits), stop)

    return attempt_of
