"""The sessions in which runs were made: a session is a stretch of time on one machine, without a long pause.

Runs of one session share the machine, its driver and libraries, its clocks and temperature, and who else used it. So
they are no independent measurements of what another machine, or the same one on another day, would give.

A run records an anonymous identity of its machine and of the machine's start (`repro.launch.host_environment.identity`).
Older runs recorded neither. Of these the facts that they did record are the identity: system, kernel,
processor, memory, and the GPUs with their driver and firmware. Two machines that are alike in all of them count as one.
That can only make sessions fewer, which decides less.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from repro.runs.attempts import AttemptRecord
from repro.runs.description import RunDescription
from repro.runs.environment import Environment

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

    A run begins another session than the last one on its machine if more than PAUSE_S lie between them, or if the machine
    was started again.
    """
    last: dict[tuple[str, ...], tuple[str, float]] = {}
    by_run: dict[str, str] = {}
    for run_span in sorted(spans, key=lambda run_span: (run_span.began, run_span.run)):
        key = machine_of(run_span.environment)
        session, ended = last.get(key, ("", 0.0))
        if not session or run_span.began - ended > PAUSE_S:
            session, ended = f"S{len(set(by_run.values())) + 1}", run_span.began
        last[key] = session, max(ended, run_span.ended)
        by_run[run_span.run] = session
    return by_run


def machine_of(environment: Environment) -> tuple[str, ...]:
    """What tells the machine of a run, and its start, from others: the recorded identity, or the facts of older runs."""
    if environment.machine:
        return environment.machine["id"], environment.machine["start"]
    gpus = [[gpu.get(name) for name in OF_GPU] for gpu in environment.gpus]
    nodes = sorted((environment.cluster or {}).get("hosts", ()))
    return (json.dumps([[getattr(environment, name) for name in FACTS], gpus, nodes]),)
