"""A cluster whose nodes Slurm grants as a launcher."""

from __future__ import annotations

import secrets
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from repro.cluster.fingerprint import Fingerprint
from repro.cluster.inventory import ClusterError
from repro.cluster.ssh import RemoteError
from repro.launch.attempt import Event, Interrupts, Limits, interruptible
from repro.launch.base import AttemptOf, LaunchSession, Places
from repro.launch.kernels import Kernels, precisions_of
from repro.launch.nodes.attempt import NotStarted
from repro.launch.nodes.target import ClusterLauncher, spread
from repro.launch.nodes.work import NodeWork, dry_hosts, work_of
from repro.launch.select import register
from repro.launch.slurm.allocation import Allocation
from repro.launch.slurm.attempt import minutes_of, size_of, slurm_attempts
from repro.launch.slurm.batch_script import fill, work_of_step
from repro.launch.slurm.client import COMMAND_S, SlurmError, login
from repro.launch.slurm.jobs import Jobs, Size
from repro.planning.datasets import Dataset
from repro.planning.program_data import own_files
from repro.runs.description import BaselineProgram
from repro.runs.environment import Environment
from repro.runs.plan import Plan
from repro.runs.record import Run
from repro.runs.unit import Unit
from repro.utils.errors import PlanError


@register
@dataclass(frozen=True)
class SlurmLauncher(ClusterLauncher):
    """Runs each attempt in a job, which has the nodes that Slurm grants."""

    name = "slurm"

    def dry_run(self, plan: Plan) -> Iterator[str]:
        """The script of each job, and every command of every node; what only a node knows is in angle brackets."""
        jobs = self._jobs("<run>", plan)
        if self.target.cluster.runtime.whole_step:
            yield "# Pyxis is untested: no site with that plugin of Slurm has run these commands"
        if self.target.cluster.slurm.allocation == "run":
            yield "# one job for all of them; for sbatch --parsable:"
            yield jobs.request("all attempts", jobs.largest).script(shown=True)
        for unit in plan.units:
            work = self._work(unit, plan, jobs.run)
            yield f"# {unit.name}: {unit.world_size} ranks, {work.placement.per_node} per node"
            request = jobs.request(unit.name, size_of(self.target.cluster, work))
            if self.target.cluster.slurm.allocation == "attempt":
                yield "# for sbatch --parsable:"
                yield request.script(shown=True)
            made = work_of_step(request, work)
            for index, (node, order) in enumerate(made.orders(dry_hosts(work)).items()):
                yield f"# on {node}, or the node that Slurm grants in its place:"
                yield shlex.join(fill(order["argv"], 1, index))

    @contextmanager
    def open(self, command: str) -> Iterator[SlurmSession]:
        """Slurm's commands found; nothing is locked, and no node is reached but through a job."""
        cluster = self.target.cluster
        try:
            with login(cluster) as place:
                version = place.run(["sbatch", "--version"], timeout=COMMAND_S).stdout.strip()
        except (SlurmError, RemoteError) as error:
            where = "this machine, the host of the inventory's group `login`, or its first node"
            raise ClusterError(
                f"{cluster.name}: Slurm cannot be asked: {error}. Its commands must be on {where}"
            ) from error
        jobs = self._jobs(f"{cluster.name}-{secrets.token_hex(4)}")
        try:
            yield SlurmSession(self, jobs, version)
        finally:
            jobs.close()

    def _jobs(self, run: str, plan: Plan | None = None) -> Jobs:
        target = self.target
        minutes = minutes_of(target.cluster, target.attempt_s, bool(target.cluster.gpu))
        compares, asks = not target.replaced, not target.baseline_replaced
        jobs = Jobs(
            target.cluster, target.code, port=target.port, run=run, minutes=minutes, compares=compares, asks=asks
        )
        if plan:
            jobs.largest = self.largest(plan)
        return jobs

    def largest(self, plan: Plan) -> Size:
        """The size of a job in which every attempt of a plan could run."""
        sizes = [size_of(self.target.cluster, self._work(unit, plan, "")) for unit in plan.units]
        return Size(max(size.nodes for size in sizes), max(size.gpus for size in sizes))

    def _work(self, unit: Unit, plan: Plan, run: str) -> NodeWork:
        target = self.target
        return work_of(
            target.cluster,
            target.code,
            unit=unit,
            spread=spread(plan),
            port=target.port,
            run=run,
            attempt="repeat-1.attempt-1",
        )


@dataclass(frozen=True)
class SlurmSession(LaunchSession):
    """A cluster with Slurm during a run; what an attempt's nodes were is in its `fingerprints.json`."""

    launcher: SlurmLauncher
    jobs: Jobs
    version: str

    def attempts(self, run: Run, plan: Plan, limits: Limits) -> AttemptOf:
        self.jobs.run, self.jobs.largest = run.id, self.launcher.largest(plan)
        self.jobs.precisions = precisions_of(plan)
        return slurm_attempts(self.jobs, limits, spread(plan))

    def side_by_side(self, plan: Plan) -> Places:
        """PlanError: Slurm chooses the nodes of a job, and may let its jobs share the network with others."""
        raise PlanError(
            "under Slurm attempts run one at a time, since Slurm decides which nodes and which jobs run at the same time"
        )

    def kernels(self, plan: Plan, recorded: Environment | None) -> Kernels | None:
        """Of the nodes of a job as large as this plan's largest; other nodes are compared before they get an attempt."""
        if plan.device != "cuda":
            return None
        with self._job(plan) as allocation:
            return self.jobs.compared(allocation, precisions_of(plan))

    def baselines(self, plan: Plan) -> BaselineProgram:
        """With the versions on the nodes of a job as large as this plan's largest; later jobs are held against these."""
        with self._asked(plan) as (allocation, interrupts):
            versions_by_node = self.jobs.baselines_on(allocation, interrupts)
        return self.launcher.target.baseline_program(plan.variants, versions_by_node)

    def bring(self, plan: Plan, datasets: Sequence[Dataset]) -> None:
        """To the nodes of a job as large as this plan's largest; those of later jobs get them before an attempt.

        ClusterError names a node that cannot have them.
        """
        self.jobs.datasets = tuple(datasets)
        if datasets:
            with self._asked(plan) as (allocation, interrupts):
                for unit in plan.units:
                    self.jobs.bring(allocation, unit.config, interrupts)

    def missing_data(self, plan: Plan) -> list[str]:
        """On the nodes of a job as large as this plan's largest."""
        if not (paths := own_files(plan)):
            return []
        with self._asked(plan) as (allocation, interrupts):
            return self.jobs.missing_data(allocation, paths, interrupts)

    def environment(self, plan: Plan) -> Environment:
        """With what the nodes of a job as large as this plan's largest are; the first attempt may have that job."""
        with self._job(plan) as allocation:
            fingerprints = dict(allocation.fingerprints)
            hosts = [allocation.facts[name]["host"] for name in fingerprints]
        return self.launcher.target.environment(self.version, hosts, fingerprints)

    def check_unchanged(self, environment: Environment) -> None:
        """Nothing is refused yet: each job's nodes are held against these as it starts."""
        nodes = environment.nodes
        self.jobs.fingerprints |= {node: Fingerprint(**fields) for node, fields in nodes.items()}

    @contextmanager
    def _asked(self, plan: Plan) -> Iterator[tuple[Allocation, Interrupts]]:
        """The same as `_job` for what may be interrupted; ClusterError also for a NotStarted inside."""
        try:
            with self._job(plan) as allocation, interruptible() as interrupts:
                yield allocation, interrupts
        except NotStarted as error:
            raise ClusterError(f"{self.jobs.cluster.name}: {error}") from error

    @contextmanager
    def _job(self, plan: Plan) -> Iterator[Allocation]:
        """A job for the largest attempt of a plan, left for the next one; ClusterError says why there is none."""
        self.jobs.largest = self.launcher.largest(plan)
        shown: list[str] = []

        def show(event: Event) -> None:
            if shown[-1:] != [event["text"]]:
                shown.append(event["text"])
                print(event["text"], file=sys.stderr)

        try:
            with interruptible() as interrupts:
                allocation = self.jobs.take("nodes of a run", self.jobs.largest, None, show, interrupts)
        except NotStarted as error:
            raise ClusterError(f"{self.jobs.cluster.name}: {error}") from error
        try:
            yield allocation
        except BaseException:
            allocation.cancel()
            raise
        self.jobs.give_back(allocation, spare=True)
