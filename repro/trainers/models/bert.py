"""BERT pretraining as published: post-normalised encoder, masked-token loss plus next-sentence loss."""

from __future__ import annotations

from functools import partial

import oneflow as flow
from oneflow import nn

from repro.models.bert import SPEC
from repro.trainers.config import Config
from repro.trainers.data.features import FeatureReader
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
    NO_DROPS,
    SINGLE,
    Input,
    Operator,
    Text,
    one_hot,
    plain_attention,
    transformer,
)
from repro.trainers.models.parameters import Parameters, whole

EPSILON = 1e-12
POSITIONS = 512
"""Rows of BERT's position table, whatever the length of the samples."""
SEGMENTS = 2
FEWEST_WEIGHTS = 1e-5
"""Added to the number of masked tokens, so that a batch with none has a loss (TensorFlow's BERT)."""


COMPARED = {"published": Text(96, 128, 12, 768, 30522, 20), "small": Text(4, 16, 2, 16, 100, 3)}
"""Sizes in which operators are compared with the CPU, by scale."""


class Dense(nn.Module):
    """Linear layer that every tensor parallel rank holds whole; the bias is returned, not added."""

    def __init__(self, make: Parameters, name: str, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = make.normal(f"{name}.weight", (inputs, outputs), INITIAL_STD)
        self.bias = make.constant((outputs,), 0.0)
        self.layout = make.layout

    def forward(self, x):
        return flow.matmul(x, whole(self.weight, self.layout)), whole(self.bias, self.layout)


class Embedding(nn.Module):
    """Sum of token, position and segment vectors, normalised."""

    def __init__(self, config: Config, make: Parameters) -> None:
        super().__init__()
        shape = config.shape
        positions = max(POSITIONS, shape.seq_length)
        self.positions = make.normal("positions.weight", (positions, shape.hidden_size), INITIAL_STD)
        self.segments = make.normal("segments.weight", (SEGMENTS, shape.hidden_size), INITIAL_STD)
        self.norm = LayerNorm(make, shape.hidden_size, EPSILON)
        self.layout = make.layout
        self.dropout = config.dropout
        self.amp = config.precision == "amp"

    def forward(self, ids, segments, table):
        table = ops.to_half(table) if self.amp else table
        positions = whole(self.positions, self.layout)[: ids.shape[1]]
        kinds = flow._C.gather(whole(self.segments, self.layout), segments, axis=0)
        return ops.dropout(self.norm(look_up(table, ids, self.layout) + positions + kinds), self.dropout)


class Layer(nn.Module):
    """Attention and perceptron, each added to its input, the sum being normalised."""

    def __init__(self, config: Config, make: Parameters, index: int) -> None:
        super().__init__()
        size, heads, name = config.shape.hidden_size, config.shape.attention_heads, f"layer{index}"
        self.attention = Attention(make, f"{name}.attention", size, heads, INITIAL_STD)
        self.norm1 = LayerNorm(make, size, EPSILON)
        self.perceptron = MLP(make, f"{name}.perceptron", size, INITIAL_STD)
        self.norm2 = LayerNorm(make, size, EPSILON)
        self.dropout = config.dropout

    def forward(self, x, mask):
        attend = partial(ops.masked_attention, mask=mask, p=self.dropout)
        x = self.norm1(x + ops.bias_dropout(*self.attention(x, attend), self.dropout))
        return self.norm2(x + ops.bias_dropout(*self.perceptron(x), self.dropout))


class MaskedTokens(nn.Module):
    """Mean loss of the tokens that were masked: x (b, s, h) at `positions` (b, m) against `labels`, by `weights`."""

    def __init__(self, config: Config, make: Parameters) -> None:
        super().__init__()
        shape = config.shape
        self.transform = Dense(make, "masked.transform", shape.hidden_size, shape.hidden_size)
        self.norm = LayerNorm(make, shape.hidden_size, EPSILON)
        self.vocabulary = VocabularyHead(make, shape.vocab_size, config.padded_vocab_size)
        self.bias = make.constant((config.padded_vocab_size,), 0.0, axis=0)
        self.layout = make.layout

    def forward(self, x, table, positions, labels, weights):
        x = self.norm(ops.bias_gelu(*self.transform(flow._C.batch_gather(x, positions))))
        losses = self.vocabulary(x, table, labels, whole(self.bias, self.layout))
        weights = weights.reshape(-1)
        return (losses * weights).sum() / (weights.sum() + FEWEST_WEIGHTS)


class NextSentence(nn.Module):
    """Mean loss of telling from the first token whether the second segment follows the first."""

    def __init__(self, config: Config, make: Parameters) -> None:
        super().__init__()
        self.pooler = Dense(make, "next.pooler", config.shape.hidden_size, config.shape.hidden_size)
        self.classifier = Dense(make, "next.classifier", config.shape.hidden_size, 2)

    def forward(self, x, labels):
        y, bias = self.pooler(x[:, 0])
        y, bias = self.classifier(flow.tanh(y + bias))
        return flow._C.sparse_softmax_cross_entropy(y + bias, labels).mean()


class BERT(nn.Module):
    """Losses of a batch.

    Inputs, b samples each: ids, valid and segments (b, seq_length); positions, labels and weights of the masked
    tokens (b, max_predictions); next_sentence (b,).
    """

    def __init__(self, config: Config, make: Parameters) -> None:
        super().__init__()
        self.tokens = TokenEmbedding(make, config.shape.vocab_size, config.padded_vocab_size, config.shape.hidden_size)
        self.embedding = Embedding(config, make)
        self.layers = nn.ModuleList([Layer(config, make, index) for index in range(config.shape.layers)])
        self.masked = MaskedTokens(config, make)
        self.next = NextSentence(config, make)
        self.layout = make.layout

    def forward(self, ids, valid, segments, positions, labels, weights, next_sentence):
        table, mask = self.tokens(), ops.padding_mask(valid)
        x = self.embedding(ids, segments, table)
        for layer in self.layers:
            x = layer(x, mask)
        masked = self.masked(x, table, positions, labels, weights)
        following = self.next(x, next_sentence)
        return {"loss": masked + following, "mlm_loss": masked, "nsp_loss": following}


MODEL = BERT
READERS = {"ofrecord": FeatureReader}


def operators(scale: str, device: str) -> list[Operator]:
    """The model's operators in the sizes of a scale."""
    sizes = COMPARED[scale]
    attention = tuple(Input(name, sizes.heads_shape) for name in ("query", "key", "value"))
    valid = Input("valid", (sizes.samples, sizes.length), below=2)
    data = Input("data", sizes.tokens_shape)
    positions = Input("positions", (sizes.samples, sizes.predictions), below=sizes.length)
    masked = Operator(
        f"masked attention, {SPEC.name} fp32",
        (SPEC.name,),
        SINGLE,
        (*attention, valid),
        compared_attention,
        plain_masked_attention,
    )
    gather = Operator(
        f"gather in a sample, {SPEC.name} fp32",
        (SPEC.name,),
        SINGLE,
        (data, positions),
        flow._C.batch_gather,
        plain_batch_gather,
    )
    return [*transformer(SPEC.name, sizes, SINGLE), masked, gather]


def plain_batch_gather(x, positions):
    return flow.matmul(one_hot(positions, x.shape[1]), x)


def compared_attention(query, key, value, valid):
    return ops.masked_attention(query, key, value, ops.padding_mask(valid), NO_DROPS)


def plain_masked_attention(query, key, value, valid):
    hidden = (1.0 - valid.to(flow.float64)) * ops.MASKED
    return plain_attention(query, key, value, hidden.view(valid.shape[0], 1, 1, valid.shape[1]))
