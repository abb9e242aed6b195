"""A cluster whose nodes Slurm grants, as the place of a run."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from repro.cluster import ClusterError
from repro.cluster_site import ClusterSite, spread
from repro.launch import Limits
from repro.plan import Plan
from repro.record import Run
from repro.remote import RemoteError
from repro.slurm import COMMAND_S, SlurmError, login
from repro.slurm_attempt import minutes_of, slurm_attempts, slurm_work
from repro.slurm_script import job_script


@dataclass(frozen=True)
class SlurmSite(ClusterSite):
    """A cluster with Slurm: every attempt is a job, and the nodes are those that Slurm gives it."""

    def dry(self, plan: Plan) -> Iterator[str]:
        """The script of every job; nothing is submitted. What only a node can tell stands between @ signs."""
        for unit in plan.units:
            work = slurm_work(self.cluster, self.code, unit, spread(plan), self.port, "<run>", "repeat-1.attempt-1")
            yield f"# {unit.name}: {unit.world_size} ranks, {work.placement.per_node} a node; for sbatch --parsable:"
            yield job_script(work, self.code, minutes_of(self.cluster, Limits()), shown=True)

    @contextlib.contextmanager
    def opened(self, what: str) -> Iterator[str]:
        """The version of Slurm where its commands are; ClusterError if they cannot be run. Nothing is locked."""
        try:
            with login(self.cluster) as place:
                version = place.run(["sbatch", "--version"], timeout=COMMAND_S).stdout.strip()
        except (SlurmError, RemoteError) as error:
            where = "this machine, the host of the inventory's group `login`, or its first node"
            raise ClusterError(f"{self.cluster.name}: Slurm cannot be asked: {error}. Its commands must be on {where}"
                               ) from error  # fmt: skip
        yield version

    def attempts(self, fleet: str, run: Run, plan: Plan, limits: Limits) -> Callable:
        """What `Bench` needs to start the run's attempts as jobs."""
        return slurm_attempts(self.cluster, self.code, limits, spread(plan), self.port, run.id)

    def description(self, fleet: str) -> dict:
        """What a run keeps of the cluster in its environment; its nodes are in the attempts' `command.json`."""
        cluster = self.cluster
        return {
            "name": cluster.name, "folder": str(cluster.folder), "launcher": "slurm", "slurm": fleet,
            "containers": cluster.containers, "image": vars(cluster.image), "stack": cluster.stack,
            "interface": cluster.interface, "hca": cluster.hca, "code_sha256": self.code.digest, "nodes": {},
        }  # fmt: skip
