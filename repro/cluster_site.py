"""A cluster as the place of a run: what is planned for it, how its attempts are started, and what it is."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from repro.cases import Case
from repro.cluster import Cluster, load_cluster
from repro.cluster_launch import cluster_attempts
from repro.cluster_work import dry_lines
from repro.delivery import TRAINER, Code
from repro.fit import misfit_on
from repro.fleet import Fleet
from repro.launch import Limits
from repro.plan import SMOKE_PROCESSES, Plan, PlanError, make_plan
from repro.record import Run


@dataclass(frozen=True)
class ClusterSite:
    """A cluster with the code and the port that a run uses there."""

    cluster: Cluster
    code: Code
    port: int

    @classmethod
    def of(cls, name: str, port: int | None, trainer: tuple[str, ...]) -> ClusterSite:
        """By the inventory's name or folder; the last word of `trainer`, if there is one, replaces the trainer."""
        cluster = load_cluster(name)
        return cls(cluster, Code(Path(trainer[-1]) if trainer else TRAINER), port or cluster.port)

    def plan(self, cases: list[Case], scale: str | None, repeats: int | None, fit: tuple[int, ...]) -> Plan:
        """What to run here: published shapes on GPUs, tiny ones on at most four ranks; PlanError as `make_plan`."""
        cluster = self.cluster
        if scale == "published" and not cluster.gpu:
            raise PlanError(f"SCALE=published needs GPUs, and cluster_gpu is empty in {cluster.variables}; SCALE=smoke "
                            "runs on any cluster")  # fmt: skip
        gpus = cluster.world_size if cluster.gpu else 0
        return make_plan(cases, gpus, scale, repeats, fit, processes=min(SMOKE_PROCESSES, cluster.world_size),
                         misfit=misfit_on(cluster))  # fmt: skip

    def dry(self, plan: Plan) -> Iterator[str]:
        """Every command of every node."""
        return dry_lines(self.cluster, self.code, plan.units, spread(plan), self.port)

    @contextlib.contextmanager
    def opened(self, what: str) -> Iterator[Fleet]:
        """The nodes, connected, locked for `what`, checked; ClusterError says what keeps them from taking part."""
        with Fleet(self.cluster, self.code, what, self.port) as fleet:
            yield fleet

    def attempts(self, fleet: Fleet, run: Run, plan: Plan, limits: Limits) -> Callable:
        """What `Bench` needs to start the run's attempts here."""
        return cluster_attempts(fleet, run.id, limits, spread(plan))

    def description(self, fleet: Fleet) -> dict:
        """What a run keeps of the cluster in its environment."""
        cluster = self.cluster
        return {
            "name": cluster.name, "folder": str(cluster.folder), "launcher": cluster.launcher,
            "containers": cluster.containers, "image": vars(cluster.image), "stack": cluster.stack,
            "interface": cluster.interface, "hca": cluster.hca, "code_sha256": self.code.digest,
            "nodes": {name: member.facts for name, member in fleet.members.items()},
        }  # fmt: skip


def spread(plan: Plan) -> bool:
    """Smoke runs go to as many nodes as can be, so that they cross the network; published ones to the fewest."""
    return plan.scale == "smoke"
