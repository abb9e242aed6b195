"""GPT: a decoder trained on next-token prediction, as in OneFlow's reports of 2020 and 2021."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from repro.models import programs
from repro.models.spec import AXES, Baseline, Convergence, ConvergenceTraining, LossCurves, ModelSpec, SmallTraining
from repro.models.transformer import ADAMW, SHAPE_KEYS, STEADY, check, parameters, training_flops

BYTES = 257
"""Vocabulary of a text read byte by byte: the bytes, and the end of a document."""
BLOCK = 128
"""The vocabulary is padded to a multiple of it (OneFlow-Benchmark, LanguageModeling/GPT/oneflow_gpt/config.py)."""


def sample(generator: Any, shape: Any) -> tuple[Any, ...]:
    """A random text, and the same text shifted by one token."""
    text = generator.integers(0, shape.vocab_size, shape.seq_length + 1)
    return text[:-1], text[1:]


def tiny_shape(layout: Mapping[str, int]) -> dict[str, int]:
    """Heads and vocabulary that every tensor parallel rank has a part of, and a layer or more for every stage.

    Padding brings the vocabulary to the same size in this layout as on one process, so their losses are equal.
    """
    tensor = layout["tensor"]
    return {
        "seq_length": 16,
        "vocab_size": BLOCK * max(4, tensor) - 47,
        "layers": max(2, layout["pipeline"]),
        "hidden_size": 4 * max(4, tensor),
        "attention_heads": max(4, tensor),
    }


SPEC = ModelSpec(
    name="gpt",
    title_words=("gpt", "megatron"),
    shape_keys=SHAPE_KEYS,
    smoke_shape={"seq_length": 32, "vocab_size": 512, "layers": 2, "hidden_size": 64, "attention_heads": 4},
    tiny_shape=tiny_shape,
    check=check,
    inputs={"ids": "int64", "labels": "int64"},
    sample=sample,
    last_stage_inputs=("labels",),
    data_kinds=("synthetic", "tokens", "megatron", "text"),
    programs=(programs.GPT_2_SMALL, programs.GPT),
    throughput_units=("samples/s", "sequences/s"),
    optimizer="adamw",
    regularisation="dropout",
    axes=AXES,
    options=("activation_checkpointing", "optimizer_sharding", "clip_norm"),
    vocabulary_block=BLOCK,
    curves=LossCurves(
        cpu=SmallTraining(
            {"seq_length": 32, "vocab_size": BYTES, "layers": 4, "hidden_size": 64, "attention_heads": 4},
            global_batch=8,
            lr=2e-3,
        ),
        cuda=SmallTraining(
            {"seq_length": 512, "vocab_size": BYTES, "layers": 8, "hidden_size": 1024, "attention_heads": 16},
            global_batch=8,
            lr=1e-4,
        ),
        optimizer=STEADY,
        reads_text=True,
    ),
    convergence=Convergence(
        cpu=ConvergenceTraining(
            {"seq_length": 64, "vocab_size": BYTES, "layers": 2, "hidden_size": 64, "attention_heads": 4},
            global_batch=32,
            lr=5e-3,
            iterations=400,
            goal=1,
        ),
        cuda=ConvergenceTraining(
            {"seq_length": 512, "vocab_size": BYTES, "layers": 8, "hidden_size": 512, "attention_heads": 8},
            global_batch=16,
            lr=1e-3,
            iterations=800,
            goal=2,
        ),
        optimizer=ADAMW,
        dataset="text",
    ),
    baseline=Baseline(attention=True, megatron=True),
    parameters=parameters,
    training_flops=training_flops,
    published_flops=True,
)
