"""The jobs of a run: one for each attempt, or one that is kept for many; their nodes are asked and compared first."""

from __future__ import annotations

import posixpath
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from repro.cluster.cluster import Cluster
from repro.cluster.fingerprint import FieldDifference, Fingerprint, changes, unaccepted
from repro.cluster.ssh import RemoteError
from repro.launch.attempt import Interrupts, OnEvent
from repro.launch.check_programs import ProgramConfig, ProgramOf
from repro.launch.kernels import LIMITS, PROGRAM, SINGLE, KernelError, Kernels
from repro.launch.nodes.attempt import NotStarted
from repro.launch.nodes.baselines import probe_argv, unequal, versions_in
from repro.launch.nodes.code_upload import UploadedCode
from repro.launch.nodes.datasets import ABSENT, folder_on_nodes, take_argv
from repro.launch.nodes.failure_causes import node_says
from repro.launch.nodes.kernels import compared_on_nodes
from repro.launch.nodes.target import unreadable, unreadable_argv
from repro.launch.slurm.allocation import Allocation
from repro.launch.slurm.batch_script import JobRequest
from repro.launch.slurm.inspection import ask, inspect, programs_in_job
from repro.planning.baselines import PATIENCE_S
from repro.planning.datasets import FACTS, Dataset
from repro.runs.failures import Failure
from repro.utils.i18n import N_

SPARE_MINUTES, KERNEL_MINUTES = 2, 10
DATA_S = 300.0
DIFFERENT = N_("the nodes of job {job} are not equal, or not what others of this run were: {said}")
WRONG = N_("operators of {model} compute wrongly on the nodes of job {job}: {example}")
BASELINES_DIFFER = N_("the baselines' environments on the nodes of this run are not equal: {said}")
NO_DATA = N_("the data set {data} cannot be brought to {node}: {said}")
NOT_COMPARED = N_("operators cannot be compared with the CPU on the nodes of job {job}: {said}")


@dataclass(frozen=True)
class Size:
    """Whole nodes, and the GPUs that are used on each of them."""

    nodes: int
    gpus: int = 0

    def holds(self, other: Size) -> bool:
        """Whether another one fits into it."""
        return self.nodes >= other.nodes and self.gpus >= other.gpus


class Jobs:
    """Hands out jobs whose nodes were asked what they are, and compared with the other nodes of the run.

    Parameters
    ----------
    minutes : the time limit of a job for one attempt.
    compares : whether the operators of GPUs are compared with the CPU before an attempt gets them.
    asks : whether nodes are asked for the PyTorch of baselines before an attempt of one gets them.

    Attributes
    ----------
    known : the nodes that the run has used so far, by name.
    largest : the size of a job that is kept for a whole run.
    precisions : those in which the operators of each of the run's models are compared, by the model; fp32 for others.
    datasets : data sets of this machine that the run's models learn, for the nodes that read them.
    """

    def __init__(
        self, cluster: Cluster, code: UploadedCode, port: int, run: str, minutes: int, compares: bool, asks: bool = True
    ):
        self.cluster, self.code, self.port, self.run = cluster, code, port, run
        self.fingerprints: dict[str, Fingerprint] = {}
        self.largest = Size(1)
        self.precisions: dict[str, tuple[str, ...]] = {}
        self.datasets: tuple[Dataset, ...] = ()
        self._minutes, self._compares, self._asks = minutes, compares, asks
        self._baselines: dict[str, dict] = {}
        self._have: set[tuple[str, str]] = set()
        self._kernels: dict[str, Kernels] = {}
        self._kept: Allocation | None = None
        self._keeps = cluster.slurm.allocation == "run"

    def request(self, what: str, size: Size) -> JobRequest:
        """The job of this size that would be submitted."""
        token = secrets.token_hex(4)
        return JobRequest(
            self.cluster, what, run=self.run, nodes=size.nodes, gpus=size.gpus, minutes=self._minutes, token=token
        )

    def take(self, what: str, size: Size, folder: Path | None, on_event: OnEvent, interrupts: Interrupts) -> Allocation:
        """A job with nodes for this, new or kept, which the caller gives back.

        NotStarted says why there is none; what the job's script printed is then in `folder`.
        """
        kept_allocation, self._kept = self._kept, None
        wanted = Size(max(size.nodes, self.largest.nodes), max(size.gpus, self.largest.gpus)) if self._keeps else size
        if kept_allocation:
            has = Size(kept_allocation.request.nodes, kept_allocation.request.gpus)
            if (has.holds(size) if self._keeps else has == size) and kept_allocation.ask_whether_usable():
                return kept_allocation
            kept_allocation.release()
        allocation = Allocation(self.request(what, wanted))
        allocation.submit(on_event, interrupts)
        try:
            inspect(allocation, self.code, self.port, interrupts)
            self._check_equal(allocation)
        except BaseException:
            if folder:
                allocation.keep_log(folder)
            allocation.cancel()
            raise
        self.fingerprints |= allocation.fingerprints
        return allocation

    def give_back(self, allocation: Allocation, spare: bool = False) -> None:
        """Keep a job for the next attempt, where that is wanted (`spare`: in any case), or let it end."""
        if allocation.usable and (self._keeps or spare):
            self._kept = allocation
        else:
            allocation.release()

    def close(self) -> None:
        """Let a job end that is kept."""
        if self._kept:
            self._kept.release()
        self._kept = None

    def compared(
        self,
        allocation: Allocation,
        precisions: Mapping[str, tuple[str, ...]],
        say: Callable[[str], None] = print,
    ) -> Kernels | None:
        """The comparison of models' operators on a job's nodes, made on those that have none; None if it is not wanted.

        `precisions` are those of each model.
        """
        if not (self._compares and allocation.request.gpus):
            return None

        def attempts_on(name: str) -> ProgramOf:
            return programs_in_job(allocation, name, code=self.code, program=PROGRAM, limits=LIMITS)

        return compared_on_nodes(self.cluster, allocation.facts, precisions, attempts_on, say=say)

    def refuse_wrong(self, allocation: Allocation, model: str, program: str) -> None:
        """NotStarted if a job's nodes compute operators of a model's program wrongly, or cannot be compared."""
        values = {"job": allocation.number, "model": model}
        try:
            kernels = self.compared(allocation, {model: self.precisions.get(model, SINGLE)}, say=lambda text: None)
        except KernelError as error:
            raise NotStarted(Failure(NOT_COMPARED, {**values, "said": str(error)})) from error
        if wrong := kernels.of(model, program) if kernels else ():
            raise NotStarted(Failure(WRONG, {**values, "example": wrong[0].text()}))

    def baselines_on(self, allocation: Allocation, interrupts: Interrupts) -> dict[str, dict]:
        """The versions of the baselines' PyTorch on the nodes that the run has used for them, those of this job included.

        A node that was used is not asked again. NotStarted if it does not start on one, or if they differ.
        """
        new = [name for name in allocation.names if name not in self._baselines] if self._asks else []
        if not new:
            return self._baselines
        versions_by_node = {**self._baselines}
        user = allocation.facts[new[0]]["user"]
        owner = f"{allocation.request.token}-probe"  # the job ends what is left of its containers by this token
        argv = probe_argv(self.cluster, user, owner)
        for name, done in ask(allocation, new, self.code, argv, PATIENCE_S, interrupts).items():
            try:
                versions_by_node[name] = versions_in(self.cluster, name, done)
            except RemoteError as error:
                raise NotStarted(node_says(name, str(error).removeprefix(f"{name}: "))) from error
        if said := unequal({name: versions_by_node[name] for name in sorted(versions_by_node)}):
            raise NotStarted(Failure(BASELINES_DIFFER, {"said": said}))
        self._baselines = versions_by_node
        return versions_by_node

    def bring(self, allocation: Allocation, config: ProgramConfig, interrupts: Interrupts) -> None:
        """Bring the nodes of a job what a trainer with this configuration reads of `datasets`, where they lack it.

        A node that was used is not asked again. NotStarted says which node cannot have it.
        """
        for dataset in self.datasets:
            new = [name for name in allocation.names if (name, dataset.digest) not in self._have]
            there = folder_on_nodes(self.cluster, dataset)
            if not (new and config.data.is_in(there)):
                continue
            folder = posixpath.basename(there)
            argv = take_argv(self.cluster, dataset, f"{allocation.request.messages}/{folder}")
            results = ask(allocation, new, self.code, argv, DATA_S, interrupts)
            if absent := [name for name, done in results.items() if done.status == ABSENT]:
                allocation.send(absent, [dataset.folder / name for name in (*dataset.facts["sha256"], FACTS)], folder)
                results |= ask(allocation, absent, self.code, argv, DATA_S, interrupts)
            for name, done in results.items():
                if done.status:
                    reason = (done.stderr.strip().splitlines() or [f"status {done.status}"])[-1]
                    raise NotStarted(Failure(NO_DATA, {"node": name, "data": folder, "said": reason}))
            self._have |= {(name, dataset.digest) for name in new}

    def missing_data(self, allocation: Allocation, paths: Sequence[str], interrupts: Interrupts) -> list[str]:
        """A line for each of some paths and each node of a job that cannot read it; NotStarted as `ask`."""
        results = ask(allocation, allocation.names, self.code, unreadable_argv(paths), DATA_S, interrupts)
        return unreadable({name: results[name].stdout for name in allocation.names})

    def _check_equal(self, allocation: Allocation) -> None:
        """NotStarted if its nodes differ from each other, from other nodes of the run, or from what they were."""
        before, now, accepted = self.fingerprints, allocation.fingerprints, self.cluster.accepted
        if refused := unaccepted({**before, **now}, accepted) + changes(before, now, accepted):
            said = "; ".join(map(_shown, refused))
            raise NotStarted(Failure(DIFFERENT, {"job": allocation.number, "said": said}))


def _shown(difference: FieldDifference) -> str:
    values = ", ".join(f"{value} on {', '.join(nodes)}" for value, nodes in difference.values.items())
    return f"{difference.field} is {values}"
