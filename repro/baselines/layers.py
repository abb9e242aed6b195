"""The parts that the GPT and BERT baselines share."""

from __future__ import annotations

import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from repro.baselines.config import BaselineConfig
from repro.baselines.parameters import Parameters

INITIAL_STD = 0.02
"""Standard deviation of initial weights, where a model says no other."""
MASKED = -10000.0
"""What is added to a score that must not count; it fits half precision and its exponential is 0."""


class Attention(nn.Module):
    """Multi-head self-attention by PyTorch's fused kernels; a head's query, key and value are neighbours.

    `std` is that of the outward weights, `dropout` is on the attention weights.
    """

    def __init__(self, make: Parameters, name: str, size: int, heads: int, std: float, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.inward = make.linear(f"{name}.inward", size, 3 * size, INITIAL_STD)
        self.outward = make.linear(f"{name}.outward", size, size, std)
        self.dropout = dropout

    def forward(self, x, mask=None):
        """Map x (b, s, h); `mask` (b, 1, 1, s) is added to the scores, without one attention is causal."""
        batch, length, size = x.shape
        query, key, value = self.inward(x).view(batch, length, self.heads, -1).transpose(1, 2).chunk(3, dim=-1)
        context = F.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, dropout_p=self.dropout, is_causal=mask is None
        )
        return self.outward(context.transpose(1, 2).reshape(batch, length, size))


class MLP(nn.Module):
    """Two linear layers of four times the width with a GELU (by the error function) between."""

    def __init__(self, make: Parameters, name: str, size: int, std: float) -> None:
        super().__init__()
        self.inward = make.linear(f"{name}.inward", size, 4 * size, INITIAL_STD)
        self.outward = make.linear(f"{name}.outward", 4 * size, size, std)

    def forward(self, x):
        return self.outward(F.gelu(self.inward(x)))


class Layers(nn.ModuleList):
    """Layers one after another, each run again in the backward pass where activations are checkpointed."""

    def __init__(self, layers: list, config: BaselineConfig) -> None:
        super().__init__(layers)
        self.checkpointing = config.activation_checkpointing
        self.keeps_random_state = config.dropout > 0.0

    def forward(self, x, *mask):
        for layer in self:
            x = self.again(layer, x, *mask) if self.checkpointing else layer(x, *mask)
        return x

    def again(self, layer: nn.Module, *inputs):
        return checkpoint(layer, *inputs, use_reentrant=False, preserve_rng_state=self.keeps_random_state)
