"""Operators in the shapes that the models use, each with a plain reference implementation.

A model's module lists its operators (`operators`). This module has the types, and the operators common to transformers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import oneflow as flow

from repro.trainers.layout import BROADCAST
from repro.trainers.models import ops

SINGLE, HALF = "fp32", "fp16"
TOLERANCES = {SINGLE: 1e-4, HALF: 5e-3}
NO_DROPS = 1e-30
"""A probability of dropout that chooses the kernels of dropout and drops nothing."""

EPSILON = 1e-5
"""Of layer normalisation."""


@dataclass(frozen=True)
class Input:
    """A random input of an operator: normal numbers times `scale`, or integers below `below`.

    An index of `axis` affects the result at the same index only. `axis` is None for a tensor that affects the whole
    result, such as a weight.
    """

    name: str
    shape: tuple[int, ...]
    axis: int | None = 0
    scale: float = 1.0
    below: int = 0


@dataclass(frozen=True)
class Operator:
    """`call` is what the models compute, `plain` its reference on the CPU in fp64; both map the inputs to a tensor.

    `axis` is the axis of the result that corresponds to the inputs' `axis`; only its indices `places` are compared with
    the CPU. `changes` are applied to the CUDA job, as in the model's graph.
    """

    name: str
    models: tuple[str, ...]
    precision: str
    inputs: tuple[Input, ...]
    call: Callable
    plain: Callable
    axis: int = 0
    places: int = 2
    tolerance: float = 0.0
    changes: tuple[Callable, ...] = ()

    @property
    def limit(self) -> float:
        """The largest relative error that rounding can explain."""
        return self.tolerance or TOLERANCES[self.precision]


@dataclass(frozen=True)
class Text:
    """Sizes of a language model's micro-batch."""

    samples: int
    length: int
    heads: int
    hidden: int
    vocabulary: int
    predictions: int = 0

    @property
    def heads_shape(self) -> tuple[int, int, int, int]:
        return self.samples, self.heads, self.length, self.hidden // self.heads

    @property
    def tokens_shape(self) -> tuple[int, int, int]:
        return self.samples, self.length, self.hidden


def transformer(model: str, sizes: Text, precision: str) -> list[Operator]:
    """The operators common to transformers, in the sizes of one model."""
    rows, hidden, inner = sizes.samples * sizes.length, sizes.hidden, 4 * sizes.hidden

    def operator(name: str, inputs: tuple, call: Callable, plain: Callable, **more) -> Operator:
        return Operator(f"{name}, {model} {precision}", (model,), precision, inputs, call, plain, **more)

    def product(inputs: int, outputs: int, transposed: bool) -> Operator:
        shape = (outputs, inputs) if transposed else (inputs, outputs)
        weight = Input("weight", shape, None, 1.0 / math.sqrt(inputs))

        def call(x, weight):
            y = flow.matmul(x.view(*sizes.tokens_shape[:2], inputs), weight, transpose_b=transposed)
            return y.view(rows, outputs)

        def plain(x, weight):
            return flow.matmul(x, weight, transpose_b=transposed)

        return operator(f"product {inputs} to {outputs}", (Input("data", (rows, inputs)), weight), call, plain)

    def scores(query, key):
        return flow.matmul(query, key, transpose_b=True, alpha=1.0 / math.sqrt(query.shape[-1]))

    heads = tuple(Input(name, sizes.heads_shape, 1) for name in ("query", "key"))
    bias = Input("bias", (inner,), None)
    width, shift = Input("weight", (hidden,), None), Input("bias", (hidden,), None)
    table = Input("table", (sizes.vocabulary, hidden), None, 1.0 / math.sqrt(hidden))
    words = Input("words", (sizes.samples, sizes.length), below=sizes.vocabulary)
    count = sizes.samples * sizes.predictions or rows
    logits = Input("logits", (count, sizes.vocabulary))
    return [
        product(hidden, 3 * hidden, True),
        product(hidden, inner, True),
        product(inner, hidden, False),
        operator("scores of all heads", heads, scores, scores, axis=1, places=1),
        operator("product with the table", (Input("data", (count, hidden)), table), by_table, by_table),
        operator(
            "bias, GELU", (Input("data", (*sizes.tokens_shape[:2], inner)), bias), ops.bias_gelu, plain_gelu, places=1
        ),
        operator("bias, dropout", (Input("data", sizes.tokens_shape), shift), bias_dropout, flow.add),
        operator("layer norm", (Input("data", sizes.tokens_shape), width, shift), layer_norm, plain_layer_norm),
        operator("look-up", (table, words), look_up, look_up),
        operator(
            "cross entropy",
            (logits, Input("labels", (count,), below=sizes.vocabulary)),
            cross_entropy,
            plain_cross_entropy,
        ),
    ]


def by_table(x, table):
    return flow.matmul(x, table, transpose_b=True)


def bias_dropout(x, bias):
    return ops.bias_dropout(x, bias, NO_DROPS)


def plain_gelu(x, bias):
    x = x + bias
    return 0.5 * x * (1.0 + flow.erf(x / math.sqrt(2.0)))


def layer_norm(x, weight, bias):
    return ops.layer_norm(x, weight, bias, EPSILON)


def plain_layer_norm(x, weight, bias):
    centred = x - x.mean(dim=-1, keepdim=True)
    return centred * flow.rsqrt((centred * centred).mean(dim=-1, keepdim=True) + EPSILON) * weight + bias


def look_up(table, words):
    return flow._C.gather(table, words, axis=0)


def cross_entropy(logits, labels):
    return ops.cross_entropy(logits, labels, [BROADCAST])


def plain_cross_entropy(logits, labels):
    shifted = logits - logits.max(dim=1, keepdim=True)[0].detach()
    return flow.log(flow.exp(shifted).sum(dim=1)) - (shifted * one_hot(labels, logits.shape[1])).sum(dim=1)


def one_hot(places, count: int):
    return flow.tensor(np.eye(count)[places.numpy()], dtype=flow.float64)


def plain_attention(query, key, value, mask):
    scores = flow.matmul(query, key.transpose(2, 3)) / math.sqrt(query.shape[-1]) + mask
    weights = flow.exp(scores - scores.max(dim=-1, keepdim=True)[0].detach())
    return flow.matmul(weights, value) / weights.sum(dim=-1, keepdim=True)
