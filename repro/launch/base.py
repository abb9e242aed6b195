"""What a launcher is: it plans a run for where it starts ranks, shows what it would start, and opens a session there.

`repro.launch.select` finds one by name; `repro.launch.runner` makes a run's attempts through the session that it opens.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

from repro.images.stack import Libraries
from repro.launch.attempt import Attempt, Limits
from repro.planning.plan import Plan, Unit, Wanted
from repro.published.cases import Case
from repro.runs.record import Run

if TYPE_CHECKING:
    from repro.cluster.cluster import Cluster
    from repro.launch.kernels import Kernels

AttemptOf = Callable[[Unit, Path], Attempt]
"""Makes the attempt of a unit in a folder, which exists and is empty."""


@dataclass(frozen=True)
class LaunchOptions:
    """The settings for where and how ranks are started.

    Attributes
    ----------
    cluster : the cluster that holds the nodes, None for this machine.
    port : the rendezvous port, None for the cluster's or, on this machine, a free one.
    trainer : replaces the trainer's command in tests; on a cluster its last word, the script, is what counts.
    stack : the stack of libraries for this machine's GPUs, None to go by the GPU (`repro.images.stack`).
    libraries : newer libraries asked for in that stack.
    attempt_s : after how many seconds an attempt is ended.
    """

    cluster: Cluster | None = None
    port: int | None = None
    trainer: tuple[str, ...] = ()
    stack: str | None = None
    libraries: Libraries = field(default_factory=Libraries)
    attempt_s: float = Limits.total_s


class LaunchSession(ABC):
    """A place that is ready to run attempts, and held for them where others could take it."""

    @abstractmethod
    def attempts(self, run: Run, plan: Plan, limits: Limits) -> AttemptOf:
        """What makes the attempts of a run."""

    @abstractmethod
    def environment(self, plan: Plan) -> dict:
        """What a new run of this plan records of this machine and of where its ranks run."""

    @abstractmethod
    def kernels(self, plan: Plan, recorded: dict) -> Kernels | None:
        """How the GPUs that ranks of this plan get compute, compared with the CPU; None for a plan without GPUs.

        A run begins or goes on only after this. `recorded` is the environment of a run that goes on, else empty.
        KernelError, with what to do, where nothing can be compared.
        """

    def missing_data(self, plan: Plan) -> list[str]:
        """What DATA names that ranks of this plan would not find, a line for each; as far as it is known before."""
        return []

    @abstractmethod
    def check_unchanged(self, environment: dict) -> None:
        """ClusterError if the ranks of a run with this recorded environment would not run where they did."""


class Launcher(ABC):
    """One way to start ranks. A subclass is found by its `name` once `repro.launch.select.register` knows it."""

    name: ClassVar[str]
    sees_this_machine: ClassVar[bool] = False
    """Whether its ranks see the files of this machine."""

    @classmethod
    @abstractmethod
    def of(cls, options: LaunchOptions) -> Self:
        """The launcher with these options; PlanError or ClusterError if it cannot work with them."""

    @abstractmethod
    def plan(self, cases: Sequence[Case], wanted: Wanted) -> Plan:
        """What to run here of these cases; PlanError as `repro.planning.plan.make_plan` has it."""

    def data_refusal(self, path: str) -> str | None:
        """Why ranks could not see a path that DATA names, as far as that is known before they are reached, or None."""
        return None

    @abstractmethod
    def dry_run(self, plan: Plan) -> Iterator[str]:
        """The lines of every command that a plan's units would be started with; nothing is started or connected to."""

    @abstractmethod
    def open(self, command: str) -> AbstractContextManager[LaunchSession]:
        """Get ready for a run; `command` says to others who want the place what it is used for.

        ClusterError names what keeps a run from starting.
        """
