"""The GPT baseline: pre-normalised decoder, learned positions, output tied to the token table."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from repro.baselines.config import BaselineConfig
from repro.baselines.layers import INITIAL_STD, MLP, Attention, Layers
from repro.baselines.parameters import Parameters
from repro.baselines.unfused import CausalAttention, norm

EPSILON = 1e-5
GPT_2 = "gpt-2"
"""The form of the report of December 2020; that of May 2021 has other initial values, and a loss of all positions."""
GPT_2_POSITIONS_STD = 0.01


def residual_std(config: BaselineConfig) -> float:
    """Standard deviation of the initial weights of projections that feed a residual connection."""
    return INITIAL_STD if config.choices.form == GPT_2 else INITIAL_STD / (2.0 * config.shape.layers) ** 0.5


def positions_std(config: BaselineConfig) -> float:
    """Standard deviation of initial position vectors."""
    return GPT_2_POSITIONS_STD if config.choices.form == GPT_2 else INITIAL_STD


class Layer(nn.Module):
    """Attention and perceptron, each on the normalised input and added to it."""

    def __init__(self, config: BaselineConfig, make: Parameters, index: int) -> None:
        super().__init__()
        shape, name = config.shape, f"layer{index}"
        std = residual_std(config)
        attention = CausalAttention if config.baseline.unfused else Attention
        self.norm1 = norm(config, EPSILON)
        self.attention = attention(
            make, f"{name}.attention", shape.hidden_size, shape.attention_heads, std, config.dropout
        )
        self.norm2 = norm(config, EPSILON)
        self.perceptron = MLP(make, f"{name}.perceptron", shape.hidden_size, std)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x, *hidden):
        x = x + self.dropout(self.attention(self.norm1(x), *hidden))
        return x + self.dropout(self.perceptron(self.norm2(x)))


class GPT(nn.Module):
    """Mean next-token loss of a batch; inputs are ids and labels, both (batch, seq_length).

    Without labels they are the ids one place on. The last one of a sample does not count in GPT-2's form, whose program
    took its labels so. Rows that pad the vocabulary have logits like the others.

    Unfused, layers take (s, b, h), so that products need no copies of their operands, as in the report of May 2021.
    Its loss is in half precision under AMP; that of December 2020 is in fp32.
    """

    def __init__(self, config: BaselineConfig, make: Parameters) -> None:
        super().__init__()
        shape, self.gpt_2 = config.shape, config.choices.form == GPT_2
        self.tokens = make.table("tokens.weight", (config.padded_vocab_size, shape.hidden_size), INITIAL_STD)
        positions = (shape.seq_length, shape.hidden_size)
        self.positions = make.table("positions.weight", positions, positions_std(config))
        self.dropout = nn.Dropout(config.dropout)
        self.layers = Layers([Layer(config, make, index) for index in range(shape.layers)], config)
        self.norm = norm(config, EPSILON)
        self.dtype = torch.float16 if config.unfused_amp else torch.float32
        self.unfused = config.baseline.unfused
        hidden = torch.ones(shape.seq_length, shape.seq_length, dtype=torch.bool).triu(1)
        self.register_buffer("hidden", hidden if self.unfused else None)

    def forward(self, ids, labels=None):
        labels = ids.roll(-1, dims=1) if labels is None else labels
        tokens = self.tokens.to(self.dtype)
        x = self.dropout(F.embedding(ids, tokens) + self.positions.to(self.dtype))
        logits = F.linear(self.norm(self.through_layers(x)), tokens)
        losses = self.losses(logits.flatten(0, 1), labels.flatten()).view(labels.shape)
        return {"loss": (losses[:, :-1] if self.gpt_2 else losses).mean()}

    def through_layers(self, x):
        if not self.unfused:
            return self.layers(x)
        return self.layers(x.transpose(0, 1).contiguous(), self.hidden).transpose(0, 1)

    def losses(self, logits, labels):
        in_half = self.dtype == torch.float16 and not self.gpt_2
        with torch.autocast(logits.device.type, enabled=False):
            losses = F.cross_entropy(logits if in_half else logits.float(), labels, reduction="none")
        return losses.float()


MODEL = GPT
