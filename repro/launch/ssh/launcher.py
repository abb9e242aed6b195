"""A cluster as the place of a run: what is planned for it, what it is, and how attempts are started there."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from repro.cluster.cluster import LAUNCHERS, Cluster, load_cluster
from repro.cluster.fingerprint import CLOCK, Difference, Fingerprint, FingerprintError, as_json, differences, gather
from repro.cluster.inventory import ClusterError
from repro.launch.local import Limits
from repro.launch.placement import misfit_on
from repro.launch.ssh.attempt import cluster_attempts
from repro.launch.ssh.code_upload import Code
from repro.launch.ssh.nodes import NodePool
from repro.launch.ssh.work import dry_lines
from repro.planning.plan import SMOKE_PROCESSES, Plan, PlanError, make_plan
from repro.published.cases import Case
from repro.runs.record import Run
from repro.utils.paths import TRAINER


@dataclass(frozen=True)
class SshLauncher:
    """A cluster with the code and the port that a run uses there."""

    cluster: Cluster
    code: Code
    port: int

    @classmethod
    def of(cls, name: str, port: int | None, trainer: tuple[str, ...], launcher: str | None = None) -> SshLauncher:
        """By the inventory's name or folder; the last word of `trainer`, if there is one, replaces the trainer.

        `launcher` replaces the inventory's; with "slurm" the site is a `repro.launch.slurm.site.SlurmSite`.
        """
        from repro.launch.slurm.site import SlurmLauncher

        cluster = load_cluster(name)
        if (launcher or cluster.launcher) not in LAUNCHERS:
            raise ClusterError(f"LAUNCHER={launcher}: it is {' or '.join(LAUNCHERS)}")
        kind = SlurmLauncher if (launcher or cluster.launcher) == "slurm" else cls
        return kind(cluster, Code(Path(trainer[-1]) if trainer else TRAINER), port or cluster.port)

    def plan(
        self,
        cases: list[Case],
        scale: str | None,
        repeats: int | None,
        fit: tuple[int, ...],
        iterations: int | None = None,
    ) -> Plan:
        """What to run here: published shapes on GPUs, tiny ones on at most four ranks; PlanError as `make_plan`."""
        cluster = self.cluster
        if scale == "published" and not cluster.gpu:
            raise PlanError(
                f"SCALE=published needs GPUs, and cluster_gpu is empty in {cluster.variables}; SCALE=smoke "
                "runs on any cluster"
            )
        gpus = cluster.world_size if cluster.gpu else 0
        return make_plan(
            cases,
            gpus,
            scale,
            repeats,
            fit,
            processes=min(SMOKE_PROCESSES, cluster.world_size),
            iterations=iterations,
            misfit=misfit_on(cluster),
        )

    def dry(self, plan: Plan) -> Iterator[str]:
        """Every command of every node."""
        return dry_lines(self.cluster, self.code, plan.units, spread(plan), self.port)

    @contextlib.contextmanager
    def opened(self, what: str) -> Iterator[SshSession]:
        """The nodes, connected, locked for `what`, checked and compared; ClusterError says what keeps a run away."""
        with NodePool(self.cluster, self.code, what, self.port) as pool:
            for name, member in pool.members.items():
                if member.removed:
                    print(f"{name}: removed what an earlier run left: {', '.join(member.removed)}", file=sys.stderr)
            yield SshSession(self, pool, self.fingerprints())

    def fingerprints(self) -> dict[str, Fingerprint]:
        """What each node is; ClusterError if one cannot be asked, or if nodes differ."""
        try:
            found = gather(self.cluster)
        except FingerprintError as error:
            raise ClusterError(str(error)) from error
        apart = [each for each in differences(found, self.cluster.accepted) if not each.accepted]
        if apart:
            raise ClusterError(_lines("the nodes are not equal", apart, self.cluster))
        return found


@dataclass(frozen=True)
class SshSession:
    """A cluster whose nodes are held for a run."""

    site: SshLauncher
    pool: NodePool
    fingerprints: dict[str, Fingerprint]

    def attempts(self, run: Run, plan: Plan, limits: Limits) -> Callable:
        """What `Bench` needs to start the run's attempts here."""
        return cluster_attempts(self.pool, run.id, limits, spread(plan))

    def environment(self) -> dict:
        """What a run keeps of the nodes in its environment, in place of what is known of the controller alone."""
        cluster = self.site.cluster
        described = {
            "name": cluster.name,
            "folder": str(cluster.folder),
            "launcher": self.launcher(),
            "containers": cluster.containers,
            "image": dict(vars(cluster.image)),
            "stack": cluster.stack,
            "interface": cluster.interface,
            "hca": cluster.hca,
            "code_sha256": self.site.code.digest,
            "hosts": self.hosts(),
            "fingerprints": as_json(cluster, self.fingerprints),
        }
        return {"gpus": [gpu for each in self.fingerprints.values() for gpu in _gpus(each)], "cluster": described}

    def hosts(self) -> list[str]:
        """The nodes' own names, as ranks on them tell."""
        return [member.facts["host"] for member in self.pool.members.values()]

    def launcher(self) -> str:
        """What starts the ranks."""
        return "ssh"

    def check_unchanged(self, environment: dict) -> None:
        """ClusterError if a node is another than when a run was begun, whose environment this is."""
        accepted = [*self.site.cluster.accepted, CLOCK]
        apart = []
        for node, before in environment["cluster"]["fingerprints"]["nodes"].items():
            if node in self.fingerprints:
                pair = {f"{node} then": Fingerprint(**before), f"{node} now": self.fingerprints[node]}
                apart += [each for each in differences(pair, accepted) if not each.accepted]
        if apart:
            raise ClusterError(_lines("the nodes are not what they were as the run began", apart, self.site.cluster))


def _gpus(fingerprint: Fingerprint) -> list[dict]:
    """A node's GPUs, as `repro.launch.host_environment.gpus` gives those of one machine."""
    fields = fingerprint.fields
    gpu = {
        "name": fields.get("gpu.model", ""),
        "driver_version": fields.get("gpu.driver", ""),
        "memory.total": fields.get("gpu.memory", "").removesuffix(" MiB"),
    }
    return [gpu] * int(fields.get("gpu.count", 0))


def _lines(what: str, apart: list[Difference], cluster: Cluster) -> str:
    shown = [
        f"  {each.field}: " + "; ".join(f"{', '.join(nodes)}: {value}" for value, nodes in each.values.items())
        for each in apart
    ]
    return "\n".join(
        [f"{what}:", *shown, f"Make them so, or name the fields in cluster_accepted_differences in {cluster.variables}"]
    )


def spread(plan: Plan) -> bool:
    """Smoke runs go to as many nodes as can be, so that they cross the network; published ones to the fewest."""
    return plan.scale == "smoke"
