"""The sessions in which runs were made: a session is a stretch of time on one machine, without a long pause.

Runs of one session share the machine, its driver and libraries, its clocks and temperature, and who else used it. So
they are no independent measurements of what another machine, or the same one on another day, would give.

A run records an anonymous identity of its machine and of the machine's start (`repro.launch.host_environment.identity`).
Older runs recorded neither, and nothing records those of a cluster's nodes: of these the recorded facts are the identity,
which are system, kernel, processor, memory, and the GPUs with their driver and firmware. Two machines that are alike in all
of them count as one, also two nodes, whose names are replaced in kept runs. That can only make sessions fewer, which
decides less. The controller of a cluster is none of its machines: runs over one node at one time are of one session,
whoever started them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from repro.runs.attempts import AttemptRecord
from repro.runs.description import RunDescription
from repro.runs.environment import Environment, RankMachine

PAUSE_S = 6 * 3600.0
"""The longest time without a run within a session, in s. Machines without a recorded identity may be one machine that was
lent and lent again within a working day, so that a shorter pause says little; from 3 to 12 hours the sessions of the kept
runs decide alike."""
FACTS = ("system", "kernel", "cpu", "cpu_count", "memory_mib")
OF_GPU = ("name", "driver_version", "vbios_version", "memory.total")


@dataclass(frozen=True)
class RunSpan:
    """When and where a run was made: Unix times, and what it recorded of its machine."""

    run: str
    began: float
    ended: float
    environment: Environment


def span(run: str, description: RunDescription, attempts: Iterable[AttemptRecord]) -> RunSpan:
    """A run's span, from its creation to the end of its last attempt."""
    ends = (attempt.ended for attempt in attempts)
    return RunSpan(run, description.created, max(ends, default=description.created), description.environment)


def sessions(spans: Iterable[RunSpan]) -> dict[str, str]:
    """The session of each run by the run's name: S1 for the first that began, and so on.

    A run begins another session than the last one on any of its machines if more than PAUSE_S lie between them, or if the
    machine was started again. On nodes of several sessions it is of the first of these.
    """
    last: dict[str, tuple[int, float]] = {}
    by_run: dict[str, int] = {}
    for run_span in sorted(spans, key=lambda run_span: (run_span.began, run_span.run)):
        before = {machine: last[machine] for machine in machines_of(run_span.environment) if machine in last}
        going_on = [session for session, ended in before.values() if run_span.began - ended <= PAUSE_S]
        session = min(going_on, default=len(set(by_run.values())) + 1)
        for machine in machines_of(run_span.environment):
            _session, ended = before.get(machine, (session, run_span.began))
            last[machine] = session, max(ended, run_span.ended)
        by_run[run_span.run] = session
    return {run: f"S{session}" for run, session in by_run.items()}


def machines_of(environment: Environment) -> frozenset[str]:
    """What tells each machine of a run's ranks, and its start, from others: the recorded identity, or recorded facts."""
    gpus = [[gpu.get(name) for name in OF_GPU] for gpu in environment.gpus]
    if environment.cluster:
        nodes = environment.cluster.get("fingerprints", {}).get("nodes", {}).values()
        by_facts = {json.dumps(asdict(RankMachine.of_node(node["fields"]))) for node in nodes}
        return frozenset(by_facts or {json.dumps(gpus)})
    if environment.machine:
        return frozenset((json.dumps([environment.machine["id"], environment.machine["start"]]),))
    return frozenset((json.dumps([[getattr(environment, name) for name in FACTS], gpus]),))
