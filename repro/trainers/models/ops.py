"""Operators that differ between devices: fused kernels on CUDA, plain ones on the CPU.

A kernel that a device lacks ends the process (OneFlow 0.8.0), so nothing here is tried: the tensor's device decides.
"""

from __future__ import annotations

import math

import numpy as np
import oneflow as flow

from repro.trainers.layout import BROADCAST

MASKED = -10000.0
"""What is added to a score that must not count; it fits half precision and its exponential is 0."""

SHORTEST_CUT = 512
"""The fewest positions whose causal attention is cut into blocks."""


def layer_norm(x, weight, bias, epsilon: float):
    """Normalise the last dimension, then scale and shift it.

    On the CPU OneFlow's own layer norm has no gradient in a graph, and broadcasting a column over a row is slow. There
    one matrix product takes the mean and spreads it, with a matrix whose elements are all 1 / size.
    """
    if x.is_cuda:
        last = x.ndim - 1
        return flow._C.layer_norm_affine(x, weight, bias, begin_norm_axis=last, begin_params_axis=last, epsilon=epsilon)
    size, shared = x.shape[-1], [BROADCAST] * len(x.sbp)
    average = flow.full((size, size), 1.0 / size, dtype=x.dtype, placement=x.placement, sbp=shared)
    centred = x - flow.matmul(x, average)
    scale = flow.rsqrt(flow.matmul(centred * centred, average) + epsilon)
    return centred * scale * weight + bias


def to_half(x):
    """Mark x for half precision, and so what is computed from it; only under AMP."""
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


def attention_blocks(length: int, nested: bool, amp: bool = False) -> int:
    """Into how many blocks the queries of a causal attention over `length` positions are cut: 4, under AMP 2.

    More blocks compute less and launch more kernels: the products of half precision are too quick for 4. Too short a
    text stays in one piece. So does one on a two-dimensional mesh of ranks: OneFlow compiles slowly for it, the more
    so the more operators there are.
    """
    blocks = 1 if nested or length < SHORTEST_CUT else 2 if amp else 4
    return blocks if length % blocks == 0 else 1


def causal_masks(length: int, blocks: int) -> list[np.ndarray]:
    """What the CPU adds to the scores of each block's positions (rows): (1, 1, length / blocks, end of the block)."""
    size, hidden = length // blocks, np.triu(np.full((1, 1, length, length), MASKED, np.float32), 1)
    return [hidden[:, :, end - size : end, :end] for end in range(size, length + 1, size)]


def causal_attention(query, key, value, layer: int, blocks: int, masks: tuple, p: float):
    """Context (b, n, s, d) of each position from those up to its own, with dropout of the attention weights.

    The queries are taken in blocks, each with the keys and values up to its end only: with 4 blocks 3/8 of the scores,
    which a mask would hide, are neither computed nor stored. `masks` has one for each block on the CPU, none on CUDA.

    On CUDA the published program's kernel hides what is behind a position, rightly only in a RewrittenGraph. The scores
    are divided by the layer's number and multiplied by it again inside the kernel, which computes in fp32: so
    half-precision scores of deep layers stay in range, as published.
    """
    size, rows, contexts = query.shape[2] // blocks, flow.chunk(query, blocks, dim=2) if blocks > 1 else [query], []
    for index in reversed(range(blocks)):
        if index < blocks - 1:
            key, value = (flow.narrow(each, 2, 0, (index + 1) * size) for each in (key, value))
        if query.is_cuda:
            scores = scaled_scores(rows[index], key, float(layer))
            causal_softmax = flow._C.fused_scale_tril_softmax_mask_scale
            weights = causal_softmax(scores, p=p, diagonal=index * size, tril_scale_value=float(layer))[0]
        else:
            weights = attention_weights(rows[index], key, masks[index], p)
        contexts.insert(0, flow.matmul(weights, value))
    return flow.cat(contexts, dim=2) if blocks > 1 else contexts[0]


def padding_mask(valid):
    """Turn (b, s) flags of real tokens into attention_weights' mask: flags (b, 1, s, s) or addends (b, 1, 1, s)."""
    if valid.is_cuda:
        keys = valid.unsqueeze(1).unsqueeze(1)
        return keys.expand(keys.shape[0], 1, keys.shape[-1], keys.shape[-1]) > 0
    return ((1.0 - valid.to(flow.float32)) * MASKED).unsqueeze(1).unsqueeze(1)


def masked_attention(query, key, value, mask, p: float):
    """Context (b, n, s, d) from the positions that `mask` lets through, with dropout of the attention weights."""
    return flow.matmul(attention_weights(query, key, mask, p), value)


def attention_weights(query, key, mask, p: float):
    """Attention weights (b, n, q, k) over the positions that `mask` lets through, after dropout.

    `mask` has flags on CUDA and addends on the CPU.
    """
    scores = scaled_scores(query, key)
    if not scores.is_cuda:
        return dropout(flow.softmax(scores + mask, dim=-1), p)
    if p > 0.0:
        return flow._C.fused_scale_mask_softmax_dropout(scores, mask, fill_value=MASKED, scale=1.0, p=p)[0]
    return flow._C.fused_scale_mask_softmax(scores, mask, fill_value=MASKED, scale=1.0)


def scaled_scores(query, key, damping: float = 1.0):
    """Scores (b, n, q, k) of keys for queries, divided by `damping`."""
    return flow.matmul(query, key, transpose_b=True, alpha=1.0 / (damping * math.sqrt(query.shape[-1])))


def cross_entropy(logits, labels, rows: list):
    """Losses (n,) of logits (n, classes), whose classes may be split over ranks.

    CUDA has a kernel for split classes; on the CPU they are gathered first, to the signature `rows`, and the gradient
    is split again.
    """
    if not logits.is_cuda and list(logits.sbp) != rows:
        logits = logits.to_global(sbp=rows, grad_sbp=logits.sbp)
    return flow._C.sparse_softmax_cross_entropy(logits, labels)
