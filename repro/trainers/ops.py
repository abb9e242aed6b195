"""Operators that differ between devices: fused kernels on CUDA, plain ones on the CPU.

A kernel that a device lacks ends the process (OneFlow 0.8.0), so nothing here is tried: the tensor's device decides.
"""
from __future__ import annotations

import math

import oneflow as flow

from repro.trainers.layout import BROADCAST

MASKED = -10000.0
"""What is added to a score that must not count; it fits half precision and its exponential is 0."""

ATTENTION_BLOCKS = 4
SHORTEST_BLOCK = 128
"""Into how many blocks causal attention may cut its queries, and the fewest queries in one."""


def layer_norm(x, weight, bias, epsilon: float):
    """Normalise the last dimension, then scale and shift it.

    On the CPU OneFlow's own layer norm has no gradient in a graph, and broadcasting a column over a row is slow. There
    one matrix product takes the mean and spreads it, with a matrix whose elements are all 1 / size.
    """
    if x.is_cuda:
        last = x.ndim - 1
        return flow._C.layer_norm_affine(
            x, weight, bias, begin_norm_axis=last, begin_params_axis=last, epsilon=epsilon
        )
    size, shared = x.shape[-1], [BROADCAST] * len(x.sbp)
    average = flow.full((size, size), 1.0 / size, dtype=x.dtype, placement=x.placement, sbp=shared)
    centred = x - flow.matmul(x, average)
    scale = flow.rsqrt(flow.matmul(centred * centred, average) + epsilon)
    return centred * scale * weight + bias


def halved(x):
    """Mark x for half precision under AMP, and so what is computed from it; without AMP nothing happens."""
    return flow._C.amp_white_identity(x)


def bias_gelu(x, bias):
    """Add a bias to the last dimension and apply the GELU (by the error function on both devices)."""
    if x.is_cuda:
        return flow._C.fused_bias_add_gelu(x, bias, axis=x.ndim - 1)
    return flow.nn.functional.gelu(x + bias)


def bias_dropout(x, bias, p: float):
    """Add a bias to the last dimension and drop elements with probability p."""
    if x.is_cuda and p > 0.0:
        return flow._C.fused_bias_add_dropout(x, bias, p=p, axis=x.ndim - 1)
    return dropout(x + bias, p)


def dropout(x, p: float):
    return flow.nn.functional.dropout(x, p=p) if p > 0.0 else x


def causal_attention(query, key, value, blocks: int, layer: int, mask, p: float):
    """Context (b, n, s, d) of each position from those up to its own, with dropout of the attention weights.

    The queries are taken in blocks, each with the keys and values up to its end only: with 4 blocks 3/8 of the scores,
    which a mask would hide, are neither computed nor stored. Too short a text stays in one piece.
    """
    length = query.shape[2]
    if blocks == 1 or length < blocks * SHORTEST_BLOCK or length % blocks:
        return flow.matmul(causal_weights(query, key, 0, layer, mask, p), value)
    size = length // blocks
    rows, contexts = flow.chunk(query, blocks, dim=2), []
    for index in reversed(range(blocks)):
        if index < blocks - 1:
            key, value = (flow.narrow(each, 2, 0, (index + 1) * size) for each in (key, value))
        contexts.insert(0, flow.matmul(causal_weights(rows[index], key, index * size, layer, mask, p), value))
    return flow.cat(contexts, dim=2)


def causal_weights(query, key, first: int, layer: int, mask, p: float):
    """Attention weights (b, n, q, k) of the positions `first` to `first` + q over the first k, after dropout.

    On CUDA the scores are divided by the layer's number and multiplied by it again inside the softmax kernel, which
    computes in fp32: half-precision scores of deep layers stay in range, as in the published program. The kernel
    makes the mask itself; on the CPU its part of `mask` (1, 1, s, s) is added.
    """
    damping = float(layer) if query.is_cuda else 1.0
    scores = flow.matmul(query, key, transpose_b=True, alpha=1.0 / (damping * math.sqrt(query.shape[-1])))
    if not scores.is_cuda:
        if mask.shape[2:] != scores.shape[2:]:
            mask = flow.narrow(flow.narrow(mask, 2, first, scores.shape[2]), 3, 0, scores.shape[3])
        return dropout(flow.softmax(scores + mask, dim=-1), p)
    fused = flow._C.fused_scale_tril_softmax_mask_scale
    return fused(scores, p=p, diagonal=first, tril_scale_value=damping)[0]


def padding_mask(valid):
    """Turn (b, s) flags of real tokens into the mask of masked_weights: flags (b, 1, s, s) or addends (b, 1, 1, s)."""
    if valid.is_cuda:
        keys = valid.unsqueeze(1).unsqueeze(1)
        return keys.expand(keys.shape[0], 1, keys.shape[-1], keys.shape[-1]) > 0
    return ((1.0 - valid.to(flow.float32)) * MASKED).unsqueeze(1).unsqueeze(1)


def masked_attention(query, key, value, mask, p: float):
    """Context (b, n, s, d) from the positions that `mask` lets through, with dropout of the attention weights."""
    return flow.matmul(masked_weights(query, key, mask, p), value)


def masked_weights(query, key, mask, p: float):
    """Attention weights (b, n, s, s) over the positions that `mask` lets through, after dropout."""
    scores = flow.matmul(query, key, transpose_b=True, alpha=1.0 / math.sqrt(query.shape[-1]))
    if not scores.is_cuda:
        return dropout(flow.softmax(scores + mask, dim=-1), p)
    if p > 0.0:
        fused = flow._C.fused_scale_mask_softmax_dropout
        return fused(scores, mask, fill_value=MASKED, scale=1.0, p=p)[0]
    return flow._C.fused_scale_mask_softmax(scores, mask, fill_value=MASKED, scale=1.0)


def cross_entropy(logits, labels, rows: list):
    """Losses (n,) of logits (n, classes), whose classes may be split over ranks.

    CUDA has a kernel for split classes; on the CPU they are gathered first, to the signature `rows`, and the gradient
    is split again.
    """
    if not logits.is_cuda and list(logits.sbp) != rows:
        logits = logits.to_global(sbp=rows, grad_sbp=logits.sbp)
    return flow._C.sparse_softmax_cross_entropy(logits, labels)
