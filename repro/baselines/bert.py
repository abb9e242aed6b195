"""The BERT pretraining baseline: post-normalised encoder, masked-token loss plus next-sentence loss."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from repro.baselines.config import BaselineConfig
from repro.baselines.layers import INITIAL_STD, MASKED, MLP, Attention, Layers
from repro.baselines.parameters import Parameters

EPSILON = 1e-12
POSITIONS = 512
"""Rows of BERT's position table, whatever the length of the samples."""
SEGMENTS = 2
FEWEST_WEIGHTS = 1e-5
"""Added to the number of masked tokens, so that a batch with none has a loss (TensorFlow's BERT)."""


class Layer(nn.Module):
    """Attention and perceptron, each added to its input, the sum being normalised."""

    def __init__(self, config: BaselineConfig, make: Parameters, index: int) -> None:
        super().__init__()
        size, heads, name = config.shape.hidden_size, config.shape.attention_heads, f"layer{index}"
        self.attention = Attention(make, f"{name}.attention", size, heads, INITIAL_STD, config.dropout)
        self.norm1 = nn.LayerNorm(size, EPSILON)
        self.perceptron = MLP(make, f"{name}.perceptron", size, INITIAL_STD)
        self.norm2 = nn.LayerNorm(size, EPSILON)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x, mask):
        x = self.norm1(x + self.dropout(self.attention(x, mask)))
        return self.norm2(x + self.dropout(self.perceptron(x)))


class MaskedTokens(nn.Module):
    """Mean loss of the tokens that were masked: x (b, s, h) at `positions` (b, m) against `labels`, by `weights`."""

    def __init__(self, config: BaselineConfig, make: Parameters) -> None:
        super().__init__()
        size = config.shape.hidden_size
        self.transform = make.linear("masked.transform", size, size, INITIAL_STD)
        self.norm = nn.LayerNorm(size, EPSILON)
        self.bias = nn.Parameter(torch.zeros(config.padded_vocab_size))

    def forward(self, x, table, positions, labels, weights):
        chosen = x.gather(1, positions.unsqueeze(-1).expand(-1, -1, x.shape[-1]))
        logits = F.linear(self.norm(F.gelu(self.transform(chosen))), table, self.bias)
        losses = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none")
        return (losses * weights.flatten()).sum() / (weights.sum() + FEWEST_WEIGHTS)


class NextSentence(nn.Module):
    """Mean loss of telling from the first token whether the second segment follows the first."""

    def __init__(self, config: BaselineConfig, make: Parameters) -> None:
        super().__init__()
        self.pooler = make.linear("next.pooler", config.shape.hidden_size, config.shape.hidden_size, INITIAL_STD)
        self.classifier = make.linear("next.classifier", config.shape.hidden_size, 2, INITIAL_STD)

    def forward(self, x, labels):
        return F.cross_entropy(self.classifier(torch.tanh(self.pooler(x[:, 0]))), labels)


class BERT(nn.Module):
    """Losses of a batch.

    Inputs, b samples each: ids, valid and segments (b, seq_length); positions, labels and weights of the masked
    tokens (b, max_predictions); next_sentence (b,).
    """

    def __init__(self, config: BaselineConfig, make: Parameters) -> None:
        super().__init__()
        shape, size = config.shape, config.shape.hidden_size
        self.tokens = make.table("tokens.weight", (config.padded_vocab_size, size), INITIAL_STD, shape.vocab_size)
        self.positions = make.table("positions.weight", (max(POSITIONS, shape.seq_length), size), INITIAL_STD)
        self.segments = make.table("segments.weight", (SEGMENTS, size), INITIAL_STD)
        self.norm = nn.LayerNorm(size, EPSILON)
        self.dropout = nn.Dropout(config.dropout)
        self.layers = Layers([Layer(config, make, index) for index in range(shape.layers)], config)
        self.masked = MaskedTokens(config, make)
        self.next = NextSentence(config, make)

    def forward(self, ids, valid, segments, positions, labels, weights, next_sentence):
        x = F.embedding(ids, self.tokens) + self.positions[: ids.shape[1]] + F.embedding(segments, self.segments)
        x = self.layers(self.dropout(self.norm(x)), (1.0 - valid.float())[:, None, None] * MASKED)
        masked = self.masked(x, self.tokens, positions, labels, weights)
        following = self.next(x, next_sentence)
        return {"loss": masked + following, "mlm_loss": masked, "nsp_loss": following}


MODEL = BERT
