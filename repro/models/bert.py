"""BERT: an encoder trained on masked tokens and next-sentence prediction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from repro.models import programs, transformer
from repro.models.spec import Baseline, LossCurves, ModelSpec, SmallTraining


def check(shape: Mapping[str, int], layout: Mapping[str, int]) -> str | None:
    """The error in a shape and a layout, or None."""
    if wrong := transformer.check(shape, layout):
        return wrong
    if shape["max_predictions"] >= shape["seq_length"]:
        return f"shape.max_predictions: {shape['max_predictions']} do not fit seq_length {shape['seq_length']}"
    return None


def training_flops(shape: Mapping[str, int], recompute: bool) -> float:
    """Floating-point operations per sequence of a transformer whose head scores only the masked tokens."""
    return transformer.training_flops(shape, recompute, shape["max_predictions"] / shape["seq_length"])


def sample(generator: Any, shape: Any) -> tuple[Any, ...]:
    """A random text of two segments without padding, with some tokens masked."""
    length, count = shape.seq_length, shape.max_predictions
    ids = generator.integers(0, shape.vocab_size, length)
    second = generator.integers(1, length)
    segments = [int(place >= second) for place in range(length)]
    positions = sorted(generator.choice(length, count, replace=False))
    labels = generator.integers(0, shape.vocab_size, count)
    return ids, [1] * length, segments, positions, labels, [1.0] * count, generator.integers(0, 2)


SPEC = ModelSpec(
    name="bert",
    title_words=("bert",),
    shape_keys=(*transformer.SHAPE_KEYS, "max_predictions"),
    smoke_shape={
        "seq_length": 32,
        "max_predictions": 4,
        "vocab_size": 512,
        "layers": 2,
        "hidden_size": 64,
        "attention_heads": 4,
    },
    check=check,
    inputs={
        "ids": "int64",
        "valid": "int64",
        "segments": "int64",
        "positions": "int64",
        "labels": "int64",
        "weights": "float32",
        "next_sentence": "int64",
    },
    sample=sample,
    data_kinds=("synthetic", "ofrecord"),
    programs=(programs.BERT,),
    throughput_units=("sequences/s", "sentences/s", "samples/s"),
    optimizer="adamw",
    regularisation="dropout",
    axes=("data",),
    options=("activation_checkpointing", "optimizer_sharding", "clip_norm"),
    curves=LossCurves(
        cpu=SmallTraining(
            {
                "seq_length": 32,
                "max_predictions": 4,
                "vocab_size": 512,
                "layers": 2,
                "hidden_size": 64,
                "attention_heads": 4,
            },
            global_batch=8,
            lr=2e-3,
        ),
        cuda=SmallTraining(
            {
                "seq_length": 128,
                "max_predictions": 20,
                "vocab_size": 8192,
                "layers": 4,
                "hidden_size": 512,
                "attention_heads": 8,
            },
            global_batch=32,
            lr=1e-4,
        ),
        optimizer=transformer.STEADY,
        layouts=("dp2", "dp4"),
    ),
    baseline=Baseline(attention=True),
    parameters=transformer.parameters,
    training_flops=training_flops,
)
