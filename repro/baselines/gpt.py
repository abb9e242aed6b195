"""The GPT baseline: pre-normalised decoder, learned positions, output tied to the token table."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from repro.baselines.config import BaselineConfig
from repro.baselines.layers import INITIAL_STD, MASKED, MLP, Attention, Layers
from repro.baselines.parameters import Parameters

EPSILON = 1e-5


class Layer(nn.Module):
    """Attention and perceptron, each on the normalised input and added to it."""

    def __init__(self, config: BaselineConfig, make: Parameters, index: int) -> None:
        super().__init__()
        shape, name = config.shape, f"layer{index}"
        std = INITIAL_STD / (2.0 * shape.layers) ** 0.5
        self.norm1 = nn.LayerNorm(shape.hidden_size, EPSILON)
        self.attention = Attention(
            make, f"{name}.attention", shape.hidden_size, shape.attention_heads, std, config.dropout
        )
        self.norm2 = nn.LayerNorm(shape.hidden_size, EPSILON)
        self.perceptron = MLP(make, f"{name}.perceptron", shape.hidden_size, std)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x):
        x = x + self.dropout(self.attention(self.norm1(x)))
        return x + self.dropout(self.perceptron(self.norm2(x)))


class GPT(nn.Module):
    """Mean next-token loss of a batch; inputs are ids and labels, both (batch, seq_length).

    Padding of the vocabulary is masked in the bias of the output layer.
    """

    def __init__(self, config: BaselineConfig, make: Parameters) -> None:
        super().__init__()
        shape, padded = config.shape, config.padded_vocab_size
        self.tokens = make.table("tokens.weight", (padded, shape.hidden_size), INITIAL_STD, shape.vocab_size)
        self.positions = make.table("positions.weight", (shape.seq_length, shape.hidden_size), INITIAL_STD)
        self.dropout = nn.Dropout(config.dropout)
        self.layers = Layers([Layer(config, make, index) for index in range(shape.layers)], config)
        self.norm = nn.LayerNorm(shape.hidden_size, EPSILON)
        mask = torch.where(torch.arange(padded) < shape.vocab_size, 0.0, MASKED)
        self.register_buffer("mask", mask if padded > shape.vocab_size else None)

    def forward(self, ids, labels):
        x = self.dropout(F.embedding(ids, self.tokens) + self.positions)
        logits = F.linear(self.norm(self.layers(x)), self.tokens, self.mask)
        return {"loss": F.cross_entropy(logits.flatten(0, 1), labels.flatten())}


MODEL = GPT
