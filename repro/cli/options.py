"""The options that several tasks share, declared once: a task takes a group of them as one parameter.

Their texts are in `repro.cli.settings.OPTIONS`.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from repro.cli.settings import OPTIONS, BaselinePython, FileThere, ImageName, Option, PathThere, no_file
from repro.images.runtime import RUNTIMES, check_runtime
from repro.images.stack import IMAGE_STACKS, AnyStack, Libraries, sif_path
from repro.runs.record import RUNS, Run
from repro.utils.errors import PlanError
from repro.utils.paths import in_home

LOCAL = ("BASELINE_PYTHON", "CUBLAS", "CUDNN", "IMAGE", "JOBS", "STACK")
"""Options that mean something on one machine only."""
REMOTE = ("LAUNCHER", "SIDE_BY_SIDE")
"""Options that mean something on a cluster only."""
HERE = {"baseline_python": BaselinePython, "cupti": PathThere}
"""Options whose kind holds where ranks run on this machine: on a cluster they are paths of its nodes, or refused."""
Nccl = Literal["2.7.3", "2.7.8"]


@dataclass(frozen=True, kw_only=True)
class AttemptOptions:
    """Where runs are kept, where and how their attempts are started, and when one is given up."""

    runs: Path = RUNS
    retries: int = 0
    stall_timeout: int | None = None
    attempt_timeout: int | None = None
    port: int | None = None
    cluster: str | None = None
    launcher: str | None = None
    side_by_side: bool | None = None

    @staticmethod
    def check(values: Mapping[str, Any]) -> None:
        """Refuse what there is not or means nothing where the ranks run, and a port for several attempts."""
        if values["launcher"]:
            from repro.launch.select import check_launcher

            check_launcher(values["launcher"])
        before = Run.open(values["run"], values["runs"], option="RUN") if values.get("run") else None
        cluster = cluster_of(before, values["cluster"])
        refuse_misplaced(values, cluster)
        for name, kind in () if cluster else HERE.items():
            Option(name, kind, None, OPTIONS[name]).check(values.get(name))
        if values["port"] and (values.get("jobs") or 1) > 1:
            raise PlanError(f"JOBS={values['jobs']}: PORT is the port of one attempt; leave one of the two out")


@dataclass(frozen=True, kw_only=True)
class RunOptions(AttemptOptions):
    """The same, and the run to go on with."""

    run: str | None = None


@dataclass(frozen=True, kw_only=True)
class LibraryOptions:
    """What libraries a task on this machine's GPUs uses."""

    stack: AnyStack | None = None
    cublas: PathThere | None = None
    cudnn: PathThere | None = None

    def libraries(self, cupti: str | None = None, baseline_python: str | None = None) -> Libraries:
        """The libraries that were named, and those that other options of a task name."""
        return Libraries(self.cublas, self.cudnn, cupti, baseline_python)


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """Where the build of an image downloads from, in place of the pinned places."""

    nccl: Nccl | None = None
    base: ImageName | None = None
    debian: str | None = None
    debian_security: str | None = None
    ca: FileThere | None = None


@dataclass(frozen=True, kw_only=True)
class RuntimeOptions:
    """What ranks run with."""

    runtime: str | None = None
    image: ImageName | None = None

    @staticmethod
    def check(values: Mapping[str, Any]) -> None:
        """Refuse a runtime that there is not, or whose tool or image's file is missing here.

        A run that is gone on with may be a cluster's.
        """
        name, here = values["runtime"], not (values["cluster"] or values["run"])
        if name:
            check_runtime(name, here)
        if not (name and here and RUNTIMES[name].from_file) or values.get("dry_run"):
            return
        image = values["image"]
        if image and (fault := no_file(in_home(image))):
            raise PlanError(f"IMAGE={image}: {fault}; `make image FORMAT=sif` writes one")
        if not shutil.which(RUNTIMES[name].tool):
            raise PlanError(
                f"RUNTIME={name}: {RUNTIMES[name].tool} is not installed here; install it, or leave RUNTIME out"
            )
        # Without STACK, a bench picks the stack for the GPUs it finds; `rehearse` has no STACK and runs the first image.
        stack = values.get("stack", IMAGE_STACKS[0])
        stacks = IMAGE_STACKS if stack is None else [stack if stack in IMAGE_STACKS else IMAGE_STACKS[0]]
        faults = [f"{path}: {fault}" for path in map(sif_path, stacks) if (fault := no_file(path))]
        if not image and len(faults) == len(stacks):
            raise PlanError(f"RUNTIME={name}: {faults[0]}; `make image FORMAT=sif` writes it")


def refuse_misplaced(
    values: Mapping[str, Any], cluster: str | None, local: Collection[str] = LOCAL, remote: Collection[str] = REMOTE
) -> None:
    """PlanError for options with a value that mean nothing where the ranks run: on the nodes of a cluster, or on this machine."""
    wrong = ", ".join(name for name in (local if cluster else remote) if values.get(name.lower()) not in (None, ""))
    if wrong and cluster:
        raise PlanError(f"{wrong}: for runs on one machine; leave it out with CLUSTER")
    if wrong:
        raise PlanError(f"{wrong}: for runs on the nodes of a cluster; name it with CLUSTER")


def cluster_of(before: Run | None, cluster: str | None) -> str | None:
    """The cluster that was named, or that of the run to go on with, which must be the same; None for this machine."""
    if before is None:
        return cluster or None
    recorded = before.description().environment.cluster or {}
    if cluster and Path(cluster).name != recorded.get("name"):
        where = f"on cluster {recorded['name']}" if recorded else "on one machine"
        raise PlanError(f"RUN={before.id} was begun {where}; go on with it there, or leave RUN out")
    return cluster or recorded.get("folder")
