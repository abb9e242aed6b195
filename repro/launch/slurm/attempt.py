"""How an attempt gets to its nodes as a step of a Slurm job: its nodes taken and compared, the step read and ended."""

from __future__ import annotations

import math
import signal
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from repro.cluster.cluster import Cluster
from repro.cluster.fingerprint import as_json
from repro.launch.attempt import Interrupts, Limits, OnEvent
from repro.launch.nodes.attempt import NodesAttempt
from repro.launch.nodes.follower import AttemptFollower
from repro.launch.nodes.tracing import Tracing
from repro.launch.nodes.work import NodeWork, work_of
from repro.launch.placement import Placement
from repro.launch.slurm.allocation import LOG
from repro.launch.slurm.batch_script import SlurmWork, fill, work_of_step
from repro.launch.slurm.inspection import StepTransport
from repro.launch.slurm.jobs import KERNEL_MINUTES, SPARE_MINUTES, Jobs, Size
from repro.runs.files import FINGERPRINTS
from repro.runs.record import write_json, write_text
from repro.runs.unit import Unit


class SlurmTransport(StepTransport):
    """One attempt of a run, in a job that is taken for it."""

    ends_ranks_by = frozenset({int(signal.SIGTERM)})
    log = LOG

    def __init__(self, unit: Unit, work: NodeWork, folder: Path, jobs: Jobs):
        super().__init__(jobs.code)
        self._unit, self._planned, self._folder, self._jobs = unit, work, folder, jobs

    def traced(self, tracing: Tracing) -> SlurmTransport:
        """The same with a trace of rank 0's kernels."""
        return SlurmTransport(self._unit, replace(self._planned, tracing=tracing), self._folder, self._jobs)

    def prepare(self, on_event: OnEvent, interrupts: Interrupts) -> SlurmWork:
        """Take a job, which may have to be waited for, and hold its nodes against what is known of the run's others."""
        planned = self._planned
        size = size_of(self._jobs.cluster, planned)
        allocation = self._jobs.take(self._unit.name, size, self._folder, on_event, interrupts)
        try:
            write_text(self._folder / "job.sh", allocation.request.script(shown=True))
            write_json(self._folder / FINGERPRINTS, as_json(allocation.request.cluster, allocation.fingerprints))
            self._jobs.refuse_wrong(allocation, self._unit.model, self._unit.program)
            self._jobs.bring(allocation, planned.config, interrupts)
            if planned.baseline:
                self._jobs.baselines_on(allocation, interrupts)
            placement = Placement(allocation.nodes(size.nodes), planned.placement.per_node)
            self._allocation, self._work = allocation, work_of_step(allocation.request, planned, placement)
            argv = {name: order["argv"] for name, order in self.orders().items()}
            commands = {name: fill(words, 0, place) for place, (name, words) in enumerate(argv.items())}
            content = {"job": allocation.number, "nodes": list(argv), "script": "job.sh", "commands": commands}
            write_json(self._folder / "command.json", content)
        except BaseException:
            allocation.keep_log(self._folder)
            allocation.cancel()
            raise
        return self._work

    def stop(self, follower: AttemptFollower) -> None:
        """End the step, take the log of the job, and give that back; one that goes wrong is ended."""
        allocation, step, keeps = self._allocation, self._step, self._jobs.cluster.slurm.allocation == "run"
        well = bool(step) and follower.succeeded
        if step:
            well = allocation.wait(step) if well else keeps and allocation.stop(step)
        allocation.keep_log(self._folder)
        if well:
            self._jobs.give_back(allocation)
        else:
            allocation.cancel()


def size_of(cluster: Cluster, work: NodeWork) -> Size:
    """What an attempt takes: whole nodes, and all GPUs of each if it uses any, so that each job sees its nodes alike."""
    return Size(len(work.placement.nodes), cluster.gpus_per_node if work.config.device == "cuda" else 0)


@dataclass
class SlurmAttempt(NodesAttempt):
    """An attempt on nodes that Slurm chooses."""

    transport: SlurmTransport

    def traced(self, tracing: Tracing) -> SlurmAttempt:
        """The same with a trace of rank 0's kernels in its folder."""
        return replace(self, transport=self.transport.traced(tracing))


def slurm_attempts(jobs: Jobs, limits: Limits, spread: bool) -> Callable[[Unit, Path], SlurmAttempt]:
    """What makes a run's attempts in jobs of Slurm; `spread` uses as many nodes as possible."""

    def attempt_of(unit: Unit, folder: Path) -> SlurmAttempt:
        work = work_of(
            jobs.cluster, jobs.code, unit=unit, spread=spread, port=jobs.port, run=jobs.run, attempt=folder.name
        )
        return SlurmAttempt(SlurmTransport(unit, work, folder, jobs), folder, limits)

    return attempt_of


def minutes_of(cluster: Cluster, total_s: float, on_gpus: bool = False) -> int:
    """The time that a job is given: that of an attempt, and of what comes before it."""
    return cluster.slurm.time_minutes or (math.ceil(total_s / 60) + SPARE_MINUTES + (KERNEL_MINUTES if on_gpus else 0))
