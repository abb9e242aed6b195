"""What the specifications of transformers share."""

from __future__ import annotations

from collections.abc import Mapping

SHAPE_KEYS = ("seq_length", "vocab_size", "layers", "hidden_size", "attention_heads")
ADAMW = {"name": "adamw", "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.01, "clip_norm": 1.0}
STEADY = {**ADAMW, "eps": 1e-6}
"""With an epsilon that counts where a gradient is next to nothing: there AdamW makes a whole step of a rounding."""


def check(shape: Mapping[str, int], layout: Mapping[str, int]) -> str | None:
    """What is wrong with a transformer's shape and layout; None if nothing."""
    heads = shape["attention_heads"]
    if shape["hidden_size"] % heads:
        return f"shape.attention_heads: {heads} heads do not divide hidden_size"
    if heads % layout["tensor"]:
        return f"layout.tensor: {layout['tensor']} does not divide {heads} attention heads"
    if layout["pipeline"] > shape["layers"]:
        return f"layout.pipeline: {layout['pipeline']} stages for {shape['layers']} layers"
    return None
