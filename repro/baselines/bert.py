"""The BERT pretraining baseline: post-normalised encoder, masked-token loss plus next-sentence loss."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import distributed, nn

from repro.baselines.config import BaselineConfig
from repro.baselines.layers import INITIAL_STD, MASKED, MLP, Attention, Layers
from repro.baselines.parameters import Parameters
from repro.baselines.unfused import PaddedAttention, norm

EPSILON = 1e-5
POSITIONS = 512
"""Rows of BERT's position table, whatever the length of the samples."""
SEGMENTS = 2
FEWEST_WEIGHTS = 1e-5
"""Added to the mean weight of a sample, so that a batch without masked tokens has a loss."""
MASKED_BIAS = 1.0
"""Where the bias of the logits of masked tokens starts, in the published program."""


class Layer(nn.Module):
    """Attention and perceptron, each added to its input, the sum being normalised."""

    def __init__(self, config: BaselineConfig, make: Parameters, index: int) -> None:
        super().__init__()
        size, heads, name = config.shape.hidden_size, config.shape.attention_heads, f"layer{index}"
        attention = PaddedAttention if config.baseline.unfused else Attention
        self.attention = attention(make, f"{name}.attention", size, heads, INITIAL_STD, config.dropout)
        self.norm1 = norm(config, EPSILON)
        self.perceptron = MLP(make, f"{name}.perceptron", size, INITIAL_STD)
        self.norm2 = norm(config, EPSILON)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x, mask):
        x = self.norm1(x + self.dropout(self.attention(x, mask)))
        return self.norm2(x + self.dropout(self.perceptron(x)))


class MaskedTokens(nn.Module):
    """Losses of samples from their tokens that were masked: x (b, s, h) at `positions` (b, m) against `labels`.

    A sample's loss is the sum of those of its tokens by `weights`, over the mean sum of weights of a sample of the
    global batch, FEWEST_WEIGHTS more.
    """

    def __init__(self, config: BaselineConfig, make: Parameters) -> None:
        super().__init__()
        size = config.shape.hidden_size
        self.transform = make.linear("masked.transform", size, size, INITIAL_STD)
        self.norm = norm(config, EPSILON)
        self.bias = nn.Parameter(torch.full((config.padded_vocab_size,), MASKED_BIAS))

    def forward(self, x, table, positions, labels, weights):
        chosen = x.gather(1, positions.unsqueeze(-1).expand(-1, -1, x.shape[-1]))
        logits = F.linear(self.norm(F.gelu(self.transform(chosen))), table, self.bias)
        losses = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none").view(weights.shape)
        return (losses * weights).sum(dim=1) / (mean_over_ranks(weights.sum(dim=1).mean()) + FEWEST_WEIGHTS)


def mean_over_ranks(value):
    """Mean of a number that needs no gradient over all ranks, if there are others."""
    if distributed.is_initialized():
        distributed.all_reduce(value)
        value = value / distributed.get_world_size()
    return value


class NextSentence(nn.Module):
    """Losses of samples: of telling from the first token whether the second segment follows the first."""

    def __init__(self, config: BaselineConfig, make: Parameters) -> None:
        super().__init__()
        self.pooler = make.linear("next.pooler", config.shape.hidden_size, config.shape.hidden_size, INITIAL_STD)
        self.classifier = make.linear("next.classifier", config.shape.hidden_size, 2, INITIAL_STD)

    def forward(self, x, labels):
        return F.cross_entropy(self.classifier(torch.tanh(self.pooler(x[:, 0]))), labels, reduction="none")


class BERT(nn.Module):
    """Losses of a batch.

    Inputs, b samples each: ids, valid and segments (b, seq_length); positions, labels and weights of the masked
    tokens (b, max_predictions); next_sentence (b,).
    """

    def __init__(self, config: BaselineConfig, make: Parameters) -> None:
        super().__init__()
        shape, size = config.shape, config.shape.hidden_size
        self.tokens = make.table("tokens.weight", (config.padded_vocab_size, size), INITIAL_STD)
        self.positions = make.table("positions.weight", (max(POSITIONS, shape.seq_length), size), INITIAL_STD)
        self.segments = make.table("segments.weight", (SEGMENTS, size), INITIAL_STD)
        self.norm = norm(config, EPSILON)
        self.dropout = nn.Dropout(config.dropout)
        self.layers = Layers([Layer(config, make, index) for index in range(shape.layers)], config)
        self.masked = MaskedTokens(config, make)
        self.next = NextSentence(config, make)
        self.dtype = torch.float16 if config.unfused_amp else torch.float32
        self.unfused = config.baseline.unfused

    def forward(self, ids, valid, segments, positions, labels, weights, next_sentence):
        tokens, places, kinds = (table.to(self.dtype) for table in (self.tokens, self.positions, self.segments))
        x = F.embedding(ids, tokens) + F.embedding(segments, kinds) + places[: ids.shape[1]]
        x = self.layers(self.dropout(self.norm(x)), self.mask(valid))
        masked = self.masked(x, tokens, positions, labels, weights).mean()
        following = self.next(x, next_sentence).mean()
        return {"loss": masked + following, "mlm_loss": masked, "nsp_loss": following}

    def mask(self, valid):
        """What the attention takes: addends (b, 1, 1, s) of scores; unfused, flags (b, s, s)."""
        if self.unfused:
            return valid.to(self.dtype).unsqueeze(1).repeat(1, valid.shape[1], 1)
        return (1.0 - valid.float())[:, None, None] * MASKED


MODEL = BERT
