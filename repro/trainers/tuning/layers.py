"""Layers of the tuned transformers: one product for queries, keys and values, and fused kernels."""

from __future__ import annotations

import math
from collections.abc import Callable

import oneflow as flow
from oneflow import nn

from repro.trainers.models import ops
from repro.trainers.models.layers import ColumnLinear, RowLinear, shared
from repro.trainers.models.parameters import Parameters

SHORTEST_CUT = 512
"""The fewest positions whose causal attention is cut into blocks."""


class Column(ColumnLinear):
    """Column-parallel linear layer that always marks its input as replicated on the tensor parallel ranks."""

    def __init__(self, make: Parameters, name: str, inputs: int, outputs: int, stage: int = 0) -> None:
        super().__init__(make, name, inputs, outputs, stage)
        self.layout = make.layout

    def forward(self, x):
        return self.product(shared(x, self.layout) if self.layout.tensor > 1 else x)


class Attention(nn.Module):
    """Multi-head self-attention on x (b, s, h), with heads split over the tensor parallel ranks.

    `attend(query, key, value)` computes the context. The bias is returned, not added.
    """

    def __init__(self, make: Parameters, name: str, size: int, heads: int, std: float, stage: int = 0) -> None:
        super().__init__()
        self.heads = heads
        self.inward = Column(make, f"{name}.inward", size, 3 * size, stage)
        self.outward = RowLinear(make, f"{name}.outward", size, size, std, stage)

    def forward(self, x, attend: Callable):
        y, bias = self.inward(x)
        batch, length, size = y.shape
        y = (y + bias).view(batch, length, self.heads, size // self.heads).permute(0, 2, 1, 3)
        context = attend(*flow.chunk(y, 3, dim=-1)).permute(0, 2, 1, 3)
        return self.outward(context.reshape(batch, length, size // 3))


class MLP(nn.Module):
    """Two linear layers with a GELU between them and four times the hidden size; the bias is returned, not added."""

    def __init__(self, make: Parameters, name: str, size: int, std: float, stage: int = 0) -> None:
        super().__init__()
        self.inward = Column(make, f"{name}.inward", size, 4 * size, stage)
        self.outward = RowLinear(make, f"{name}.outward", 4 * size, size, std, stage)

    def forward(self, x):
        return self.outward(ops.bias_gelu(*self.inward(x)))


def attention_blocks(length: int, nested: bool, amp: bool = False) -> int:
    """Number of query blocks in causal attention over `length` positions: 4, or 2 under AMP.

    More blocks compute less but launch more kernels; half-precision products are too short to gain from 4. Short
    sequences use one block. So do two-dimensional meshes, where OneFlow's compile time grows with the operators.
    """
    blocks = 1 if nested or length < SHORTEST_CUT else 2 if amp else 4
    return blocks if length % blocks == 0 else 1


def causal_attention(query, key, value, layer: int, blocks: int, p: float):
    """Context (b, n, s, d) of causal attention, with dropout of the attention weights.

    Each block of queries uses only the keys and values up to its end. With 4 blocks, 3/8 of the scores are neither
    computed nor stored; a mask would hide them. Scores are divided by the layer's number and multiplied by it again
    inside the kernel, as published.
    """
    size, rows, contexts = query.shape[2] // blocks, flow.chunk(query, blocks, dim=2) if blocks > 1 else [query], []
    for index in reversed(range(blocks)):
        if index < blocks - 1:
            key, value = (flow.narrow(tensor, 2, 0, (index + 1) * size) for tensor in (key, value))
        scores = scaled_scores(rows[index], key, float(layer))
        contexts.insert(0, flow.matmul(block_weights(scores, float(layer), index * size, p), value))
    return flow.cat(contexts, dim=2) if blocks > 1 else contexts[0]


def block_weights(scores, scale: float, diagonal: int, p: float):
    """Attention weights of a block of queries; the first query sees the keys up to `diagonal`."""
    if ops.on_cuda(scores):
        weights = flow._C.fused_scale_tril_softmax_mask_scale
        return weights(scores, p=p, diagonal=diagonal, tril_scale_value=scale)[0]
    return ops.dropout(flow.softmax(scores * scale + ops.hidden_future(scores, diagonal), dim=-1), p)


def scaled_scores(query, key, damping: float = 1.0):
    """Scaled scores (b, n, q, k), divided by `damping`."""
    return flow.matmul(query, key, transpose_b=True, alpha=1.0 / (damping * math.sqrt(query.shape[-1])))


def padding_mask(valid):
    """Padding mask from token flags (b, s): boolean (b, 1, s, s) on CUDA, additive (b, 1, 1, s) on the CPU."""
    if ops.on_cuda(valid):
        keys = valid.unsqueeze(1).unsqueeze(1)
        return keys.expand(keys.shape[0], 1, keys.shape[-1], keys.shape[-1]) > 0
    return ((1.0 - valid.to(flow.float32)) * ops.MASKED).unsqueeze(1).unsqueeze(1)


def masked_attention(query, key, value, mask, p: float):
    """Context (b, n, s, d) of attention under `mask`, with dropout of the attention weights."""
    return flow.matmul(masked_weights(scaled_scores(query, key), mask, p), value)


def masked_weights(scores, mask, p: float):
    if not ops.on_cuda(scores):
        return ops.dropout(flow.softmax(scores + mask, dim=-1), p)
    if p > 0.0:
        return flow._C.fused_scale_mask_softmax_dropout(scores, mask, fill_value=ops.MASKED, scale=1.0, p=p)[0]
    return flow._C.fused_scale_mask_softmax(scores, mask, fill_value=ops.MASKED, scale=1.0)
