"""A cluster whose nodes Slurm grants, as the place of a run."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from repro.cluster.cluster import ClusterError
from repro.cluster.ssh import RemoteError
from repro.launch.local import Limits
from repro.launch.slurm.attempt import minutes_of, slurm_attempts, slurm_work
from repro.launch.slurm.batch_script import job_script
from repro.launch.slurm.client import COMMAND_S, SlurmError, login
from repro.launch.ssh.site import SshLauncher, SshSession, spread
from repro.planning.plan import Plan
from repro.runs.record import Run


@dataclass(frozen=True)
class SlurmLauncher(SshLauncher):
    """A cluster with Slurm: every attempt is a job, and the nodes are those that Slurm gives it."""

    def dry(self, plan: Plan) -> Iterator[str]:
        """The script of every job; nothing is submitted. What only a node can tell stands between @ signs."""
        for unit in plan.units:
            work = slurm_work(self.cluster, self.code, unit, spread(plan), self.port, "<run>", "repeat-1.attempt-1")
            yield f"# {unit.name}: {unit.world_size} ranks, {work.placement.per_node} a node; for sbatch --parsable:"
            yield job_script(work, self.code, minutes_of(self.cluster, Limits()), shown=True)

    @contextlib.contextmanager
    def opened(self, what: str) -> Iterator[SshSession]:
        """Slurm's commands found, and the inventory's nodes compared as far as SSH reaches them; nothing is locked.

        ClusterError if Slurm cannot be asked.
        """
        try:
            with login(self.cluster) as place:
                version = place.run(["sbatch", "--version"], timeout=COMMAND_S).stdout.strip()
        except (SlurmError, RemoteError) as error:
            where = "this machine, the host of the inventory's group `login`, or its first node"
            raise ClusterError(
                f"{self.cluster.name}: Slurm cannot be asked: {error}. Its commands must be on {where}"
            ) from error
        try:
            fingerprints = self.fingerprints()
        except ClusterError as error:
            print(f"{error}\nThe run goes on; its verdicts will not take its nodes for known.", file=sys.stderr)
            fingerprints = {}
        yield SlurmSession(self, None, fingerprints, version)


@dataclass(frozen=True)
class SlurmSession(SshSession):
    """A cluster with Slurm during a run; which nodes an attempt had is in its `command.json`."""

    version: str

    def attempts(self, run: Run, plan: Plan, limits: Limits) -> Callable:
        """What `Bench` needs to start the run's attempts as jobs."""
        return slurm_attempts(self.site.cluster, self.site.code, limits, spread(plan), self.site.port, run.id)

    def hosts(self) -> list[str]:
        """The nodes of which it is known what they are."""
        return list(self.fingerprints)

    def launcher(self) -> str:
        return self.version
