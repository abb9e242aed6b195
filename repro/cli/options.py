"""The options that several tasks share, declared once: a task takes a group of them as one parameter.

Their texts are in `repro.cli.settings.OPTIONS`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from repro.images.runtime import check_runtime
from repro.images.stack import AnyStack, Libraries
from repro.runs.record import RUNS
from repro.utils.errors import PlanError
from repro.utils.printable import one_line

LOCAL = ("BASELINE_PYTHON", "CUBLAS", "CUDNN", "IMAGE", "JOBS", "STACK")
"""Options that mean something on one machine only."""
REMOTE = ("LAUNCHER", "SIDE_BY_SIDE")
"""Options that mean something on a cluster only."""
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
        """Refuse a launcher that there is not."""
        if values["launcher"]:
            from repro.launch.select import check_launcher

            check_launcher(values["launcher"])


@dataclass(frozen=True, kw_only=True)
class RunOptions(AttemptOptions):
    """The same, and the run to go on with."""

    run: str | None = None


@dataclass(frozen=True, kw_only=True)
class LibraryOptions:
    """What libraries a task on this machine's GPUs uses."""

    stack: AnyStack | None = None
    cublas: str | None = None
    cudnn: str | None = None

    def libraries(self, cupti: str | None = None, baseline_python: str | None = None) -> Libraries:
        """The libraries that were named, and those that other options of a task name."""
        return Libraries(self.cublas, self.cudnn, cupti, baseline_python)


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """Where the build of an image downloads from, in place of the pinned places."""

    nccl: Nccl | None = None
    base: str | None = None
    debian: str | None = None
    debian_security: str | None = None
    ca: str | None = None

    @staticmethod
    def check(values: Mapping[str, Any]) -> None:
        """Refuse a file of certificates that there is not."""
        if values["ca"] and not Path(values["ca"]).is_file():
            raise PlanError(
                f"CA={one_line(values['ca'])}: no such file; it has the CA certificates that the build trusts"
            )


@dataclass(frozen=True, kw_only=True)
class RuntimeOptions:
    """What ranks run with."""

    runtime: str | None = None
    image: str | None = None

    @staticmethod
    def check(values: Mapping[str, Any]) -> None:
        """Refuse a runtime that there is not; a run that is gone on with may be a cluster's."""
        if values["runtime"]:
            check_runtime(values["runtime"], here=not (values["cluster"] or values["run"]))


def refuse_misplaced(
    given: Collection[str], cluster: str | None, local: Collection[str] = LOCAL, remote: Collection[str] = REMOTE
) -> None:
    """PlanError for options, out of those that were `given`, that mean nothing where the ranks run: on the nodes of a cluster, or on this machine."""
    wrong = ", ".join(name for name in (local if cluster else remote) if name in given)
    if wrong and cluster:
        raise PlanError(f"{wrong}: for runs on one machine; leave it out with CLUSTER")
    if wrong:
        raise PlanError(f"{wrong}: for runs on the nodes of a cluster; name it with CLUSTER")
