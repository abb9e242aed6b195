"""BERT pretraining as published: post-normalised encoder, masked-token loss plus next-sentence loss.

Hidden states are matrices (b * s, h) throughout.
"""

from __future__ import annotations

import math

import oneflow as flow
from oneflow import nn

from repro.models.bert import SPEC
from repro.trainers.config import Config
from repro.trainers.data.features import FeatureReader
from repro.trainers.layout import BROADCAST
from repro.trainers.models import ops
from repro.trainers.models.initial import thirds
from repro.trainers.models.layers import INITIAL_STD, Dense, LayerNorm, TokenEmbedding
from repro.trainers.models.operators import (
    NO_DROPS,
    SINGLE,
    Input,
    Operator,
    Text,
    one_hot,
    plain_attention,
    transformer,
)
from repro.trainers.models.parameters import Parameters

EPSILON = 1e-5
POSITIONS = 512
"""Rows of BERT's position table, whatever the length of the samples."""
SEGMENTS = 2
FEWEST_WEIGHTS = 1e-5
"""Added to the mean number of masked tokens of a sample, so that a batch with none has a loss."""

COMPARED = {"published": Text(96, 128, 12, 768, 30522, 20), "small": Text(4, 16, 2, 16, 100, 3)}
"""Sizes in which operators are compared with the CPU, by scale."""


class Embedding(nn.Module):
    """Normalised sum of token, segment and position embeddings, (b * s, h)."""

    def __init__(self, config: Config, make: Parameters) -> None:
        super().__init__()
        shape = config.shape
        positions = max(POSITIONS, shape.seq_length)
        self.positions = make.normal("positions.weight", (1, positions, shape.hidden_size), INITIAL_STD)
        self.segments = make.normal("segments.weight", (SEGMENTS, shape.hidden_size), INITIAL_STD)
        self.norm = LayerNorm(make, shape.hidden_size, EPSILON)
        self.use = make.use
        self.dropout = config.dropout

    def forward(self, ids, segments, table):
        size = table.shape[1]
        vectors = flow._C.gather(table, ids, axis=0) + flow._C.gather(self.use(self.segments), segments, axis=0)
        positions = flow._C.narrow(self.use(self.positions), 1, 0, ids.shape[1])
        return ops.dropout(self.norm(vectors + positions), self.dropout).reshape(-1, size)


class Attention(nn.Module):
    """Multi-head self-attention on hidden states (b * s, h), with separate products for queries, keys and values."""

    def __init__(self, config: Config, make: Parameters, name: str) -> None:
        super().__init__()
        size, self.heads, self.length = config.shape.hidden_size, config.shape.attention_heads, config.shape.seq_length
        self.query, self.key, self.value = (
            Dense(make, f"{name}.inward", size, 3 * size, columns) for columns in thirds(self.heads, size)
        )
        self.outward = Dense(make, f"{name}.outward", size, size)
        self.dropout = config.dropout

    def forward(self, x, mask):
        query, key, value = (self.apart(product(x)) for product in (self.query, self.key, self.value))
        context = attend(query, key, value, mask, self.dropout).permute(0, 2, 1, 3)
        return self.outward(context.reshape(-1, x.shape[1]))

    def apart(self, x):
        """Split a matrix (b * s, h) into heads (b, n, s, d)."""
        return x.reshape(-1, self.length, self.heads, x.shape[1] // self.heads).permute(0, 2, 1, 3)


def attend(query, key, value, mask, p: float):
    """Context (b, n, s, d) under `mask` (b, s, s); each layer converts the mask to an additive one."""
    scores = flow._C.matmul(query, key, transpose_b=True) * (1.0 / math.sqrt(query.shape[-1]))
    hidden = (mask.reshape(mask.shape[0], 1, *mask.shape[1:]) - 1.0) * -ops.MASKED
    return flow._C.matmul(ops.dropout(flow._C.softmax(scores + hidden, dim=-1), p), value)


def whole_mask(valid):
    """Attention mask (b, s, s) from `valid` (b, s), which is 1 for a token and 0 for padding."""
    batch, length = valid.shape
    shared = [BROADCAST] * len(valid.sbp)
    zeros = flow.zeros(length, 1, dtype=flow.float32, placement=valid.placement, sbp=shared)
    return valid.to(flow.float32).reshape(batch, 1, length) + zeros


class Layer(nn.Module):
    """Post-normalised transformer layer: attention and MLP, each with a residual connection."""

    def __init__(self, config: Config, make: Parameters, index: int) -> None:
        super().__init__()
        size, name = config.shape.hidden_size, f"layer{index}"
        self.attention = Attention(config, make, f"{name}.attention")
        self.norm1 = LayerNorm(make, size, EPSILON)
        self.perceptron_inward = Dense(make, f"{name}.perceptron.inward", size, 4 * size)
        self.perceptron_outward = Dense(make, f"{name}.perceptron.outward", 4 * size, size)
        self.norm2 = LayerNorm(make, size, EPSILON)
        self.dropout = config.dropout

    def forward(self, x, mask):
        x = self.norm1(x + ops.dropout(self.attention(x, mask), self.dropout))
        y = self.perceptron_outward(ops.gelu(self.perceptron_inward(x)))
        return self.norm2(x + ops.dropout(y, self.dropout))


class MaskedTokens(nn.Module):
    """Masked-token loss (b,) of x (b * s, h) at `positions` (b, m), with `labels` and `weights` (b, m).

    The weighted sum over a sample's tokens is divided by the mean of this weight over the global batch.
    """

    def __init__(self, config: Config, make: Parameters) -> None:
        super().__init__()
        size, self.length = config.shape.hidden_size, config.shape.seq_length
        self.transform = Dense(make, "masked.transform", size, size)
        self.norm = LayerNorm(make, size, EPSILON)
        self.bias = make.constant((config.padded_vocab_size,), 1.0)
        self.use = make.use

    def forward(self, x, table, positions, labels, weights):
        size = x.shape[1]
        x = flow._C.batch_gather(x.reshape(-1, self.length, size), positions).reshape(-1, size)
        x = self.norm(ops.gelu(self.transform(x)))
        logits = ops.add_bias(flow._C.matmul(x, table, transpose_b=True), self.use(self.bias))
        losses = flow._C.sparse_softmax_cross_entropy(logits, labels.reshape(-1))
        losses = (losses.reshape(*labels.shape) * weights).sum(dim=1)
        return losses / (mean_weight(weights) + FEWEST_WEIGHTS)


def mean_weight(weights):
    """Mean over samples of the sum of weights (b, m), by the published operators; the count of samples is summed too.

    Source: OneFlow-Benchmark@8a78044:LanguageModeling/BERT/pretrain.py#L117-L121.
    """
    sums = weights.sum(dim=1)
    ones = sums * 0.0 + 1.0
    return sums.sum() / ones.sum()


class NextSentence(nn.Module):
    """Next-sentence loss (b,), computed from each sample's first token."""

    def __init__(self, config: Config, make: Parameters) -> None:
        super().__init__()
        size, self.length = config.shape.hidden_size, config.shape.seq_length
        self.pooler = Dense(make, "next.pooler", size, size)
        self.classifier = make.normal("next.classifier.weight", (size, 2), INITIAL_STD, transposed=True)
        self.bias = make.constant((2,), 0.0)
        self.use = make.use

    def forward(self, x, labels):
        size = x.shape[1]
        x = x.reshape(-1, self.length, size)
        first = flow._C.narrow(x, 1, 0, 1).reshape(-1, size)
        pooled = flow.tanh(self.pooler(first))
        scores = ops.add_bias(flow._C.matmul(pooled, self.use(self.classifier), transpose_b=True), self.use(self.bias))
        return flow._C.sparse_softmax_cross_entropy(scores, labels)


class BERT(nn.Module):
    """Per-sample losses (b,), whose mean is minimised.

    Inputs: ids, valid and segments (b, seq_length); positions, labels and weights of the masked tokens
    (b, max_predictions); next_sentence (b,).
    """

    def __init__(self, config: Config, make: Parameters) -> None:
        super().__init__()
        self.tokens = TokenEmbedding(make, config.padded_vocab_size, config.shape.hidden_size)
        self.embedding = Embedding(config, make)
        self.layers = nn.ModuleList([self.build_layer(config, make, index) for index in range(config.shape.layers)])
        self.masked = MaskedTokens(config, make)
        self.next = NextSentence(config, make)
        self.layout = make.layout

    def build_layer(self, config: Config, make: Parameters, index: int) -> nn.Module:
        return Layer(config, make, index)

    def encode(self, x, valid):
        """Apply all layers to the embeddings x; returns hidden states (b * s, h)."""
        mask = whole_mask(valid)
        for layer in self.layers:
            x = layer(x, mask)
        return x

    def forward(self, ids, valid, segments, positions, labels, weights, next_sentence):
        table = self.tokens()
        x = self.encode(self.embedding(ids, segments, table), valid)
        masked, following = self.masked(x, table, positions, labels, weights), self.next(x, next_sentence)
        loss = masked + following
        return {"loss": loss, "mlm_loss": masked, "nsp_loss": following, "objectives": (loss.mean(),)}


MODEL = BERT
READERS = {"ofrecord": FeatureReader}


def operators(scale: str, device: str) -> list[Operator]:
    """The model's operators in the sizes of `scale`."""
    sizes = COMPARED[scale]
    attention = tuple(Input(name, sizes.heads_shape) for name in ("query", "key", "value"))
    valid = Input("valid", (sizes.samples, sizes.length), below=2)
    data = Input("data", sizes.tokens_shape)
    positions = Input("positions", (sizes.samples, sizes.predictions), below=sizes.length)

    def operator(name: str, inputs: tuple, call, plain) -> Operator:
        return Operator(f"{name}, {SPEC.name} {SINGLE}", (SPEC.name,), SINGLE, inputs, call, plain)

    return [
        *transformer(SPEC.name, sizes, SINGLE),
        operator("masked attention", (*attention, valid), masked_attention, plain_masked_attention),
        operator("gather in a sample", (data, positions), flow._C.batch_gather, plain_batch_gather),
    ]


def plain_batch_gather(x, positions):
    return flow.matmul(one_hot(positions, x.shape[1]), x)


def masked_attention(query, key, value, valid):
    return attend(query, key, value, whole_mask(valid), NO_DROPS)


def plain_masked_attention(query, key, value, valid):
    hidden = (1.0 - valid.to(flow.float64)) * ops.MASKED
    return plain_attention(query, key, value, hidden.view(valid.shape[0], 1, 1, valid.shape[1]))
