"""The tuned GPT: fused or blockwise attention, a lookup of positions, and a head that computes losses in parts."""

from __future__ import annotations

from functools import partial

import numpy as np
import oneflow as flow
from oneflow import nn

from repro.models.gpt import SPEC
from repro.trainers.config import Config
from repro.trainers.models import gpt, ops
from repro.trainers.models.gpt import COMPARED, COMPARED_LAYER, EPSILON, plain_causal_attention
from repro.trainers.models.layers import LayerNorm, look_up, shared
from repro.trainers.models.operators import HALF, NO_DROPS, SINGLE, Input, Operator
from repro.trainers.models.parameters import Parameters
from repro.trainers.tuning.attention import FusedAttention, attend, fusing, loaded, usable
from repro.trainers.tuning.flat_parameters import flat_parameters
from repro.trainers.tuning.layers import MLP, Attention, attention_blocks, causal_attention
from repro.trainers.tuning.rewrite import REWRITES

MOST_LOGITS = 1 << 28
"""Of a rank at a time: 1 GiB in fp32, and as much again for the softmax that the gradient needs."""
MANY_LOGITS = 1 << 27
"""With more a head is cut at least once.

On an H200 that took 0.5 GB less of the published DP_1x1x1_2_1536x16, and no more time. To cut MP_1x1x1_8_768x12 once
more than MOST_LOGITS asks for took 276 MiB more.
"""


class Embedding(gpt.Embedding):
    """Sum of token and position embeddings (b, s, h).

    Positions are looked up, not broadcast: for few samples, OneFlow sums the gradient of a broadcast with one thread
    block per element, which took 3.8 ms of a published iteration on an H200.
    """

    def __init__(self, config: Config, make: Parameters) -> None:
        super().__init__(config, make)
        self.register_buffer("order", make.fixed(np.arange(config.shape.seq_length)))

    def forward(self, ids, table):
        positions = self.use(self.positions)
        if self.amp:
            table, positions = ops.to_half(table), ops.to_half(positions)
        x = look_up(table, ids, self.layout) + flow._C.gather(positions, ids * 0 + self.order, axis=0)
        return ops.dropout(x, self.dropout)


class Layer(nn.Module):
    """Pre-normalised transformer layer: attention and MLP, each with a residual connection."""

    def __init__(self, config: Config, make: Parameters, index: int, stage: int) -> None:
        super().__init__()
        size, name = config.shape.hidden_size, f"layer{index}"
        std = gpt.outward_std(config)
        self.flat = flat_parameters(config, make)
        make = self.flat or make
        self.norm1 = LayerNorm(make, size, EPSILON, stage)
        sizes = (size, config.shape.attention_heads)
        self.fused = usable(config)
        self.attention = (FusedAttention if self.fused else Attention)(make, f"{name}.attention", *sizes, std, stage)
        self.norm2 = LayerNorm(make, size, EPSILON, stage)
        self.perceptron = MLP(make, f"{name}.perceptron", size, std, stage)
        amp = config.precision == "amp"
        blocks = attention_blocks(config.shape.seq_length, make.layout.nested, amp)
        self.attend = partial(causal_attention, layer=index + 1, blocks=blocks, p=config.dropout)
        self.dropout = config.dropout
        if self.flat:
            self.flat.store(self)

    def forward(self, x):
        if self.flat:
            self.flat.gather(self)
        y = self.norm1(x)
        x = x + ops.bias_dropout(*(self.attention(y) if self.fused else self.attention(y, self.attend)), self.dropout)
        return x + ops.bias_dropout(*self.perceptron(self.norm2(x)), self.dropout)


class Head(nn.Module):
    """Next-token losses, computed in parts along the sequence if the logits of all positions would be too large.

    A part's loss is its sum divided by the number of all positions, so the parts add up to the mean. Each part has its
    own backward pass, and `rewrite.take_turns` makes the parts run one after another. Losses are fp32 also under AMP.
    """

    def __init__(self, config: Config, make: Parameters, stage: int) -> None:
        super().__init__()
        self.norm = LayerNorm(make, config.shape.hidden_size, EPSILON, stage)
        self.layout = make.layout
        self.small = config.choices.form == "gpt-2"
        length = config.shape.seq_length
        logits = config.micro_batch * length * config.padded_vocab_size // config.layout.tensor
        self.parts = 1 if make.layout.nested else head_parts(logits, length)

    def forward(self, x, table, labels):
        """Losses of x (b, s, h) against labels (b, s); "gpt-2" passes its ids (b, s), which are shifted here."""
        batch, length = labels.shape
        if self.small:
            labels = gpt.following(labels)
        count = batch * (length - 1 if self.small else length)
        pairs = zip(*(flow.chunk(tensor, self.parts, dim=1) for tensor in (self.norm(x), labels)))
        losses = [self.losses(part, table, targets) for part, targets in pairs]
        if self.small:
            losses[-1] = gpt.without_last(losses[-1])
        return tuple(loss.sum() / count for loss in losses)

    def losses(self, x, table, labels):
        x = shared(x, self.layout) if self.layout.tensor > 1 else x
        logits = flow.matmul(x, table, transpose_b=True)
        losses = ops.cross_entropy(logits.view(-1, logits.shape[-1]), labels.reshape(-1), self.layout.batch_signature())
        return losses.reshape(*labels.shape)


def head_parts(logits: int, length: int) -> int:
    """Number of parts, a power of 2, into which a head splits `length` positions with `logits` logits per rank."""
    parts = 1
    while length % (2 * parts) == 0 and (logits > parts * MOST_LOGITS or (parts == 1 and logits > MANY_LOGITS)):
        parts *= 2
    return parts


class GPT(gpt.GPT):
    """The published GPT in both forms, with faster operators; activations are (b, s, h)."""

    def build_embedding(self, config: Config, make: Parameters) -> nn.Module:
        return Embedding(config, make)

    def build_layer(self, config: Config, make: Parameters, index: int, stage: int) -> nn.Module:
        return Layer(config, make, index, stage)

    def build_head(self, config: Config, make: Parameters, stage: int) -> nn.Module:
        return Head(config, make, stage)

    def outputs(self, losses: tuple) -> dict:
        return {"loss": sum(losses[1:], losses[0]), "objectives": losses}


MODEL = GPT


def operators(scale: str, device: str) -> list[Operator]:
    """Attention in as many blocks as the program uses, and fused if that is available; half precision only on CUDA."""
    sizes = COMPARED[scale]
    heads = tuple(Input(name, sizes.heads_shape, 1) for name in ("query", "key", "value"))

    def operator(name: str, precision: str, call, changes: tuple) -> Operator:
        named = f"{name}, {SPEC.name} {precision}"
        return Operator(
            named,
            (SPEC.name,),
            precision,
            heads,
            call,
            plain_causal_attention,
            axis=1,
            places=1,
            changes=changes,
        )

    precisions = (SINGLE, HALF) if device == "cuda" else (SINGLE,)
    available = [
        operator("causal attention in blocks", precision, attention_in_blocks, REWRITES) for precision in precisions
    ]
    if device == "cuda" and loaded():
        available.append(operator("causal attention by cuDNN", HALF, fused_attention, (fusing(NO_DROPS),)))
    return available


def attention_in_blocks(query, key, value):
    blocks = attention_blocks(query.shape[2], nested=False, amp=query.dtype == flow.float16)
    return causal_attention(query, key, value, COMPARED_LAYER, blocks, NO_DROPS)


def fused_attention(query, key, value):
    products = flow.cat([query, key, value], dim=-1).permute(0, 2, 1, 3)
    return attend(products).permute(0, 2, 1, 3)
