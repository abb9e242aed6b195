"""The published formulas of Megatron-LM, as the yardstick that the performance model has to beat.

Time: FLOPs over a sustained rate, with the pipeline's idle share (Narayanan et al., SC21, equations 3 and section
2.2). Memory: 16 or 18 bytes a parameter and the activations of Korthikanti et al. (arXiv 2205.05198, section 4). The
sustained share of the peak is fitted as one number a precision, on the same training cases as the model's constants.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from repro.perfmodel.calibration import Target
from repro.perfmodel.hardware import Cluster
from repro.perfmodel.memory import MIB
from repro.perfmodel.transformer import parameters
from repro.perfmodel.workload import Job
from repro.published.cases import padded_vocab_size

RESNET50_FLOPS = 2 * 4.089e9  # forward, an image of 224 pixels: torchvision's count of multiply-adds, twice
RESNET50_PARAMETERS = 25.557e6
RESNET50_ACTIVATIONS = 22.2e6  # elements an image: every convolution's output and its normalised copy


@dataclass(frozen=True)
class Baseline:
    """The sustained share of the peak by precision."""

    share: dict[str, float]

    def throughput(self, job: Job, cluster: Cluster) -> float:
        """Samples/s: F / (N X), longer by (p-1)/m of it in a pipeline."""
        rate = self.share[job.precision] * cluster.gpu.peak_flops(job.precision)
        ideal = flops(job) / (job.layout.world_size * rate)
        return job.global_batch / (ideal * (1 + (job.layout.pipeline - 1) / job.accumulation_steps))


def fit_baseline(targets: Sequence[Target], cluster: Cluster) -> Baseline:
    """For each precision the geometric mean of the share of the peak that its training cases sustain."""
    whole = Baseline({"amp": 1.0, "fp32": 1.0})
    logs: dict[str, list[float]] = {}
    for each in targets:
        share = each.throughput / whole.throughput(each.job, cluster)
        logs.setdefault(each.job.precision, []).append(math.log(share))
    return Baseline({precision: math.exp(fmean(values)) for precision, values in logs.items()})


def flops(job: Job) -> float:
    """F = 96 B s l h² (1 + s/6h + V/16lh) of an iteration with recompute, 72 without (and V/12lh); BERT's likewise."""
    if job.model == "resnet50":
        return 3 * RESNET50_FLOPS * job.global_batch
    shape = dict(job.shape)
    s, h, layers = shape["seq_length"], shape["hidden_size"], shape["layers"]
    recompute = job.activation_checkpointing
    head = _vocab(job) / ((16 if recompute else 12) * layers * h)
    if job.model == "bert":
        head *= shape["max_predictions"] / s
    return (96 if recompute else 72) * job.global_batch * s * layers * h * h * (1 + s / (6 * h) + head)


def memory_mib(job: Job) -> float:
    """State and activations of a rank: 18 bytes a parameter under mixed precision, 16 in fp32, 1/d of 12 if sharded.

    A pipeline's first stage keeps p micro-batches of its l/p layers, as much as one micro-batch of all l.
    """
    optimizer = 12 if job.precision == "amp" else 8
    other = 6 if job.precision == "amp" else 8
    each = other + optimizer / (job.layout.data if job.optimizer_sharding else 1)
    if job.model == "resnet50":
        return (each * RESNET50_PARAMETERS + 4 * RESNET50_ACTIVATIONS * job.micro_batch) / MIB
    shape, t, p = dict(job.shape), job.layout.tensor, job.layout.pipeline
    held = parameters(shape, _vocab(job)) / (t * p)
    return (each * held + _activations(job, shape, t)) / MIB


def _activations(job: Job, shape: dict, t: int) -> float:
    s, h, a, layers = (shape[name] for name in ("seq_length", "hidden_size", "attention_heads", "layers"))
    tokens = s * job.micro_batch * h
    layer = tokens * (10 + 24 / t + 5 * a * s / (h * t)) * job.element_bytes / 2
    return 2 * tokens * layers + layer if job.activation_checkpointing else layer * layers


def _vocab(job: Job) -> int:
    vocab = dict(job.shape)["vocab_size"]
    return padded_vocab_size(vocab, job.layout.tensor) if job.model == "gpt" else vocab
