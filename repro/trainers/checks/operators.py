"""The operators that the models use, in the shapes in which they use them, each beside a plain form of itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import oneflow as flow

from repro.trainers.layout import BROADCAST
from repro.trainers.models import ops
from repro.trainers.models.resnet import EPSILON, MOMENTUM
from repro.trainers.models.resnet_blocks import EXPANSION, bottlenecks

SINGLE, HALF = "fp32", "fp16"
TOLERANCES = {SINGLE: 1e-4, HALF: 5e-3}
RECTIFIED = 5e-3
"""Tolerance behind a ReLU: rounding puts an element or two on the other side of zero."""

NO_DROPS = 1e-30
"""A probability of dropout that chooses the kernels of dropout and drops nothing."""

LAYER = 3
"""Number of the layer, by which causal attention divides its scores and multiplies them again."""


@dataclass(frozen=True)
class Input:
    """A tensor that an operator takes: normal numbers times `scale`, or whole numbers below `below`.

    What lies at one place of `axis` decides what lies there in the result, and nothing else does; None for a tensor
    that decides everything, such as a weight.
    """

    name: str
    shape: tuple[int, ...]
    axis: int | None = 0
    scale: float = 1.0
    below: int = 0


@dataclass(frozen=True)
class Operator:
    """`call` is what the models compute, `plain` the same on the CPU in fp64; both take the inputs and give a tensor.

    `axis` is that of the inputs in the result. Only the places `places` of it are compared with the CPU. `rewritten`
    says that on CUDA the models' graph changes the operator before it is compiled.
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
    rewritten: bool = False

    @property
    def limit(self) -> float:
        """The largest relative error that rounding explains."""
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


@dataclass(frozen=True)
class Scale:
    """Sizes of all three models; `images` of `side` pixels a micro-batch, `width` channels after the stem."""

    images: int
    width: int
    side: int
    gpt: Text
    bert: Text


SCALES = {
    "published": Scale(128, 64, 224, Text(2, 2048, 16, 1536, 50304), Text(96, 128, 12, 768, 30522, 20)),
    "small": Scale(4, 8, 64, Text(2, 1024, 2, 16, 128), Text(4, 16, 2, 16, 100, 3)),
}


def operators(scale: Scale, device: str) -> list[Operator]:
    """All operators; those in half precision on CUDA only, since the CPU has no kernels for it."""
    found = [*convolutions(scale), *norms(scale), pooling(scale)]
    for precision in (SINGLE, HALF) if device == "cuda" else (SINGLE,):
        found += gpt(scale.gpt, precision)
    return [*found, *bert(scale.bert)]


def convolutions(scale: Scale) -> Iterator[Operator]:
    """One of each shape in ResNet50."""
    width, side = scale.width, scale.side // 4
    shapes = [(3, width, 7, 2, scale.side)]
    for _, inputs, inner, stride in bottlenecks(width):
        outputs = inner * EXPANSION
        shapes += [(inputs, inner, 1, 1, side), (inner, inner, 3, stride, side), (inner, outputs, 1, 1, side // stride)]
        if inputs != outputs:
            shapes.append((inputs, outputs, 1, stride, side))
        side //= stride
    for inputs, outputs, size, stride, side in dict.fromkeys(shapes):

        def call(x, weight, stride=stride, padding=size // 2):
            return flow._C.conv2d(x, weight, None, stride=[stride, stride], padding=[padding, padding])

        name = f"convolution {inputs} to {outputs}, {size}x{size}, stride {stride}, at {side}x{side}"
        weight = Input("weight", (outputs, inputs, size, size), None, 1.0 / math.sqrt(inputs * size**2))
        data = Input("data", (scale.images, inputs, side, side))
        yield Operator(name, ("resnet50",), SINGLE, (data, weight), call, call)


def norms(scale: Scale) -> Iterator[Operator]:
    """Batch normalisation as after the stem, and with an addition as at the end of each stage's blocks."""
    for channels, side, adds in (
        (scale.width, scale.side // 2, False),
        (4 * scale.width, scale.side // 4, True),
        (16 * scale.width, scale.side // 16, True),
        (32 * scale.width, scale.side // 32, True),
        (4 * scale.width, scale.side // 4, None),
    ):
        data = Input("data", (scale.images, channels, side, side), 1)
        addend = (Input("addend", data.shape, 1),) if adds else ()
        inputs = (data, *addend, Input("weight", (channels,)), Input("bias", (channels,)))
        name = "batch norm" if adds is None else "batch norm, addition, ReLU" if adds else "batch norm, ReLU"
        yield Operator(
            f"{name}, {channels} channels at {side}x{side}",
            ("resnet50",),
            SINGLE,
            inputs,
            batch_norm if adds is None else batch_norm_relu,
            plain_batch_norm if adds is None else plain_batch_norm_relu,
            axis=1,
            tolerance=0.0 if adds is None else RECTIFIED,
        )


def batch_norm(x, weight, bias):
    return flow._C.normalization(
        x, *statistics(x), weight, bias, axis=1, epsilon=EPSILON, momentum=MOMENTUM, is_training=True
    )


def batch_norm_relu(x, *rest):
    addend, weight, bias = rest if len(rest) == 3 else (None, *rest)
    return flow._C.normalization_add_relu(
        x, addend, *statistics(x), weight, bias, axis=1, epsilon=EPSILON, momentum=MOMENTUM, is_training=True
    )


def statistics(x) -> tuple:
    """Running mean and variance of a network that has seen nothing yet."""
    return tuple(
        flow.full((x.shape[1],), value, dtype=flow.float32, placement=x.placement, sbp=BROADCAST)
        for value in (0.0, 1.0)
    )


def plain_batch_norm(x, weight, bias):
    centred = x - x.mean(dim=(0, 2, 3), keepdim=True)
    variance = (centred * centred).mean(dim=(0, 2, 3), keepdim=True)
    return centred * flow.rsqrt(variance + EPSILON) * weight.view(1, -1, 1, 1) + bias.view(1, -1, 1, 1)


def plain_batch_norm_relu(x, *rest):
    addend, weight, bias = rest if len(rest) == 3 else (0.0, *rest)
    return flow.relu(plain_batch_norm(x, weight, bias) + addend)


def pooling(scale: Scale) -> Operator:
    pool = flow.nn.MaxPool2d(3, 2, 1)
    data = Input("data", (scale.images, scale.width, scale.side // 2, scale.side // 2))
    return Operator("max pooling", ("resnet50",), SINGLE, (data,), pool, pool)


def gpt(sizes: Text, precision: str) -> list[Operator]:
    attention = tuple(Input(name, sizes.heads_shape, 1) for name in ("query", "key", "value"))
    causal = [
        Operator(
            f"causal attention{how}, gpt {precision}",
            ("gpt",),
            precision,
            attention,
            call,
            plain_causal_attention,
            axis=1,
            places=1,
            rewritten=True,
        )
        for how, call in (("", causal_attention), (" in one piece", partial(causal_attention, blocks=1)))
    ]
    return [*transformer("gpt", sizes, precision), *causal]


def bert(sizes: Text) -> list[Operator]:
    attention = tuple(Input(name, sizes.heads_shape) for name in ("query", "key", "value"))
    valid = Input("valid", (sizes.samples, sizes.length), below=2)
    data = Input("data", sizes.tokens_shape)
    positions = Input("positions", (sizes.samples, sizes.predictions), below=sizes.length)
    masked = Operator(
        "masked attention, bert fp32", ("bert",), SINGLE, (*attention, valid), masked_attention, plain_masked_attention
    )
    gather = Operator(
        "gather in a sample, bert fp32", ("bert",), SINGLE, (data, positions), flow._C.batch_gather, plain_batch_gather
    )
    return [*transformer("bert", sizes, SINGLE), masked, gather]


def transformer(model: str, sizes: Text, precision: str) -> list[Operator]:
    """What GPT and BERT share, in the sizes of one of them."""
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


def plain_batch_gather(x, positions):
    return flow.matmul(one_hot(positions, x.shape[1]), x)


def causal_attention(query, key, value, blocks: int = 0):
    """Causal attention in `blocks`, or in as many as the models cut it into."""
    blocks = blocks or ops.attention_blocks(query.shape[2], nested=False, amp=query.dtype == flow.float16)
    masks = []
    if not query.is_cuda:
        for values in ops.causal_masks(query.shape[2], blocks):
            masks.append(flow.tensor(values).to_global(placement=query.placement, sbp=BROADCAST))
    return ops.causal_attention(query, key, value, LAYER, blocks, masks, NO_DROPS)


def future(length: int) -> np.ndarray:
    """What hides from each position (row) those behind it, (1, 1, length, length)."""
    return np.triu(np.full((1, 1, length, length), ops.MASKED), 1)


def plain_causal_attention(query, key, value):
    return plain_attention(query, key, value, flow.tensor(future(query.shape[2]), dtype=flow.float64))


def masked_attention(query, key, value, valid):
    return ops.masked_attention(query, key, value, ops.padding_mask(valid), NO_DROPS)


def plain_masked_attention(query, key, value, valid):
    hidden = (1.0 - valid.to(flow.float64)) * ops.MASKED
    return plain_attention(query, key, value, hidden.view(valid.shape[0], 1, 1, valid.shape[1]))


def plain_attention(query, key, value, mask):
    scores = flow.matmul(query, key.transpose(2, 3)) / math.sqrt(query.shape[-1]) + mask
    weights = flow.exp(scores - scores.max(dim=-1, keepdim=True)[0].detach())
    return flow.matmul(weights, value) / weights.sum(dim=-1, keepdim=True)
