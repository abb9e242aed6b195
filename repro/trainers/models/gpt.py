"""The GPT model of the published runs: pre-normalised decoder, learned positions, output tied to the token table."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import oneflow as flow
from oneflow import nn

from repro.models.gpt import SPEC
from repro.trainers.config import Config
from repro.trainers.data.tokens import TokenReader
from repro.trainers.layout import BROADCAST
from repro.trainers.models import ops
from repro.trainers.models.layers import (
    INITIAL_STD,
    MLP,
    Attention,
    LayerNorm,
    TokenEmbedding,
    VocabularyHead,
    look_up,
)
from repro.trainers.models.operators import (
    HALF,
    NO_DROPS,
    SINGLE,
    Input,
    Operator,
    Text,
    plain_attention,
    transformer,
)
from repro.trainers.models.parameters import Parameters, whole

EPSILON = 1e-5
MOST_LOGITS = 1 << 28
"""Of a rank at a time: 1 GiB in fp32, and as much again for the softmax that the gradient needs."""
MANY_LOGITS = 1 << 27
"""With more a head is cut at least once.

On an H200 that took 0.5 GB less of the published DP_1x1x1_2_1536x16, and no more time. To cut MP_1x1x1_8_768x12 once
more than MOST_LOGITS asks for took 276 MiB more.
"""


COMPARED = {"published": Text(2, 2048, 16, 1536, 50304), "small": Text(2, 1024, 2, 16, 128)}
"""Sizes in which operators are compared with the CPU, by scale."""
COMPARED_LAYER = 3
"""Number of the layer, by which causal attention divides its scores and multiplies them again."""


class Embedding(nn.Module):
    """Sum of token and position vectors.

    Positions are looked up, not broadcast: OneFlow sums the gradient of what was broadcast over few samples with a
    block of threads for each element, which took 3.8 ms of a published iteration on an H200.
    """

    def __init__(self, config: Config, make: Parameters) -> None:
        super().__init__()
        shape = config.shape
        self.positions = make.normal("positions.weight", (shape.seq_length, shape.hidden_size), INITIAL_STD)
        self.register_buffer("order", make.fixed(np.arange(shape.seq_length)))
        self.layout = make.layout
        self.dropout = config.dropout
        self.amp = config.precision == "amp"

    def forward(self, ids, table):
        positions = whole(self.positions, self.layout)
        if self.amp:
            table, positions = ops.to_half(table), ops.to_half(positions)
        x = look_up(table, ids, self.layout) + flow._C.gather(positions, ids * 0 + self.order, axis=0)
        return ops.dropout(x, self.dropout)


class Layer(nn.Module):
    """Attention and perceptron, each on the normalised input and added to it."""

    def __init__(self, config: Config, make: Parameters, index: int, stage: int, blocks: int) -> None:
        super().__init__()
        size, name = config.shape.hidden_size, f"layer{index}"
        std = INITIAL_STD / math.sqrt(2.0 * config.shape.layers)
        self.norm1 = LayerNorm(make, size, EPSILON, stage)
        self.attention = Attention(make, f"{name}.attention", size, config.shape.attention_heads, std, stage)
        self.norm2 = LayerNorm(make, size, EPSILON, stage)
        self.perceptron = MLP(make, f"{name}.perceptron", size, std, stage)
        self.number = index + 1
        self.blocks = blocks
        self.dropout = config.dropout

    def forward(self, x, *masks):
        attend = partial(ops.causal_attention, layer=self.number, blocks=self.blocks, masks=masks, p=self.dropout)
        x = x + ops.bias_dropout(*self.attention(self.norm1(x), attend), self.dropout)
        return x + ops.bias_dropout(*self.perceptron(self.norm2(x)), self.dropout)


class Head(nn.Module):
    """Losses of a batch, taken in parts of its positions where the logits of all would be too large.

    A part's loss is its mean divided by their number, so that the sum is the mean of all. Each has a backward pass of
    its own, with which `rewrite.take_turns` makes them follow each other.
    """

    def __init__(self, config: Config, make: Parameters, stage: int) -> None:
        super().__init__()
        self.norm = LayerNorm(make, config.shape.hidden_size, EPSILON, stage)
        sizes, amp = (config.shape.vocab_size, config.padded_vocab_size), config.precision == "amp"
        self.vocabulary = VocabularyHead(make, *sizes, stage, amp)
        positions = config.micro_batch * config.shape.seq_length
        logits = positions * config.padded_vocab_size // config.layout.tensor
        self.parts = 1 if make.layout.nested else head_parts(logits, config.shape.seq_length)

    def forward(self, x, table, labels):
        x = self.norm(x)
        if self.parts == 1:
            return (self.vocabulary(x, table, labels).mean(),)
        pairs = zip(*(flow.chunk(each, self.parts, dim=1) for each in (x, labels)))
        return tuple(self.vocabulary(part, table, targets).mean() / self.parts for part, targets in pairs)


def head_parts(logits: int, length: int) -> int:
    """Into how many parts of `length` positions a head is cut whose ranks have that many logits each: a power of 2."""
    parts = 1
    while length % (2 * parts) == 0 and (logits > parts * MOST_LOGITS or (parts == 1 and logits > MANY_LOGITS)):
        parts *= 2
    return parts


class GPT(nn.Module):
    """Mean next-token loss of a batch, and its `parts`; inputs are ids and labels, both (batch, seq_length).

    Where the head is on another stage than the embedding it has a table of its own there, `twin`, which
    `rewrite.tie_tables` keeps the same. A table that crossed over would do so with each micro-batch, and its gradient.
    """

    def __init__(self, config: Config, make: Parameters) -> None:
        super().__init__()
        layout, count = make.layout, config.shape.layers
        stages = [layout.stage_of(index, count) for index in range(count)]
        sizes = (config.shape.vocab_size, config.padded_vocab_size, config.shape.hidden_size)
        self.tokens = TokenEmbedding(make, *sizes)
        self.twin = TokenEmbedding(make, *sizes, layout.last_stage) if layout.pipeline > 1 else None
        self.embedding = Embedding(config, make)
        self.blocks = ops.attention_blocks(config.shape.seq_length, layout.nested, config.precision == "amp")
        layers = [Layer(config, make, index, stage, self.blocks) for index, stage in enumerate(stages)]
        self.layers = nn.ModuleList(layers)
        self.head = Head(config, make, layout.last_stage)
        self.layout = layout
        self.add_masks(config.shape.seq_length, make)

    def add_masks(self, length: int, make: Parameters) -> None:
        """Give each stage causal masks of its own, one for each block of the attention, where its device needs them."""
        masks = ops.causal_masks(length, self.blocks) if self.layout.device == "cpu" else []
        stages = range(self.layout.pipeline)
        self.mask_names = [[f"mask{stage}_{block}" for block in range(len(masks))] for stage in stages]
        for stage, names in enumerate(self.mask_names):
            for name, values in zip(names, masks):
                self.register_buffer(name, make.fixed(values, stage))

    def forward(self, ids, labels):
        table = self.tokens()
        x = self.embedding(ids, table)
        for index, layer in enumerate(self.layers):
            names = self.mask_names[self.layout.stage_of(index, len(self.layers))]
            x = layer(x, *(getattr(self, name) for name in names))
        losses = self.head(x, self.twin() if self.twin else table, labels)
        return {"loss": sum(losses[1:], losses[0]), "parts": losses}

    def stages(self) -> list:
        """Each part that runs as one unit, with the stage that holds it."""
        count = len(self.layers)
        layers = [(layer, self.layout.stage_of(index, count)) for index, layer in enumerate(self.layers)]
        last = self.layout.last_stage
        twin = [(self.twin, last)] if self.twin else []
        return [(self.tokens, 0), (self.embedding, 0), *layers, *twin, (self.head, last)]


MODEL = GPT
READERS = {"megatron": TokenReader}


def operators(scale: str, device: str) -> list[Operator]:
    """The model's operators in the sizes of a scale; in half precision only on CUDA, as the CPU has no such kernels."""
    sizes = COMPARED[scale]
    precisions = (SINGLE, HALF) if device == "cuda" else (SINGLE,)
    return [each for precision in precisions for each in operators_in(sizes, precision)]


def operators_in(sizes: Text, precision: str) -> list[Operator]:
    attention = tuple(Input(name, sizes.heads_shape, 1) for name in ("query", "key", "value"))
    causal = [
        Operator(
            f"causal attention{how}, {SPEC.name} {precision}",
            (SPEC.name,),
            precision,
            attention,
            call,
            plain_causal_attention,
            axis=1,
            places=1,
            rewritten=True,
        )
        for how, call in (("", compared_attention), (" in one piece", partial(compared_attention, blocks=1)))
    ]
    return [*transformer(SPEC.name, sizes, precision), *causal]


def compared_attention(query, key, value, blocks: int = 0):
    """Causal attention in `blocks`, or in as many as the models cut it into."""
    blocks = blocks or ops.attention_blocks(query.shape[2], nested=False, amp=query.dtype == flow.float16)
    masks = []
    if not query.is_cuda:
        for values in ops.causal_masks(query.shape[2], blocks):
            masks.append(flow.tensor(values).to_global(placement=query.placement, sbp=BROADCAST))
    return ops.causal_attention(query, key, value, COMPARED_LAYER, blocks, masks, NO_DROPS)


def future(length: int) -> np.ndarray:
    """What hides from each position (row) those behind it, (1, 1, length, length)."""
    return np.triu(np.full((1, 1, length, length), ops.MASKED), 1)


def plain_causal_attention(query, key, value):
    return plain_attention(query, key, value, flow.tensor(future(query.shape[2]), dtype=flow.float64))
