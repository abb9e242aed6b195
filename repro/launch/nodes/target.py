"""A cluster as the target of a launcher: what is planned for it, what its nodes are, and what a run records of it."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from repro.cluster.cluster import Cluster, baseline_conflict
from repro.cluster.fingerprint import (
    FieldDifference,
    Fingerprint,
    FingerprintError,
    Over,
    as_json,
    changes,
    gather,
    unaccepted,
)
from repro.cluster.inventory import ClusterError
from repro.launch.attempt import Limits
from repro.launch.base import Launcher, LaunchOptions
from repro.launch.host_environment import capture
from repro.launch.nodes.baselines import unequal
from repro.launch.nodes.code_upload import UploadedCode
from repro.launch.nodes.datasets import folder_on_nodes
from repro.launch.nodes.libraries import MODERN
from repro.launch.placement import misfit_on, unplaced
from repro.planning.baselines import lacking
from repro.planning.datasets import Dataset
from repro.planning.plan import Wanted, make_plan
from repro.planning.profiling import FOR_GPUS
from repro.planning.trainer_config import SMOKE_PROCESSES
from repro.published.cases import Case
from repro.published.trainer_config import TrainerConfig
from repro.runs.description import BaselineProgram
from repro.runs.environment import Environment, RankMachine
from repro.runs.failures import Failure
from repro.runs.plan import PUBLISHED, SMOKE, Plan
from repro.runs.unit import TF32
from repro.utils.errors import PlanError
from repro.utils.paths import TRAINER

Fingerprints = dict[str, Fingerprint]


@dataclass(frozen=True)
class ClusterTarget:
    """A cluster, with the code and the port that runs use there.

    `replaced` and `baseline_replaced` are whether the trainer and the baselines are other programs than the project's;
    an attempt is ended after `attempt_s` seconds.
    """

    cluster: Cluster
    code: UploadedCode
    port: int
    replaced: bool = False
    attempt_s: float = Limits.total_s
    baseline_replaced: bool = False

    @classmethod
    def of(cls, options: LaunchOptions, launcher: str) -> ClusterTarget:
        """ClusterError if no cluster is named; `launcher` is the one that wants it."""
        cluster, trainer, baseline = options.cluster, options.trainer, options.baseline
        if cluster is None:
            raise ClusterError(f"LAUNCHER={launcher} starts ranks on the nodes of a cluster; name it with CLUSTER")
        script = Path(baseline[-1]) if baseline else None
        code = UploadedCode.of(cluster, Path(trainer[-1]) if trainer else TRAINER, script)
        return cls(cluster, code, options.port or cluster.port, bool(trainer), options.attempt_s, bool(baseline))

    def fingerprints(self, over: Over | None = None) -> Fingerprints:
        """What each node is, as `gather` finds it; ClusterError if one cannot be asked, or if nodes differ."""
        try:
            fingerprints = gather(self.cluster, over)
        except FingerprintError as error:
            raise ClusterError(str(error)) from error
        if refused := unaccepted(fingerprints, self.cluster.accepted):
            raise ClusterError(_lines("the nodes are not equal", refused, self.cluster))
        return fingerprints

    def environment(self, launcher: str, hosts: list[str], fingerprints: Fingerprints) -> Environment:
        """What a new run records of the controller and of the nodes; `hosts` are the names that nodes have themselves."""
        cluster = self.cluster
        described = {
            "name": cluster.name,
            "folder": str(cluster.folder),
            "launcher": launcher,
            "runtime": cluster.runtime.name,
            "containers": cluster.runtime.in_image,
            "image": dict(vars(cluster.image)),
            "stack": cluster.stack,
            "interface": cluster.interface,
            "hca": cluster.hca,
            "code_sha256": self.code.digest,
            "environment": dict(cluster.environment),
            "prologue": list(cluster.prologue),
            "hosts": hosts,
            "fingerprints": as_json(cluster, fingerprints),
        }
        nodes = [RankMachine.of_node(fingerprint.fields) for fingerprint in fingerprints.values()]
        gpus = tuple(gpu for node in nodes for gpu in node.gpus)
        return replace(capture(), gpus=gpus, machine=None, cluster=described)

    def baseline_program(self, variants: Sequence[str], versions_by_node: Mapping[str, dict]) -> BaselineProgram:
        """How baselines are started, with the versions that nodes have, by their names; ClusterError if these differ."""
        if said := unequal(versions_by_node):
            raise ClusterError(f"the baselines' environments are not equal: {said}")
        cluster, versions = self.cluster, next(iter(versions_by_node.values()), {})
        if missing := lacking(versions, variants, versions.get("gpus", 1)):
            raise ClusterError(f"cluster_baseline in {cluster.variables} names {cluster.baseline.python}: {missing}")
        command = (cluster.baseline.python, self.code.baseline_script)
        lock = f"docker/{cluster.baseline.lock}.lock" if cluster.baseline.lock else ""
        return BaselineProgram(command, versions, tuple(variants), cluster.baseline.image, lock)

    def check_unchanged(self, environment: Environment, fingerprints: Fingerprints) -> None:
        """ClusterError if a node is not what it was when the run with this recorded environment began."""
        before = {node: Fingerprint(**recorded) for node, recorded in environment.nodes.items()}
        if changed := changes(before, fingerprints, self.cluster.accepted):
            raise ClusterError(_lines("the nodes are not what they were as the run began", changed, self.cluster))


@dataclass(frozen=True)
class ClusterLauncher(Launcher):
    """What launchers over a cluster have in common: their target, and what is planned for it."""

    target: ClusterTarget

    @classmethod
    def of(cls, options: LaunchOptions) -> Self:
        return cls(ClusterTarget.of(options, cls.name))

    @property
    def gpus(self) -> int:
        cluster = self.target.cluster
        return cluster.world_size if cluster.gpu else 0

    @property
    def patience(self) -> float:
        return self.target.cluster.patience

    def plan(self, cases: Sequence[Case], wanted: Wanted) -> Plan:
        """What to run here: published shapes on GPUs, tiny ones on at most four ranks; PlanError as `make_plan`."""
        cluster = self.target.cluster
        if wanted.baselines and not cluster.baseline.python:
            raise PlanError(
                f"BASELINES: {cluster.variables} does not say where nodes have PyTorch; set cluster_baseline: "
                "{lock: baseline}, which `make provision` sets up, or {python: /opt/pytorch/bin/python}, in containers with its image"
            )
        if wanted.baselines and (wrong := baseline_conflict(cluster.runtime_name, cluster.baseline)):
            name, value, should = wrong
            raise PlanError(
                f"BASELINES: {name} in {cluster.variables} is {value!r}, and the runtime is {cluster.runtime_name}: {should}"
            )
        if wanted.scale == PUBLISHED and not cluster.gpu:
            raise PlanError(
                f"SCALE=published needs GPUs, and cluster_gpu is empty in {cluster.variables}; SCALE=smoke "
                "runs on any cluster"
            )
        if wanted.precision == TF32 and cluster.stack != MODERN:
            raise PlanError(
                f"PRECISION=tf32 needs GPUs newer than Turing and stack {MODERN}, and cluster_stack is {cluster.stack} in "
                f"{cluster.variables}"
            )
        return make_plan(
            cases,
            self.gpus,
            wanted,
            processes=min(SMOKE_PROCESSES, cluster.world_size),
            misfit=misfit_on(cluster),
        )

    def misfit(self, report: str, config: TrainerConfig) -> Failure | None:
        return unplaced(self.target.cluster, config.layout.world_size)

    def trace_refusal(self) -> str | None:
        cluster = self.target.cluster
        if not cluster.gpu:
            return f"{FOR_GPUS}, and cluster_gpu is empty in {cluster.variables}"
        if cluster.runtime.whole_step:
            runtime = cluster.runtime.launched_by
            return f"make profile: no compiler is beside ranks that {runtime} starts; set another cluster_runtime"
        return None

    def dataset_folder(self, dataset: Dataset) -> str:
        return folder_on_nodes(self.target.cluster, dataset)

    def data_refusal(self, path: str) -> str | None:
        cluster = self.target.cluster
        if not posixpath.isabs(path):
            return "name it as nodes see it, from / on"
        folder = cluster.data.rstrip("/")
        if cluster.runtime.in_image and not (folder and f"{posixpath.normpath(path)}/".startswith(f"{folder}/")):
            return f"containers see only what is in cluster_data, which is {cluster.data!r} in {cluster.variables}"
        return None


def unreadable_argv(paths: Sequence[str]) -> list[str]:
    """The command that prints those of some paths that a node cannot read, a line for each."""
    return ["sh", "-c", 'for path; do [ -r "$path" ] || printf "%s\\n" "$path"; done', "-", *paths]


def unreadable(printed: Mapping[str, str]) -> list[str]:
    """What is said of paths that DATA names and nodes cannot read, from what that command printed on each node."""
    return [
        f"{node}: there is no {path}, which the published program reads; DATA names it"
        for node, lines in printed.items()
        for path in lines.splitlines()
    ]


def spread(plan: Plan) -> bool:
    """Smoke runs go to as many nodes as possible, so that they cross the network; published ones to the fewest."""
    return plan.scale == SMOKE


def _lines(what: str, unaccepted: list[FieldDifference], cluster: Cluster) -> str:
    shown = [
        f"  {difference.field}: "
        + "; ".join(f"{', '.join(nodes)}: {value}" for value, nodes in difference.values.items())
        for difference in unaccepted
    ]
    return "\n".join(
        [f"{what}:", *shown, f"Make them so, or name the fields in cluster_accepted_differences in {cluster.variables}"]
    )
