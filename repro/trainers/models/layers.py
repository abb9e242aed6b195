"""The parts that transformers share, their linear layers split over the tensor parallel ranks."""

from __future__ import annotations

import numpy as np
import oneflow as flow
from oneflow import nn

from repro.trainers.models import ops
from repro.trainers.models.parameters import Parameters, whole

INITIAL_STD = 0.02
"""Standard deviation of initial weights, in GPT (argument init_method_std) and in BERT alike."""


class LayerNorm(nn.Module):
    def __init__(self, make: Parameters, size: int, epsilon: float, stage: int = 0) -> None:
        super().__init__()
        self.weight = make.constant((size,), 1.0, stage)
        self.bias = make.constant((size,), 0.0, stage)
        self.epsilon = epsilon
        self.layout = make.layout

    def forward(self, x):
        return ops.layer_norm(x, whole(self.weight, self.layout), whole(self.bias, self.layout), self.epsilon)


class ColumnLinear(nn.Module):
    """Linear layer whose outputs are split over the tensor parallel ranks; the bias is returned, not added.

    Its weight is stored (outputs, inputs), so that every split weight is split along dimension 0. OneFlow takes the
    global norm of the gradients signature by signature, and with few blocks of them its kernel ends the process
    (multi_reduce_kernels.cu:108, seen on H200 with the column weights by themselves).
    """

    def __init__(self, make: Parameters, name: str, inputs: int, outputs: int, stage: int = 0) -> None:
        super().__init__()
        self.weight = make.normal(f"{name}.weight", (inputs, outputs), INITIAL_STD, stage, axis=0, transposed=True)
        self.bias = make.constant((outputs,), 0.0, stage, axis=0)
        self.layout = make.layout

    def forward(self, x):
        y = flow.matmul(shared(x, self.layout), whole(self.weight, self.layout), transpose_b=True)
        return y, whole(self.bias, self.layout)


class RowLinear(nn.Module):
    """Linear layer whose inputs are split over the tensor parallel ranks; the bias is returned, not added."""

    def __init__(self, make: Parameters, name: str, inputs: int, outputs: int, std: float, stage: int = 0) -> None:
        super().__init__()
        self.weight = make.normal(f"{name}.weight", (inputs, outputs), std, stage, axis=0)
        self.bias = make.constant((outputs,), 0.0, stage)
        self.layout = make.layout

    def forward(self, x):
        y = flow.matmul(x, whole(self.weight, self.layout))
        if self.layout.tensor > 1:
            y = y.to_global(sbp=self.layout.batch_signature())
        return y, whole(self.bias, self.layout)


class Attention(nn.Module):
    """Multi-head self-attention, heads split over the tensor parallel ranks; bias and dropout are left to the caller.

    `attend` (query, key, value) gives the context. A head's query, key and value are neighbours.
    """

    def __init__(self, make: Parameters, name: str, size: int, heads: int, std: float, stage: int = 0) -> None:
        super().__init__()
        self.heads = heads
        self.inward = ColumnLinear(make, f"{name}.inward", size, 3 * size, stage)
        self.outward = RowLinear(make, f"{name}.outward", size, size, std, stage)

    def forward(self, x, attend):
        y, bias = self.inward(x)
        batch, length, size = y.shape
        y = (y + bias).view(batch, length, self.heads, size // self.heads).permute(0, 2, 1, 3)
        context = attend(*flow.chunk(y, 3, dim=-1)).permute(0, 2, 1, 3)
        return self.outward(context.reshape(batch, length, size // 3))


class MLP(nn.Module):
    """Two linear layers of four times the width with a GELU between; bias and dropout are left to the caller."""

    def __init__(self, make: Parameters, name: str, size: int, std: float, stage: int = 0) -> None:
        super().__init__()
        self.inward = ColumnLinear(make, f"{name}.inward", size, 4 * size, stage)
        self.outward = RowLinear(make, f"{name}.outward", 4 * size, size, std, stage)

    def forward(self, x):
        return self.outward(ops.bias_gelu(*self.inward(x)))


class TokenEmbedding(nn.Module):
    """Table of token vectors, rows split over the tensor parallel ranks, padded with rows of zeros.

    It is gathered once for those that use it, the embedding and the head, if one stage has both.
    """

    def __init__(self, make: Parameters, tokens: int, padded: int, size: int, stage: int = 0) -> None:
        super().__init__()
        self.weight = make.normal("tokens.weight", (padded, size), INITIAL_STD, stage, axis=0, rows=tokens)
        self.layout = make.layout

    def forward(self):
        return whole(self.weight, self.layout)


def look_up(table, ids, layout):
    """Vectors (b, s, h) of token ids (b, s)."""
    x = flow._C.gather(table, ids, axis=0)
    return x.to_global(sbp=layout.batch_signature()) if layout.tensor > 1 else x


class VocabularyHead(nn.Module):
    """Scores the vocabulary by the token vectors and takes the loss, both split over the tensor parallel ranks.

    Padding of the vocabulary is masked: no loss depends on how much of it a tensor parallel size needs. The published
    programs did not mask it, which at the start adds log(padded / real) to a loss. The addition reads and writes the
    logits once, under AMP in half precision; without padding there is none.
    """

    def __init__(self, make: Parameters, tokens: int, padded: int, stage: int = 0, amp: bool = False) -> None:
        super().__init__()
        self.layout = make.layout
        self.amp = amp
        self.padded = padded > tokens
        if self.padded:
            mask = np.where(np.arange(padded) < tokens, 0.0, ops.MASKED)
            self.register_buffer("mask", make.fixed(mask.astype(np.float32), stage, axis=0))

    def forward(self, x, table, labels, bias=None):
        """Losses (b * s,) of hidden states x (b, s, h) against labels (b, s); table (vocabulary, h)."""
        logits = flow.matmul(shared(x, self.layout), table, transpose_b=True)
        logits = logits.view(-1, logits.shape[-1])
        if bias is not None:
            logits = logits + bias
        if self.padded:
            logits = logits + self.mask
            logits = ops.to_half(logits) if self.amp else logits
        return ops.cross_entropy(logits, labels.reshape(-1), self.layout.batch_signature())


def shared(x, layout):
    """Mark x as held alike by the tensor parallel ranks, so that their partial gradients are added up."""
    return x.to_global(sbp=layout.batch_signature(), grad_sbp=layout.batch_signature()) if layout.tensor > 1 else x
