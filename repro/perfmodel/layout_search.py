"""Searches layouts for a GPT on a cluster: the fastest by the model, and the bottleneck of each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from repro.models.gpt import SPEC
from repro.perfmodel.hardware import ClusterModel, HardwareError
from repro.perfmodel.memory import memory
from repro.perfmodel.predict import Prediction, default_calibration, predict
from repro.perfmodel.work import ModelJob
from repro.perfmodel.workload import flops, stages
from repro.published.cases import Layout
from repro.utils.output import TerminalColumn

SEQ_LENGTH, VOCAB_SIZE = 2048, 50257
HEAD_SIZES = (128, 96, 64)
MICRO_BATCHES = (1, 2, 4, 8, 16, 32)
SHOWN = 10


@dataclass(frozen=True)
class Candidate:
    """A job that fits, with its prediction."""

    job: ModelJob
    prediction: Prediction

    @property
    def tflops(self) -> float:
        """Model TFLOP/s a GPU: those of the model itself, recompute not counted (Chowdhery et al., PaLM, 2022)."""
        once = replace(self.job, activation_checkpointing=False)
        return flops(once) / self.prediction.seconds.total / self.job.layout.world_size / 1e12


def shape_of(text: str) -> dict[str, int]:
    """The shape written as HIDDENxLAYERS or HIDDENxLAYERSxHEADS; HardwareError for anything else."""
    match = re.fullmatch(r"([1-9]\d{0,5})x([1-9]\d{0,3})(?:x([1-9]\d{0,5}))?", text, re.ASCII)
    if not match:
        raise HardwareError(
            f"SHAPE={text}: write HIDDENxLAYERS or HIDDENxLAYERSxHEADS, such as 2304x24; at most 999999x9999"
        )
    hidden, layers = int(match[1]), int(match[2])
    heads = int(match[3]) if match[3] else next((hidden // size for size in HEAD_SIZES if hidden % size == 0), 0)
    if not heads or hidden % heads:
        raise HardwareError(f"SHAPE={text}: the hidden size cannot be divided into {heads or 'heads of 64, 96 or 128'}")
    return {
        "seq_length": SEQ_LENGTH,
        "vocab_size": VOCAB_SIZE,
        "layers": layers,
        "hidden_size": hidden,
        "attention_heads": heads,
    }


def search(shape: dict[str, int], cluster: ClusterModel, global_batch: int) -> list[Candidate]:
    """All layouts of all the cluster's GPUs that fit in their memory, the quickest first.

    HardwareError if none can divide the batch among its data-parallel ranks.
    """
    constants = default_calibration().constants
    limit = cluster.gpu.memory_mib
    candidates = []
    possible = list(jobs(shape, cluster.gpus, global_batch))
    if not possible:
        sizes = sorted({layout.data for layout in layouts(shape, cluster.gpus)})
        raise HardwareError(
            f"BATCH={global_batch}: no layout of this shape on {cluster.gpus} GPUs divides it; it has to be a multiple of the "
            f"data parallel size, which can be {', '.join(map(str, sizes))}"
        )
    for job in possible:
        if memory(job, stages(job), constants).total_mib <= limit:
            candidates.append(Candidate(job, predict(job, cluster, constants)))
    return sorted(candidates, key=lambda candidate: (-candidate.prediction.throughput, str(candidate.job)))


def jobs(shape: dict[str, int], gpus: int, global_batch: int) -> Iterator[ModelJob]:
    """Every layout with each micro-batch that divides its share of the batch, with and without recompute and ZeRO-1."""
    for layout in layouts(shape, gpus):
        yield from _with_batches(shape, layout, global_batch)


def layouts(shape: dict[str, int], gpus: int) -> Iterator[Layout]:
    """Every layout that divides GPUs, heads and layers."""
    for tensor in _divisors(gpus):
        if shape["attention_heads"] % tensor:
            continue
        for pipeline in _divisors(gpus // tensor):
            if shape["layers"] % pipeline:
                continue
            yield Layout(gpus // tensor // pipeline, tensor, pipeline)


def _with_batches(shape: dict[str, int], layout: Layout, global_batch: int) -> Iterator[ModelJob]:
    shares = tuple(sorted(shape.items()))
    for micro_batch in MICRO_BATCHES:
        steps, rest = divmod(global_batch, micro_batch * layout.data)
        if rest or not steps:
            continue
        for recompute in (False, True):
            for sharding in (0, 1) if layout.data > 1 else (0,):
                yield ModelJob(
                    SPEC.name,
                    shares,
                    layout=layout,
                    micro_batch=micro_batch,
                    accumulation_steps=steps,
                    precision="amp",
                    activation_checkpointing=recompute,
                    optimizer_sharding=sharding,
                    fused=True,
                )


def _divisors(number: int) -> list[int]:
    return [divisor for divisor in range(1, number + 1) if number % divisor == 0]


def reasons(candidate: Candidate, cluster: ClusterModel) -> str:
    """The candidate's largest costs besides matrix products, and whether it nearly fills the memory, in words."""
    seconds, job = candidate.prediction.seconds, candidate.job
    costs = {
        "pipeline bubble": seconds.bubble,
        "tensor-parallel all-reduces": seconds.tensor_parallel,
        "gradient reduction": seconds.data_parallel,
        "stage transfers": seconds.transfer,
        "optimizer": seconds.update,
        "kernel launches": seconds.launch,
    }
    ordered = sorted(costs.items(), key=lambda item: -item[1])[:2]
    phrases = [f"{name} {cost / seconds.total:.0%}" for name, cost in ordered if cost >= 0.02 * seconds.total]
    if job.layout.tensor > cluster.node.gpus:
        phrases.append("tensor parallelism leaves the node")
    if candidate.prediction.memory.total_mib > 0.9 * cluster.gpu.memory_mib:
        phrases.append("memory nearly full")
    return "; ".join(phrases) or "almost all of the time is computation"


def candidates_table(
    candidates: list[Candidate], cluster: ClusterModel
) -> tuple[list[TerminalColumn], list[list[str]]]:
    """Columns and a row of texts for the best candidates."""
    columns = [
        TerminalColumn("data x tensor x pipeline"),
        TerminalColumn("micro-batch", number=True),
        TerminalColumn("steps", number=True, spare=4),
        TerminalColumn("recompute", spare=2),
        TerminalColumn("ZeRO", number=True, spare=1),
        TerminalColumn("samples/s", number=True),
        TerminalColumn("TFLOP/s per GPU", number=True),
        TerminalColumn("MiB", number=True, spare=3),
        TerminalColumn("why", wraps=True),
    ]
    return columns, [_texts(candidate, cluster) for candidate in candidates[:SHOWN]]


def candidates_json(candidates: list[Candidate], cluster: ClusterModel, global_batch: int) -> dict:
    """The best candidates for programs; `output.schema.json` describes it."""
    return {
        "cluster": cluster.name,
        "global_batch": global_batch,
        "fitting": len(candidates),
        "layouts": [_object(candidate, cluster) for candidate in candidates[:SHOWN]],
    }


def _object(candidate: Candidate, cluster: ClusterModel) -> dict:
    job, predicted = candidate.job, candidate.prediction
    return {
        "layout": vars(job.layout),
        "micro_batch": job.micro_batch,
        "accumulation_steps": job.accumulation_steps,
        "activation_checkpointing": job.activation_checkpointing,
        "optimizer_sharding": job.optimizer_sharding,
        "throughput_samples_per_s": predicted.throughput,
        "tflops_per_gpu": candidate.tflops,
        "memory_mib": predicted.memory.total_mib,
        "reason": reasons(candidate, cluster),
    }


def _texts(candidate: Candidate, cluster: ClusterModel) -> list[str]:
    job, predicted = candidate.job, candidate.prediction
    recompute = "yes" if job.activation_checkpointing else "no"
    layout = [str(job.layout), str(job.micro_batch), str(job.accumulation_steps)]
    layout += [recompute, str(job.optimizer_sharding)]
    figures = [f"{predicted.throughput:.1f}", f"{candidate.tflops:.1f}", f"{predicted.memory.total_mib:.0f}"]
    return [*layout, *figures, reasons(candidate, cluster)]
