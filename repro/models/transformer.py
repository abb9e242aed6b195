"""Counts and checks shared by the specifications of transformers."""

from __future__ import annotations

from collections.abc import Mapping

SHAPE_KEYS = ("seq_length", "vocab_size", "layers", "hidden_size", "attention_heads")
ADAMW = {"name": "adamw", "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.01, "clip_norm": 1.0}
STEADY = {**ADAMW, "eps": 1e-6}
"""With an epsilon that counts where a gradient is next to nothing: there AdamW makes a whole step of a rounding."""


def parameters(shape: Mapping[str, int]) -> float:
    """Number of trainable parameters: P = 12 l h² (1 + 13/12h + (V+s)/12lh) (Narayanan et al., SC21, equation 2)."""
    layers, h = shape["layers"], shape["hidden_size"]
    return 12 * layers * h * h * (1 + 13 / (12 * h) + (shape["vocab_size"] + shape["seq_length"]) / (12 * layers * h))


def training_flops(shape: Mapping[str, int], recompute: bool = False, scored: float = 1.0) -> float:
    """FLOPs per sequence: F = 72 s l h² (1 + s/6h + V/12lh); with `recompute`, 96 s l h² (1 + s/6h + V/16lh).

    Narayanan et al., SC21 (arXiv 2104.04473), equation 3. `scored` is the share of tokens that the head scores.
    """
    s, h, layers = shape["seq_length"], shape["hidden_size"], shape["layers"]
    head = scored * shape["vocab_size"] / ((16 if recompute else 12) * layers * h)
    return (96 if recompute else 72) * s * layers * h * h * (1 + s / (6 * h) + head)


def check(shape: Mapping[str, int], layout: Mapping[str, int]) -> str | None:
    """The error in a transformer's shape and layout, or None."""
    heads = shape["attention_heads"]
    if shape["hidden_size"] % heads:
        return f"shape.attention_heads: {heads} heads do not divide hidden_size"
    if heads % layout["tensor"]:
        return f"layout.tensor: {layout['tensor']} does not divide {heads} attention heads"
    if layout["pipeline"] > shape["layers"]:
        return f"layout.pipeline: {layout['pipeline']} stages for {shape['layers']} layers"
    return None
