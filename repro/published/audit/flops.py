"""Floating-point work of a GPT iteration, and the share of the GPUs' peak that a published latency amounts to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from repro.models.transformer import training_flops

if TYPE_CHECKING:
    from repro.published.cases import Case


VOCABULARY = 51200
"""The vocabulary the team counted with in all 18 cases, whatever each one was padded to."""


@dataclass(frozen=True)
class Efficiency:
    """Achieved FLOP/s of one GPT case; `share_of_peak` is from 0 to 1."""

    case: str
    gpus: int
    teraflop: float
    tflops_per_gpu: float
    share_of_peak: float

    @property
    def petaflops(self) -> float:
        """All GPUs together, in PFLOP/s."""
        return self.tflops_per_gpu * self.gpus / 1000


def gpt_flop(
    batch: int, seq_length: int, layers: int, hidden_size: int, vocab_size: int = VOCABULARY, recompute: bool = True
) -> float:
    """Floating-point operations of one iteration, by the formula of `repro.models.transformer`."""
    shape = {"seq_length": seq_length, "layers": layers, "hidden_size": hidden_size, "vocab_size": vocab_size}
    return batch * training_flops(shape, recompute)


def model_flop(shape: Mapping[str, int]) -> float:
    """Model FLOPs of one GPT training step, per sequence: forward and backward, excluding activation recomputation."""
    return gpt_flop(1, shape["seq_length"], shape["layers"], shape["hidden_size"], recompute=False)


def efficiency(case: Case, peak_tflops: float, vocab_size: int = VOCABULARY) -> Efficiency:
    """The efficiency of a GPT case with a published latency, ValueError without; `peak_tflops` is that of one GPU."""
    latency_ms = case.published.latency_ms
    if latency_ms is None:
        raise ValueError(f"{case.name}: no latency was published, from which its efficiency follows")
    shape = case.shape
    flop = gpt_flop(
        case.global_batch,
        shape["seq_length"],
        layers=shape["layers"],
        hidden_size=shape["hidden_size"],
        vocab_size=vocab_size,
        recompute=case.activation_checkpointing,
    )
    gpus = case.layout.world_size
    rate = flop / (latency_ms / 1000) / gpus / 1e12
    return Efficiency(case.name, gpus, teraflop=flop / 1e12, tflops_per_gpu=rate, share_of_peak=rate / peak_tflops)
