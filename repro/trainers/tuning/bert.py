"""The tuned BERT: one product for queries, keys and values, and fused bias, GELU, dropout and masked softmax."""

from __future__ import annotations

from functools import partial

from oneflow import nn

from repro.models.bert import SPEC
from repro.trainers.config import Config
from repro.trainers.models import bert, ops
from repro.trainers.models.bert import COMPARED, EPSILON, plain_masked_attention
from repro.trainers.models.layers import INITIAL_STD, LayerNorm
from repro.trainers.models.operators import HALF, NO_DROPS, SINGLE, Input, Operator, transformer
from repro.trainers.models.parameters import Parameters
from repro.trainers.tuning.layers import MLP, Attention, masked_attention, padding_mask


class Layer(nn.Module):
    """Post-normalised transformer layer on x (b, s, h): attention and MLP, each with a residual connection."""

    def __init__(self, config: Config, make: Parameters, index: int) -> None:
        super().__init__()
        size, name = config.shape.hidden_size, f"layer{index}"
        self.attention = Attention(make, f"{name}.attention", size, config.shape.attention_heads, INITIAL_STD)
        self.norm1 = LayerNorm(make, size, EPSILON)
        self.perceptron = MLP(make, f"{name}.perceptron", size, INITIAL_STD)
        self.norm2 = LayerNorm(make, size, EPSILON)
        self.dropout = config.dropout

    def forward(self, x, mask):
        attend = partial(masked_attention, mask=mask, p=self.dropout)
        x = self.norm1(x + ops.bias_dropout(*self.attention(x, attend), self.dropout))
        return self.norm2(x + ops.bias_dropout(*self.perceptron(x), self.dropout))


class BERT(bert.BERT):
    """The published BERT with faster layers."""

    def build_layer(self, config: Config, make: Parameters, index: int) -> nn.Module:
        return Layer(config, make, index)

    def encode(self, x, valid):
        """Apply all layers, which take (b, s, h), to x; returns hidden states (b * s, h)."""
        mask, shape = padding_mask(valid), (*valid.shape, x.shape[1])
        x = x.reshape(*shape)
        for layer in self.layers:
            x = layer(x, mask)
        return x.reshape(-1, x.shape[2])


MODEL = BERT


def operators(scale: str, device: str) -> list[Operator]:
    """Attention with a padding mask, which is applied in the softmax kernel, and on CUDA all operators in half precision.

    The published BERT lists them in fp32 alone, in which it was published.
    """
    sizes = COMPARED[scale]
    heads = tuple(Input(name, sizes.heads_shape) for name in ("query", "key", "value"))
    valid = Input("valid", (sizes.samples, sizes.length), below=2)

    def attention(precision: str) -> Operator:
        name = f"masked attention, fused, {SPEC.name} {precision}"
        return Operator(name, (SPEC.name,), precision, (*heads, valid), compared_attention, plain_masked_attention)

    half = [attention(HALF), *transformer(SPEC.name, sizes, HALF)] if device == "cuda" else []
    return [attention(SINGLE), *half]


def compared_attention(query, key, value, valid):
    return masked_attention(query, key, value, padding_mask(valid), NO_DROPS)
