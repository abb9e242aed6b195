"""The performance model's terms of GPT: a decoder that scores every token over a padded vocabulary."""

from __future__ import annotations

from repro.models.gpt import SPEC
from repro.perfmodel import transformer
from repro.perfmodel.work import ModelJob, Stage


def stages(job: ModelJob) -> tuple[Stage, ...]:
    """The stages of the pipeline; ValueError unless layers, heads and hidden size divide by the layout."""
    return transformer.stages(job, transformer.Head(_vocab(job), job.micro_batch * dict(job.shape)["seq_length"]))


def flops(job: ModelJob) -> float:
    """Floating-point operations of an iteration, by the closed formula."""
    return transformer.flops(job, _vocab(job))


def memory(job: ModelJob) -> tuple[float, float]:
    """Parameters and bytes of activations of a rank, by the closed formulas."""
    return transformer.memory(job, _vocab(job))


def _vocab(job: ModelJob) -> int:
    return SPEC.padded_vocab_size(dict(job.shape)["vocab_size"], job.layout.tensor)
