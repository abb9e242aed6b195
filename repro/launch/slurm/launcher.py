"""A cluster whose nodes Slurm grants as a launcher."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from repro.cluster.inventory import ClusterError
from repro.cluster.ssh import RemoteError
from repro.launch.attempt import Limits
from repro.launch.base import AttemptOf, LaunchSession
from repro.launch.kernels import Kernels
from repro.launch.nodes.target import ClusterLauncher, ClusterTarget, Fingerprints, spread
from repro.launch.select import register
from repro.launch.slurm.attempt import minutes_of, slurm_attempts, slurm_work
from repro.launch.slurm.batch_script import job_script
from repro.launch.slurm.client import COMMAND_S, SlurmError, login
from repro.planning.plan import Plan
from repro.runs.record import Run


@register
@dataclass(frozen=True)
class SlurmLauncher(ClusterLauncher):
    """Submits each attempt as a job, which gets the nodes that Slurm grants."""

    name = "slurm"

    def dry_run(self, plan: Plan) -> Iterator[str]:
        """The script of each job; what only a node knows is between @ signs."""
        cluster, code, port = self.target.cluster, self.target.code, self.target.port
        for unit in plan.units:
            work = slurm_work(cluster, code, unit, spread(plan), port, "<run>", "repeat-1.attempt-1")
            yield f"# {unit.name}: {unit.world_size} ranks, {work.placement.per_node} per node; for sbatch --parsable:"
            yield job_script(work, code, minutes_of(cluster, Limits()), shown=True)

    @contextmanager
    def open(self, command: str) -> Iterator[SlurmSession]:
        """Slurm's commands found, and the inventory's nodes compared as far as SSH reaches them; nothing is locked."""
        cluster = self.target.cluster
        try:
            with login(cluster) as place:
                version = place.run(["sbatch", "--version"], timeout=COMMAND_S).stdout.strip()
        except (SlurmError, RemoteError) as error:
            where = "this machine, the host of the inventory's group `login`, or its first node"
            raise ClusterError(
                f"{cluster.name}: Slurm cannot be asked: {error}. Its commands must be on {where}"
            ) from error
        try:
            fingerprints = self.target.fingerprints()
        except ClusterError as error:
            print(f"{error}\nThe run goes on; its verdicts will not take its nodes for known.", file=sys.stderr)
            fingerprints = {}
        yield SlurmSession(self.target, fingerprints, version)


@dataclass(frozen=True)
class SlurmSession(LaunchSession):
    """A cluster with Slurm during a run; which nodes an attempt had is in its `command.json`."""

    target: ClusterTarget
    fingerprints: Fingerprints
    version: str

    def attempts(self, run: Run, plan: Plan, limits: Limits) -> AttemptOf:
        return slurm_attempts(self.target.cluster, self.target.code, limits, spread(plan), self.target.port, run.id)

    def kernels(self, plan: Plan, recorded: dict) -> Kernels | None:
        return None

    def environment(self, plan: Plan) -> dict:
        """With the hosts of which it is known what they are."""
        return self.target.environment(self.version, list(self.fingerprints), self.fingerprints)

    def check_unchanged(self, environment: dict) -> None:
        self.target.check_unchanged(environment, self.fingerprints)
