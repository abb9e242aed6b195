"""GPT as published in May 2021 (form "gpt-3d") and, small, in December 2020 ("gpt-2").

Pre-normalised decoder with learned positions and tied input and output embeddings. Between embedding and head,
activations are (s, b, h) in "gpt-3d" and (b, s, h) in "gpt-2".
"""

from __future__ import annotations

import math

import numpy as np
import oneflow as flow
from oneflow import nn

from repro.models.gpt import SPEC
from repro.trainers.config import Config
from repro.trainers.data.tokens import TokenReader
from repro.trainers.graph.changes import CHANGES
from repro.trainers.models import ops
from repro.trainers.models.initial import thirds
from repro.trainers.models.layers import (
    INITIAL_STD,
    ColumnLinear,
    Dense,
    LayerNorm,
    RowLinear,
    TokenEmbedding,
    look_up,
    shared,
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
from repro.trainers.models.parameters import Parameters

EPSILON = 1e-5
POSITIONS_STD = {"gpt-3d": INITIAL_STD, "gpt-2": 0.01}
"""Standard deviation of initial position vectors, by form."""
SAMPLES = 1
"""Axis of the samples in the activations of "gpt-3d"."""

COMPARED = {"published": Text(2, 2048, 16, 1536, 50304), "small": Text(2, 1024, 2, 16, 128)}
"""Sizes in which operators are compared with the CPU, by scale."""
COMPARED_LAYER = 3
"""Number of the layer, by which causal attention divides its scores and multiplies them again."""


def outward_std(config: Config) -> float:
    """Standard deviation of the initial weights of projections that feed a residual connection."""
    return INITIAL_STD if config.choices.form == "gpt-2" else INITIAL_STD / math.sqrt(2.0 * config.shape.layers)


class Embedding(nn.Module):
    """Sum of token and position embeddings, in the shape that the layers take."""

    def __init__(self, config: Config, make: Parameters) -> None:
        super().__init__()
        shape, self.form = config.shape, config.choices.form
        std = POSITIONS_STD[self.form]
        self.positions = make.normal("positions.weight", (shape.seq_length, shape.hidden_size), std)
        self.layout, self.use = make.layout, make.use
        self.dropout = config.dropout
        self.amp = config.precision == "amp"

    def forward(self, ids, table):
        positions = self.use(self.positions)
        if self.amp:
            table, positions = ops.to_half(table), ops.to_half(positions) if self.form == "gpt-3d" else positions
        x = ops.dropout(look_up(table, ids, self.layout) + positions, self.dropout)
        return x.permute(1, 0, 2) if self.form == "gpt-3d" else x


class Layer(nn.Module):
    """Pre-normalised layer of "gpt-3d": attention and MLP, each with a residual connection.

    Scores are divided by the layer's number and multiplied by it again inside a kernel that computes in fp32. This
    keeps the scores of deep layers in the range of half precision.
    """

    def __init__(self, config: Config, make: Parameters, index: int, stage: int) -> None:
        super().__init__()
        size, name = config.shape.hidden_size, f"layer{index}"
        std = outward_std(config)
        self.norm1 = LayerNorm(make, size, EPSILON, stage)
        self.attention_inward = ColumnLinear(make, f"{name}.attention.inward", size, 3 * size, stage)
        self.attention_outward = RowLinear(make, f"{name}.attention.outward", size, size, std, stage, SAMPLES)
        self.norm2 = LayerNorm(make, size, EPSILON, stage)
        self.perceptron_inward = ColumnLinear(make, f"{name}.perceptron.inward", size, 4 * size, stage)
        self.perceptron_outward = RowLinear(make, f"{name}.perceptron.outward", 4 * size, size, std, stage, SAMPLES)
        self.head_size = size // config.shape.attention_heads
        self.number = index + 1
        self.dropout = config.dropout
        self.layout = make.layout

    def forward(self, x):
        x = ops.bias_dropout(*self.attention(self.normalised(self.norm1, x)), self.dropout) + x
        y = ops.bias_gelu(*self.perceptron_inward(self.normalised(self.norm2, x)))
        return ops.bias_dropout(*self.perceptron_outward(y), self.dropout) + x

    def normalised(self, norm: LayerNorm, x):
        """Normalised input of a column-parallel product; `shared` only on a two-dimensional mesh, as published."""
        return shared(norm(x), self.layout, SAMPLES) if self.layout.nested else norm(x)

    def attention(self, x):
        y = ops.add_bias(*self.attention_inward(x))
        scale = 1.0 / (math.sqrt(self.head_size) * self.number)
        scores, values = ops.self_attention_scores(y, self.head_size, scale)
        context = flow._C.matmul(ops.causal_weights(scores, float(self.number), self.dropout), values)
        return self.attention_outward(flow.flatten(context.permute(2, 0, 1, 3), 2))


class SmallLayer(nn.Module):
    """Layer of "gpt-2": no hand-fused operators; one product gives queries, keys and values as consecutive thirds."""

    def __init__(self, config: Config, make: Parameters, index: int, stage: int) -> None:
        super().__init__()
        size, name = config.shape.hidden_size, f"layer{index}"
        self.heads, self.dropout = config.shape.attention_heads, config.dropout
        self.norm1 = LayerNorm(make, size, EPSILON)
        columns = thirds(self.heads, size).reshape(-1)
        self.attention_inward = Dense(make, f"{name}.attention.inward", size, 3 * size, columns)
        self.attention_outward = Dense(make, f"{name}.attention.outward", size, size)
        self.norm2 = LayerNorm(make, size, EPSILON)
        self.perceptron_inward = Dense(make, f"{name}.perceptron.inward", size, 4 * size)
        self.perceptron_outward = Dense(make, f"{name}.perceptron.outward", 4 * size, size)

    def forward(self, x):
        shape = x.shape
        y = self.attention_outward(self.attention(self.attention_inward(rows(self.norm1(x))), shape))
        x = ops.dropout(y.reshape(*shape), self.dropout) + x
        y = self.perceptron_outward(ops.gelu(self.perceptron_inward(rows(self.norm2(x)))))
        return ops.dropout(y.reshape(*shape), self.dropout) + x

    def attention(self, x, shape):
        """Context (b * s, h) from the queries, keys and values in x (b * s, 3h); `shape` is (b, s, h)."""
        batch, length, size = shape
        x = x.reshape(batch, length, 3 * size)
        query, key, value = (
            flow._C.narrow(x, 2, first, size).reshape(batch, length, self.heads, size // self.heads).permute(0, 2, 1, 3)
            for first in range(0, 3 * size, size)
        )
        scores = flow._C.matmul(query, key, transpose_b=True)
        scores = ops.scaled_past(scores, 1.0 / math.sqrt(size // self.heads))
        weights = ops.dropout(flow._C.softmax(scores, dim=-1), self.dropout)
        return flow._C.matmul(weights, value).permute(0, 2, 1, 3).reshape(batch * length, size)


def rows(x):
    """Reshape x (b, s, h) to a matrix (b * s, h)."""
    return x.reshape(-1, x.shape[-1])


class Head(nn.Module):
    """Mean next-token loss of a batch."""

    def __init__(self, config: Config, make: Parameters, stage: int) -> None:
        super().__init__()
        self.norm = LayerNorm(make, config.shape.hidden_size, EPSILON, stage)
        self.layout = make.layout
        self.amp = config.precision == "amp"

    def forward(self, x, table, labels):
        """Under AMP, losses are computed in half precision at tensor parallel size 1 and in fp32 at larger sizes."""
        x = rows(self.norm(x).permute(1, 0, 2))
        x = shared(x, self.layout) if self.layout.nested else x
        logits = flow._C.matmul(x, table, transpose_b=True)
        losses = ops.cross_entropy(logits, labels.reshape(-1), self.layout.batch_signature())
        if self.amp and self.layout.tensor == 1:
            losses = ops.to_half(losses)
        return losses.mean()


class SmallHead(Head):
    """Head of "gpt-2": labels are the ids shifted by one; the last position has no label, so its loss is dropped."""

    def forward(self, x, table, ids):
        batch, length = ids.shape
        x = self.norm(x)
        logits = flow._C.matmul(rows(x), table, transpose_b=True).reshape(batch, length, table.shape[0])
        return without_last(flow._C.sparse_softmax_cross_entropy(logits, following(ids))).mean()


def following(ids):
    """Next token for each of ids (b, s); 0 for the last position."""
    return flow._C.pad(flow._C.narrow(ids, 1, 1, ids.shape[1] - 1), (0, 1))


def without_last(losses):
    """Losses (b, s - 1) without the last position."""
    return flow._C.narrow(losses, 1, 0, losses.shape[1] - 1)


class GPT(nn.Module):
    """Mean next-token loss of a batch; inputs are ids and labels, both (batch, seq_length); "gpt-2" takes only ids.

    If the head is on another pipeline stage than the embedding, it has a second table there, `twin`, which
    `changes.tie_tables` keeps identical. The published program transferred one table once per iteration; nn.Graph would
    transfer the table and its gradient with every micro-batch.
    """

    def __init__(self, config: Config, make: Parameters) -> None:
        super().__init__()
        layout, count = make.layout, config.shape.layers
        stages = [layout.stage_of(index, count) for index in range(count)]
        sizes = (config.padded_vocab_size, config.shape.hidden_size)
        self.tokens = TokenEmbedding(make, *sizes)
        self.twin = TokenEmbedding(make, *sizes, layout.last_stage) if layout.pipeline > 1 else None
        self.embedding = self.build_embedding(config, make)
        self.layers = nn.ModuleList(
            [self.build_layer(config, make, index, stage) for index, stage in enumerate(stages)]
        )
        self.head = self.build_head(config, make, layout.last_stage)
        self.layout = layout

    def build_embedding(self, config: Config, make: Parameters) -> nn.Module:
        return Embedding(config, make)

    def build_layer(self, config: Config, make: Parameters, index: int, stage: int) -> nn.Module:
        return {"gpt-3d": Layer, "gpt-2": SmallLayer}[config.choices.form](config, make, index, stage)

    def build_head(self, config: Config, make: Parameters, stage: int) -> nn.Module:
        return {"gpt-3d": Head, "gpt-2": SmallHead}[config.choices.form](config, make, stage)

    def forward(self, ids, *labels):
        table = self.tokens()
        x = self.embedding(ids, table)
        for layer in self.layers:
            x = layer(x)
        return self.outputs(self.head(x, self.twin() if self.twin else table, *labels or (ids,)))

    def outputs(self, loss) -> dict:
        return {"loss": loss}

    def stages(self) -> list:
        """Each block with the pipeline stage that holds it."""
        count = len(self.layers)
        layers = [(layer, self.layout.stage_of(index, count)) for index, layer in enumerate(self.layers)]
        last = self.layout.last_stage
        twin = [(self.twin, last)] if self.twin else []
        return [(self.tokens, 0), (self.embedding, 0), *layers, *twin, (self.head, last)]


MODEL = GPT
READERS = {"megatron": TokenReader}


def operators(scale: str, device: str) -> list[Operator]:
    """The model's operators in the sizes of `scale`; half precision only on CUDA, since the CPU lacks the kernels."""
    sizes = COMPARED[scale]
    precisions = (SINGLE, HALF) if device == "cuda" else (SINGLE,)
    return [operator for precision in precisions for operator in operators_in(sizes, precision)]


def operators_in(sizes: Text, precision: str) -> list[Operator]:
    """The operators common to transformers, plus the attention of both forms."""

    def operator(name: str, inputs: tuple, call, plain, **more) -> Operator:
        named = f"{name}, {SPEC.name} {precision}"
        return Operator(named, (SPEC.name,), precision, inputs, call, plain, **more)

    product = Input("products", (sizes.length, sizes.samples, 3 * sizes.hidden), 1)
    heads = tuple(Input(name, sizes.heads_shape, 1) for name in ("query", "key", "value"))
    size = sizes.hidden // sizes.heads

    def interleaved(x):
        scores, values = ops.self_attention_scores(x, size, 1.0 / (math.sqrt(size) * COMPARED_LAYER))
        return flow._C.matmul(ops.causal_weights(scores, float(COMPARED_LAYER), NO_DROPS), values)

    def plain_interleaved(x):
        length, batch, _ = x.shape
        heads = x.view(length, batch, sizes.heads, 3 * size).permute(1, 2, 0, 3)
        return plain_causal_attention(*flow.chunk(heads, 3, dim=-1))

    return [
        *transformer(SPEC.name, sizes, precision),
        operator(
            "causal attention, fused", (product,), interleaved, plain_interleaved, axis=0, places=1, changes=CHANGES
        ),
        operator("causal attention", heads, causal_attention, plain_causal_attention, axis=1, places=1),
    ]


def causal_attention(query, key, value):
    scores = ops.scaled_past(flow._C.matmul(query, key, transpose_b=True), 1.0 / math.sqrt(query.shape[-1]))
    return flow._C.matmul(flow._C.softmax(scores, dim=-1), value)


def future(length: int) -> np.ndarray:
    """Additive causal mask (1, 1, length, length)."""
    return np.triu(np.full((1, 1, length, length), ops.MASKED), 1)


def plain_causal_attention(query, key, value):
    return plain_attention(query, key, value, flow.tensor(future(query.shape[2]), dtype=flow.float64))
