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
from repro.planning.plan import Wanted
from repro.planning.schedule import Block
from repro.published.cases import Case
from repro.published.trainer_config import TrainerConfig
from repro.runs.environment import Environment
from repro.runs.failures import Failure
from repro.runs.plan import Plan
from repro.runs.record import RUNS, Run
from repro.runs.unit import Unit
from repro.utils.errors import PlanError

if TYPE_CHECKING:
    from repro.cluster.cluster import Cluster
    from repro.launch.kernels import Kernels
    from repro.planning.datasets import Dataset
    from repro.runs.description import BaselineProgram

AttemptOf = Callable[[Unit, Path], Attempt]
"""Makes the attempt of a unit in a folder, which exists and is empty."""


class Places(ABC):
    """What attempts that run at the same time have each for themselves: GPUs of this machine, or nodes of a cluster.

    Attributes
    ----------
    are_nodes : whether the names are those of nodes, which attempts record.
    """

    are_nodes: ClassVar[bool] = False

    def block(self, unit: Unit, repeat: int) -> Block:
        """The place that a repeat of a unit takes, and for how long, as far as that decides over the order.

        Where all are alike, they start in the order of their plan.
        """
        return Block(unit.name, repeat)

    @abstractmethod
    def take(self, ranks: int) -> tuple[str, ...] | None:
        """The names of a place for so many ranks; None if it has to be waited for."""

    @abstractmethod
    def give_back(self, names: Sequence[str]) -> None:
        """The attempts that had this place have ended."""


@dataclass(frozen=True)
class LaunchOptions:
    """The settings for where and how ranks are started.

    Attributes
    ----------
    cluster : the cluster that holds the nodes, None for this machine.
    port : the rendezvous port, None for the cluster's or, on this machine, a free one.
    trainer : replaces the trainer's command in tests; on a cluster its last word, the script, is what counts.
    stack : the stack of libraries for this machine's GPUs, None to go by the GPU (`repro.images.stack`).
    baseline : replaces the baselines' command in tests, in the same way.
    libraries : newer libraries asked for in that stack.
    runtime : what ranks of this machine run with, None for the venv or, in a run that goes on, its own.
    image : the image for that, by name, ID or file, None for the one that `make image` makes.
    runs : the folder of runs on this machine.
    attempt_s : after how many seconds an attempt is ended.
    """

    cluster: Cluster | None = None
    port: int | None = None
    trainer: tuple[str, ...] = ()
    stack: str | None = None
    libraries: Libraries = field(default_factory=Libraries)
    runs: Path = RUNS
    attempt_s: float = Limits.total_s
    runtime: str | None = None
    image: str | None = None
    baseline: tuple[str, ...] = ()


class LaunchSession(ABC):
    """A place that is ready to run attempts, and held for them where others could take it."""

    @abstractmethod
    def attempts(self, run: Run, plan: Plan, limits: Limits) -> AttemptOf:
        """What makes the attempts of a run."""

    @abstractmethod
    def environment(self, plan: Plan) -> Environment:
        """What a new run of this plan records of this machine and of where its ranks run."""

    @abstractmethod
    def kernels(self, plan: Plan, recorded: Environment | None) -> Kernels | None:
        """How the GPUs that ranks of this plan get compute, compared with the CPU; None for a plan without GPUs.

        A run begins or goes on only after this. `recorded` is the environment of a run that goes on, else None.
        KernelError, with what to do, where nothing can be compared.
        """

    def baselines(self, plan: Plan) -> BaselineProgram:
        """How the baselines of a plan are started here, with the versions that are; PlanError where they cannot be."""
        raise PlanError("BASELINES: nothing starts them here; use LAUNCHER=ssh or slurm")

    def bring(self, plan: Plan, datasets: Sequence[Dataset]) -> None:
        """Put these data sets of this machine where ranks of a plan find them, as `Launcher.dataset_folder` says.

        PlanError where that cannot be done.
        """
        if datasets:
            names = ", ".join(dataset.folder.name for dataset in datasets)
            raise PlanError(
                f"nothing brings the data sets of this machine ({names}) to the nodes; use LAUNCHER=ssh or slurm"
            )

    def missing_data(self, plan: Plan) -> list[str]:
        """What DATA names that ranks of this plan would not find, a line for each; as far as it is known before."""
        return []

    def side_by_side(self, plan: Plan) -> Places:
        """The places for attempts of a plan that run side by side, each on nodes of its own.

        PlanError with the reason where only one can run at a time.
        """
        raise PlanError("attempts run one at a time here")

    @abstractmethod
    def check_unchanged(self, environment: Environment) -> None:
        """ClusterError if the ranks of a run with this recorded environment would not run where they did."""


class Launcher(ABC):
    """One way to start ranks. A subclass is found by its `name` once `repro.launch.select.register` knows it."""

    name: ClassVar[str]
    sees_this_machine: ClassVar[bool] = False
    """Whether its ranks see the files of this machine."""

    @property
    def gpus(self) -> int:
        """How many GPUs a run may use."""
        return 0

    @property
    def patience(self) -> float:
        """How many times as long as usual its attempts may take, and be silent."""
        return 1.0

    @classmethod
    @abstractmethod
    def of(cls, options: LaunchOptions) -> Self:
        """The launcher with these options; PlanError or ClusterError if it cannot work with them."""

    @abstractmethod
    def plan(self, cases: Sequence[Case], wanted: Wanted) -> Plan:
        """What to run here of these cases; PlanError as `repro.planning.plan.make_plan` has it."""

    def misfit(self, report: str, config: TrainerConfig) -> Failure | None:
        """Why a training on processors cannot be placed here; None if it can."""
        return None

    def data_refusal(self, path: str) -> str | None:
        """Why ranks could not see a path that DATA names, as far as that is known before they are reached, or None."""
        return None

    def trace_refusal(self) -> str | None:
        """Why the kernels of its ranks cannot be traced, or None."""
        return f"make profile: LAUNCHER={self.name} brings no trace back; use LAUNCHER=ssh or slurm"

    def dataset_folder(self, dataset: Dataset) -> str:
        """Where ranks find the files of a data set of this machine."""
        return str(dataset.folder)

    @abstractmethod
    def dry_run(self, plan: Plan) -> Iterator[str]:
        """The lines of every command that a plan's units would be started with; nothing is started or connected to."""

    @abstractmethod
    def open(self, command: str) -> AbstractContextManager[LaunchSession]:
        """Get ready for a run; `command` says to others who want the place what it is used for.

        ClusterError names what keeps a run from starting.
        """
