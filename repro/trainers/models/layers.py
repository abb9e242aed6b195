"""Building blocks of the transformers, with linear layers split over the tensor parallel ranks."""

from __future__ import annotations

import numpy as np
import oneflow as flow
from oneflow import nn

from repro.trainers.models import ops
from repro.trainers.models.parameters import Parameters

INITIAL_STD = 0.02
"""Standard deviation of initial weights, in GPT (argument init_method_std) and in BERT alike."""


class LayerNorm(nn.Module):
    def __init__(self, make: Parameters, size: int, epsilon: float, stage: int = 0) -> None:
        super().__init__()
        self.weight = make.constant((size,), 1.0, stage)
        self.bias = make.constant((size,), 0.0, stage)
        self.epsilon = epsilon
        self.use = make.use

    def forward(self, x):
        return ops.layer_norm(x, self.use(self.weight), self.use(self.bias), self.epsilon)


class Dense(nn.Module):
    """Linear layer on x (n, inputs) that is not split over tensor parallel ranks.

    `outputs` columns are drawn; `columns` selects the ones that the layer keeps, in this order.
    """

    def __init__(
        self, make: Parameters, name: str, inputs: int, outputs: int, columns: np.ndarray | None = None
    ) -> None:
        super().__init__()
        self.weight = make.normal(f"{name}.weight", (inputs, outputs), INITIAL_STD, columns=columns)
        self.bias = make.constant((outputs if columns is None else len(columns),), 0.0)
        self.use = make.use

    def forward(self, x):
        return ops.add_bias(flow._C.matmul(x, self.use(self.weight)), self.use(self.bias))


class ColumnLinear(nn.Module):
    """Linear layer whose outputs are split over the tensor parallel ranks; the bias is returned, not added."""

    def __init__(self, make: Parameters, name: str, inputs: int, outputs: int, stage: int = 0) -> None:
        super().__init__()
        self.transposed = make.rows_only
        axis = 0 if self.transposed else 1
        self.weight = make.normal(f"{name}.weight", (inputs, outputs), INITIAL_STD, stage, axis, self.transposed)
        self.bias = make.constant((outputs,), 0.0, stage, axis=0)
        self.use = make.use

    def forward(self, x):
        return self.product(x)

    def product(self, x):
        return flow._C.matmul(x, self.use(self.weight), transpose_b=self.transposed), self.use(self.bias)


class RowLinear(nn.Module):
    """Linear layer whose inputs are split over the tensor parallel ranks; the bias is returned, not added.

    The result is summed over these ranks; `batch_axis` is its sample axis.
    """

    def __init__(
        self, make: Parameters, name: str, inputs: int, outputs: int, std: float, stage: int = 0, batch_axis: int = 0
    ) -> None:
        super().__init__()
        self.weight = make.normal(f"{name}.weight", (inputs, outputs), std, stage, axis=0)
        self.bias = make.constant((outputs,), 0.0, stage)
        self.layout = make.layout
        self.batch_axis = batch_axis
        self.use = make.use

    def forward(self, x):
        y = flow._C.matmul(x, self.use(self.weight))
        if self.layout.tensor > 1:
            y = y.to_global(sbp=self.layout.batch_signature(self.batch_axis))
        return y, self.use(self.bias)


class TokenEmbedding(nn.Module):
    """Token embedding table, with rows split over the tensor parallel ranks.

    Padding rows are initialised like the others and have logits. The published programs did not mask them either; this
    adds log(rows / tokens) to the initial loss.
    """

    def __init__(self, make: Parameters, rows: int, size: int, stage: int = 0) -> None:
        super().__init__()
        self.weight = make.normal("tokens.weight", (rows, size), INITIAL_STD, stage, axis=0)
        self.use = make.use

    def forward(self):
        return self.use(self.weight)


def look_up(table, ids, layout):
    """Embeddings (b, s, h) of token ids (b, s), replicated on the tensor parallel ranks."""
    x = flow._C.gather(table, ids, axis=0)
    return x.to_global(sbp=layout.batch_signature()) if layout.tensor > 1 else x


def shared(x, layout, batch_axis: int = 0):
    """Mark x as replicated on the tensor parallel ranks, so that their partial gradients are summed."""
    signature = layout.batch_signature(batch_axis)
    return x.to_global(sbp=signature, grad_sbp=signature)
