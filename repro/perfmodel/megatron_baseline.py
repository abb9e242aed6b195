"""The published formulas of Megatron-LM, as the yardstick that the performance model has to beat.

Time: FLOPs over a sustained rate, with the pipeline's idle share (Narayanan et al., SC21, equations 3 and section
2.2). Memory: 16 or 18 bytes per parameter and the activations of Korthikanti et al. (arXiv 2205.05198, section 4). The
sustained share of the peak is fitted as one number per precision, on the same training cases as the model's constants.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from repro.perfmodel.calibration import CalibrationTarget
from repro.perfmodel.hardware import ClusterModel
from repro.perfmodel.memory import MIB
from repro.perfmodel.work import ModelJob
from repro.perfmodel.workload import closed_memory, flops


@dataclass(frozen=True)
class MegatronShare:
    """The sustained share of the peak by precision."""

    share: dict[str, float]

    def throughput(self, job: ModelJob, cluster: ClusterModel) -> float:
        """Samples/s: F / (N X), longer by (p-1)/m of it in a pipeline."""
        rate = self.share[job.precision] * cluster.gpu.peak_flops(job.precision)
        ideal = flops(job) / (job.layout.world_size * rate)
        return job.global_batch / (ideal * (1 + (job.layout.pipeline - 1) / job.accumulation_steps))


def fit_baseline(targets: Sequence[CalibrationTarget], cluster: ClusterModel) -> MegatronShare:
    """For each precision the geometric mean of the share of the peak that its training cases sustain."""
    whole = MegatronShare({"amp": 1.0, "fp32": 1.0})
    logs: dict[str, list[float]] = {}
    for target in targets:
        share = target.throughput / whole.throughput(target.job, cluster)
        logs.setdefault(target.job.precision, []).append(math.log(share))
    return MegatronShare({precision: math.exp(fmean(values)) for precision, values in logs.items()})


def memory_mib(job: ModelJob) -> float:
    """State and activations of a rank: 18 bytes per parameter under mixed precision, 16 in fp32, 1/d of 12 if sharded."""
    optimizer = 12 if job.precision == "amp" else 8
    other = 6 if job.precision == "amp" else 8
    bytes_per_parameter = other + optimizer / (job.layout.data if job.optimizer_sharding else 1)
    parameters, activations = closed_memory(job)
    return (bytes_per_parameter * parameters + activations) / MIB
