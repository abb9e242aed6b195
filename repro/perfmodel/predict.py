"""What to expect of a case on a cluster: how long an iteration takes, how much memory it needs, how sure that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from statistics import NormalDist
from typing import TYPE_CHECKING

from repro.perfmodel.communication import Path, all_reduce_s, in_buckets_s, path, ring_half_s, transfer_s
from repro.perfmodel.constants import ELSEWHERE, JUDGES_WITHIN, Calibration, Constants, load_calibration
from repro.perfmodel.hardware import ClusterModel, GpuModel, from_devices
from repro.perfmodel.memory import Memory, memory, reduced_bytes
from repro.perfmodel.training import kind_of
from repro.perfmodel.work import PUBLISHED_PROGRAM, KernelWork, ModelJob, Stage, update_work
from repro.perfmodel.workload import stages
from repro.planning.derived import case_of
from repro.published.cases import Case

if TYPE_CHECKING:
    from repro.runs.unit import Unit

FITTED_ON = "v100-16"
"""The GPU of the published cluster, on which the constants are fitted."""


@dataclass(frozen=True)
class Seconds:
    """Time of an iteration by purpose, excluding what is hidden behind computation."""

    matrix: float = 0.0
    attention: float = 0.0
    element: float = 0.0
    launch: float = 0.0
    tensor_parallel: float = 0.0
    bubble: float = 0.0
    transfer: float = 0.0
    data_parallel: float = 0.0
    update: float = 0.0
    waiting: float = 0.0

    @property
    def total(self) -> float:
        return sum(vars(self).values())


@dataclass(frozen=True)
class Prediction:
    """The model's prediction for a job, without its uncertainty."""

    seconds: Seconds
    memory: Memory
    throughput: float

    @property
    def latency_ms(self) -> float:
        return 1000 * self.seconds.total


@dataclass(frozen=True)
class Expectation:
    """What to expect of a case: samples/s, ms, MiB, and how far nine in ten cases like it were off.

    Uncertainties are factors less one: 0.1 says between the figure over 1.1 and the figure times 1.1.

    `fits` says whether the memory is there; `notes` are messages for a reader, marked for translation with their
    values: (message, values).
    """

    throughput: float
    latency_ms: float
    memory_mib: float
    uncertainty: float
    memory_uncertainty: float
    fits: bool
    notes: tuple[tuple[str, dict], ...] = ()

    @property
    def judges(self) -> bool:
        """Whether it is sure enough for a measurement to deviate from it: what allows everything judges nothing."""
        return self.uncertainty <= JUDGES_WITHIN

    def deviates(self, throughput: float) -> bool | None:
        """Whether a measured throughput is further away than the uncertainty explains; None if it does not judge."""
        if not self.judges:
            return None
        return max(self.throughput / throughput, throughput / self.throughput) > 1 + self.uncertainty


def predict(job: ModelJob, cluster: ClusterModel, constants: Constants) -> Prediction:
    """Time and memory of one iteration.

    An iteration of m micro-batches through stages of time t_i takes (m-1) max t_i + sum t_i (Huang et al., GPipe,
    2019; with equal stages the idle share is (p-1)/m of the ideal time, Narayanan et al., SC21, section 2.2), then
    the gradients' sum as far as it is not hidden, then the update. ValueError for a layout that cannot be.
    """
    if job.layout.world_size > cluster.gpus:
        raise ValueError(f"layout {job.layout} needs {job.layout.world_size} GPUs, {cluster.name} has {cluster.gpus}")
    line = stages(job)
    times = {stage: _micro_batch(job, stage, cluster, constants) for stage in set(line)}
    slowest = max(times.values(), key=lambda seconds: seconds.total)
    filling = sum(times[stage].total for stage in line) - slowest.total
    busy = replace(
        Seconds(**{kind: job.accumulation_steps * value for kind, value in vars(slowest).items()}),
        bubble=filling + sum(_transfer(job, stage, cluster, constants) for stage in line[1:]),
        data_parallel=max(_synchronise(job, line, index, cluster, constants) for index in {0, len(line) - 1}),
        update=max(_busy(update_work(job, stage), cluster.gpu, "fp32", constants).total for stage in times),
    )
    waiting = constants.jitter * slowest_of(job.layout.world_size) * busy.total
    seconds = replace(busy, waiting=waiting)
    return Prediction(seconds, memory(job, line, constants), job.global_batch / seconds.total)


def expect(case: Case, cluster: ClusterModel, program: str = PUBLISHED_PROGRAM) -> Expectation:
    """What to expect of a case by one of the programs on a cluster, with the calibration in the repository.

    ValueError where the case needs more GPUs than the cluster has.
    """
    calibration = default_calibration()
    group = cluster.gpu.generation, program, case.model
    predicted = predict(ModelJob.of(case, program), cluster, calibration.constants_of(group))
    fitted_here = cluster.gpu.name == FITTED_ON
    if fitted_here and program == PUBLISHED_PROGRAM:
        uncertainty = calibration.uncertainty[kind_of(case)]
    else:
        uncertainty = calibration.measured.get(group, calibration.uncertainty[ELSEWHERE])
    expectation = Expectation(
        throughput=predicted.throughput,
        latency_ms=predicted.latency_ms,
        memory_mib=predicted.memory.total_mib,
        uncertainty=uncertainty.throughput,
        memory_uncertainty=uncertainty.memory,
        fits=predicted.memory.total_mib <= cluster.gpu.memory_mib,
        notes=() if fitted_here else (_other_hardware(cluster.gpu, group in calibration.kernels),),
    )
    return expectation if expectation.judges else replace(expectation, notes=(*expectation.notes, _unjudged()))


def expect_unit(unit: Unit, gpus: Sequence[Mapping], nodes: int = 1) -> Expectation | None:
    """What to expect of a unit of a run on the GPUs that nvidia-smi reported on all its nodes, as many on each.

    None for no case, or too few GPUs. HardwareError for GPUs that the model does not know.
    """
    cluster, case = from_devices(gpus[0]["name"], len(gpus) // nodes, nodes), case_of(unit)
    if case is None or case.layout.world_size > cluster.gpus:
        return None
    return expect(case, cluster, program=unit.program)


def _other_hardware(gpu: GpuModel, fitted: bool) -> tuple[str, dict]:
    from repro.utils.i18n import N_

    if fitted:
        message = N_("launch cost and kernel efficiency were fitted on half of the kept trainings on {generation} GPUs")
        return message, {"generation": gpu.generation.capitalize()}
    message = N_("the constants were fitted on V100s; {gpu} is assumed to reach the same shares of its peaks")
    return message, {"gpu": gpu.name}


def _unjudged() -> tuple[str, dict]:
    from repro.utils.i18n import N_

    message = N_("expectations with an uncertainty factor above {limit} are not used to judge measurements")
    return message, {"limit": 1 + JUDGES_WITHIN}


def _busy(work: KernelWork, gpu: GpuModel, precision: str, constants: Constants) -> Seconds:
    """Time of work: FLOPs over the rate that products reach, plus bytes over the bandwidth that kernels reach.

    The two are added, not the larger taken: a product's operands are loaded before and stored after it computes, which
    is what makes narrow products slow (roofline of Williams et al., 2009, without its assumption of full overlap).
    """
    share = constants.matrix_tensor if precision == "amp" else constants.matrix_fp32
    flops, bandwidth = share * gpu.peak_flops(precision), constants.memory * gpu.bandwidth_gbs * 1e9
    return Seconds(
        matrix=work.matrix_flops / flops + work.matrix_bytes / bandwidth,
        attention=work.attention_flops / flops + work.attention_bytes / bandwidth,
        element=work.element_bytes / bandwidth,
        launch=1e-6 * constants.launch_us * work.kernels,
    )


def _micro_batch(job: ModelJob, stage: Stage, cluster: ClusterModel, constants: Constants) -> Seconds:
    """One micro-batch on one stage: forward, recompute, backward, tensor-parallel all-reduces, and its transfers.

    The all-reduces are on the compute stream, so nothing hides them. Transfers to the next stage overlap the
    computation and only slow it, unless they take longer.
    """
    done = _busy(stage.forward + stage.recompute + stage.backward, cluster.gpu, job.precision, constants)
    reduced = stage.all_reduces * all_reduce_s(_tensor_path(job, cluster, constants), stage.all_reduce_bytes)
    moved = _transfer(job, stage, cluster, constants)
    computing = done.total + reduced
    transfer = constants.interference * min(moved, computing) + max(0.0, moved - computing)
    return replace(done, tensor_parallel=reduced, transfer=transfer)


def slowest_of(ranks: int) -> float:
    """By how many standard deviations the slowest of `ranks` is behind (Blom, 1958: expected extreme)."""
    return NormalDist().inv_cdf((ranks - 0.375) / (ranks + 0.25)) if ranks > 1 else 0.0


def _tensor_path(job: ModelJob, cluster: ClusterModel, constants: Constants) -> Path:
    tensor = job.layout.tensor
    ways = (
        path(cluster, first, 1, tensor, constants.network) for first in range(0, min(cluster.node.gpus, 64), tensor)
    )
    return min(ways, key=lambda way: way.gbs)


def _data_path(job: ModelJob, stage: int, cluster: ClusterModel, constants: Constants) -> Path:
    layout = job.layout
    start = stage * layout.data * layout.tensor
    firsts = range(start, start + min(layout.tensor, cluster.node.gpus))
    ways = (path(cluster, first, layout.tensor, layout.data, constants.network) for first in firsts)
    return min(ways, key=lambda way: way.gbs)


def _transfer(job: ModelJob, stage: Stage, cluster: ClusterModel, constants: Constants) -> float:
    """Seconds in which a GPU sends a micro-batch's activations on and their gradients back, as many bytes each."""
    if job.layout.pipeline == 1:
        return 0.0
    width, node = job.layout.data * job.layout.tensor, cluster.node.gpus
    sharers = min(width, node) if job.layout.world_size > node else 0
    return transfer_s(cluster, 2 * stage.sent_bytes, sharers, constants.network)


def _synchronise(
    job: ModelJob, line: tuple[Stage, ...], index: int, cluster: ClusterModel, constants: Constants
) -> float:
    """Time that gradient reduction adds to an iteration.

    It overlaps the backward pass, except for the last gradients (the tied embedding), for micro-batches that accumulate
    first, and under tensor parallelism, where OneFlow puts NCCL on the compute stream. With a sharded optimizer, a
    reduce-scatter overlaps the backward pass and the all-gather of the parameters the forward pass.
    """
    if job.layout.data == 1:
        return 0.0
    stage, way = line[index], _data_path(job, index, cluster, constants)
    size = reduced_bytes(job, stage)
    late = size * stage.late_parameters / stage.parameters
    overlaps = job.layout.tensor == 1 and job.accumulation_steps == 1
    back = _busy(stage.backward + stage.recompute, cluster.gpu, job.precision, constants).total if overlaps else 0.0
    if not job.optimizer_sharding:
        hidden = in_buckets_s(way, size - late)
        return in_buckets_s(way, late) + _overlapped(hidden, back, constants)
    ahead = _busy(stage.forward, cluster.gpu, job.precision, constants).total if overlaps else 0.0
    scattered = _overlapped(in_buckets_s(way, size - late, ring_half_s), back, constants)
    gathered = _overlapped(in_buckets_s(way, size, ring_half_s), ahead, constants)
    return in_buckets_s(way, late, ring_half_s) + scattered + gathered


def _overlapped(transfer: float, computing: float, constants: Constants) -> float:
    hidden = min(transfer, computing)
    return transfer - hidden + constants.interference * hidden


@cache
def default_calibration() -> Calibration:
    """The calibration in the repository, read once."""
    return load_calibration()
