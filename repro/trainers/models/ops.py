"""The operators of the published programs: OneFlow's own on CUDA, plain ones where the CPU has no kernel.

OneFlow 0.8.0 aborts the process if a device lacks a kernel. The choice therefore depends on the tensor's device, not on
trial. Graphs that are built only for inspection use the CUDA operators on any machine (`as_on_cuda`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import oneflow as flow

from repro.trainers.layout import BROADCAST

MASKED = -10000.0
"""What is added to a score that must not count; it fits half precision and its exponential is 0."""
EVERYWHERE = {"cuda": False}


@contextmanager
def as_on_cuda() -> Iterator[None]:
    """Build graphs with the CUDA operators although tensors are on the CPU; these graphs cannot run."""
    EVERYWHERE["cuda"] = True
    try:
        yield
    finally:
        EVERYWHERE["cuda"] = False


def on_cuda(x) -> bool:
    return EVERYWHERE["cuda"] or x.is_cuda


def layer_norm(x, weight, bias, epsilon: float):
    """Normalise the last dimension, then scale and shift it.

    On the CPU, OneFlow's layer norm has no gradient in a graph, and broadcasting a column over a row is slow. There the
    mean is computed and broadcast by one product with a matrix whose elements are all 1 / size.
    """
    if on_cuda(x):
        last = x.ndim - 1
        return flow._C.layer_norm_affine(x, weight, bias, begin_norm_axis=last, begin_params_axis=last, epsilon=epsilon)
    size, shared = x.shape[-1], [BROADCAST] * len(x.sbp)
    average = flow.full((size, size), 1.0 / size, dtype=x.dtype, placement=x.placement, sbp=shared)
    centred = x - flow.matmul(x, average)
    scale = flow.rsqrt(flow.matmul(centred * centred, average) + epsilon)
    return centred * scale * weight + bias


def to_half(x):
    """Mark x, and everything computed from it, for half precision; effective only under AMP."""
    return flow._C.amp_white_identity(x)


def add_bias(x, bias):
    """Add a bias to the last dimension with OneFlow's dedicated operator."""
    return flow._C.bias_add(x, bias, axis=x.ndim - 1)


def gelu(x):
    """GELU, computed with the error function."""
    return flow._C.gelu(x)


def bias_gelu(x, bias):
    """Add a bias to the last dimension and apply GELU, computed with the error function on both devices."""
    if on_cuda(x):
        return flow._C.fused_bias_add_gelu(x, bias, axis=x.ndim - 1)
    return gelu(x + bias)


def bias_dropout(x, bias, p: float):
    """Add a bias to the last dimension and drop elements with probability p."""
    if on_cuda(x) and p > 0.0:
        return flow._C.fused_bias_add_dropout(x, bias, p=p, axis=x.ndim - 1)
    return dropout(x + bias, p)


def dropout(x, p: float):
    return flow._C.dropout(x, p=p) if p > 0.0 else x


def self_attention_scores(x, size: int, scale: float):
    """Scores (b, n, s, s) and values (b, n, s, d) from x (s, b, 3h), which interleaves query, key and value by head.

    `size` is the head size d; scores are multiplied by `scale`.
    """
    if on_cuda(x):
        return flow._C.fused_self_attention(x, head_size=size, alpha=scale)
    length, batch, width = x.shape
    heads = x.view(length, batch, width // (3 * size), 3 * size).permute(1, 2, 0, 3)
    query, key, value = flow.chunk(heads, 3, dim=-1)
    return flow.matmul(query, key, transpose_b=True, alpha=scale), value


def causal_weights(scores, scale: float, p: float):
    """Attention weights (b, n, s, s) after scaling by `scale`, causal masking, softmax and dropout.

    CUDA uses one fused kernel. Its Python function masks with 0; `changes.hide_future` restores the published minus
    infinity before the graph is compiled.
    """
    if on_cuda(scores):
        return flow._C.fused_scale_tril_softmax_mask_scale(scores, p=p, diagonal=0, tril_scale_value=scale)[0]
    return dropout(flow.softmax(scores * scale + hidden_future(scores), dim=-1), p)


def scaled_past(scores, scale: float):
    """Scores (b, n, s, s) times `scale`, with minus infinity at later positions."""
    if on_cuda(scores):
        return flow._C.fused_scale_tril(scores, diagonal=0, fill_value=-math.inf, scale=scale)
    return scores * scale + hidden_future(scores)


def hidden_future(scores, diagonal: int = 0):
    """Additive mask on the CPU for scores (…, s, t): row p does not see columns after p + diagonal."""
    shared = [BROADCAST] * len(scores.sbp)
    ones = flow.ones(1, 1, *scores.shape[-2:], dtype=scores.dtype, placement=scores.placement, sbp=shared)
    return (1.0 - flow.tril(ones, diagonal)) * MASKED


def cross_entropy(logits, labels, rows: list):
    """Losses (n,) of logits (n, classes), whose classes may be split over ranks.

    CUDA has a kernel for split classes. The CPU first gathers the logits to the signature `rows`, and splits the
    gradient again.
    """
    if not on_cuda(logits) and list(logits.sbp) != rows:
        logits = logits.to_global(sbp=rows, grad_sbp=logits.sbp)
    return flow._C.sparse_softmax_cross_entropy(logits, labels)
