"""Parts of transformers that compute what the published programs compute, operator by operator.

All scores are computed and stored, then scaled, masked, put through softmax and dropout, and multiplied by the values,
each in an operator of its own. Under AMP normalisation, softmax and residual sums are in half precision, as OneFlow's
lists of operators have it; PyTorch's own lists have them in fp32.

What differs from the published programs: a bias is added by PyTorch's product, not after it. Where the GPT of May 2021
fuses mask, softmax and dropout, or a bias and what follows it, they are one by one here. It also divides the scores of
layer n by n and multiplies them again within that kernel, which but for the range of half precision changes nothing.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

from repro.baselines.config import BaselineConfig
from repro.baselines.layers import INITIAL_STD, MASKED, Attention
from repro.baselines.parameters import Parameters
from repro.trainers.models.initial import thirds

HIDDEN = -math.inf
"""The causal mask's score; each position sees itself, so that no softmax is without a finite score."""


class LayerNorm(nn.LayerNorm):
    """Layer norm in the precision of its input."""

    def forward(self, x):
        with torch.autocast(x.device.type, enabled=False):
            return F.layer_norm(x, self.normalized_shape, self.weight.to(x.dtype), self.bias.to(x.dtype), self.eps)


def norm(config: BaselineConfig, epsilon: float) -> nn.LayerNorm:
    """A layer norm over a transformer's hidden size, of the variant."""
    kind = LayerNorm if config.baseline.unfused else nn.LayerNorm
    return kind(config.shape.hidden_size, epsilon)


class CausalAttention(Attention):
    """Causal self-attention of x (s, b, h), in which no operand of a product is copied first.

    The scale is part of the product, as in the report of May 2021; that of December 2020 scales with the mask.
    """

    def forward(self, x, hidden=None):
        """Map x; `hidden` (s, s) says which scores are behind a position."""
        length, batch, size = x.shape
        heads = self.inward(x).view(length, batch * self.heads, -1).transpose(0, 1)
        query, key, value = heads.chunk(3, dim=-1)
        nothing, scale = query.new_empty((1, 1, 1)), 1.0 / math.sqrt(query.shape[-1])
        scores = torch.baddbmm(nothing, query, key.transpose(1, 2), beta=0.0, alpha=scale)
        weights = F.dropout(softmax(scores.masked_fill(hidden, HIDDEN)), self.dropout)
        return self.outward(torch.bmm(weights, value).transpose(0, 1).reshape(length, batch, size))


class PaddedAttention(nn.Module):
    """BERT's self-attention: three products for queries, keys and values; the mask is made in each layer."""

    def __init__(self, make: Parameters, name: str, size: int, heads: int, std: float, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (
            make.linear(f"{name}.inward", size, 3 * size, INITIAL_STD, columns) for columns in thirds(heads, size)
        )
        self.outward = make.linear(f"{name}.outward", size, size, std)
        self.dropout = dropout

    def forward(self, x, valid):
        """Map x (b, s, h); `valid` (b, s, s) is 1 for scores that count, else 0."""
        batch, length, size = x.shape
        query, key, value = (
            projection(x).view(batch, length, self.heads, -1).transpose(1, 2)
            for projection in (self.query, self.key, self.value)
        )
        scores = (query @ key.transpose(-2, -1)) * (1.0 / math.sqrt(query.shape[-1]))
        mask = (valid.unsqueeze(1).to(scores.dtype) - 1.0) * -MASKED
        weights = F.dropout(softmax(scores + mask), self.dropout)
        return self.outward((weights @ value).transpose(1, 2).reshape(batch, length, size))


def softmax(x):
    """Softmax along the last dimension, in the precision of x."""
    with torch.autocast(x.device.type, enabled=False):
        return torch.softmax(x, dim=-1)
