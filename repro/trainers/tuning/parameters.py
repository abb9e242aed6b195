"""Parameters of the tuned program: sharded by SBP signature, with optional half-precision gradient exchange."""

from __future__ import annotations

import math

import numpy as np
import oneflow as flow

from repro.trainers.config import Config
from repro.trainers.layout import BROADCAST, Layout
from repro.trainers.models import ops
from repro.trainers.models.parameters import Parameters, along

SMALLEST_SHARD = 1024
"""Elements below which sharding a parameter costs more than it saves; OneFlow's own ZeRO takes the same."""


class TunedParameters(Parameters):
    """Creates a model's parameters.

    With optimizer sharding, a parameter is stored split along the data axis, so its gradient and both moments are split
    too: ZeRO by signature. Under AMP, data parallel ranks reduce gradients in half precision, with two exceptions. On a
    mesh with tensor parallel ranks, OneFlow's compile time grows with the operators. With gradient accumulation,
    gradients would be exchanged after each accumulation step instead of once.

    Matrices are split along rows only. OneFlow computes the global gradient norm per signature, and its kernel aborts
    for few blocks (multi_reduce_kernels.cu:108, seen on H200 when the column weights had their own signature).
    """

    rows_only = True

    def __init__(self, layout: Layout, config: Config) -> None:
        super().__init__(layout, config)
        program = config.choices
        self.sharded = program.own_zero and config.optimizer_sharding > 0 and layout.data > 1
        alone = layout.tensor == 1 and config.accumulation_steps == 1
        self.half = program.half_gradients and config.precision == "amp" and alone

    def parameter(self, values: np.ndarray, stage: int, axis: int | None) -> flow.nn.Parameter:
        shard = self.shard_axis(values.shape, axis) if self.sharded else None
        return flow.nn.Parameter(self.place(values, stage, self.layout.sbp_signature(along(shard), along(axis))))

    def shard_axis(self, shape: tuple, axis: int | None) -> int | None:
        """First dimension that the data axis divides evenly and the tensor axis does not split, or None."""
        if math.prod(shape) < SMALLEST_SHARD * self.layout.data:
            return None
        taken = axis if self.layout.tensor > 1 else None
        free = (at for at, size in enumerate(shape) if at != taken and size % self.layout.data == 0)
        return next(free, None)

    def use(self, weight: flow.Tensor) -> flow.Tensor:
        """Gather a parameter that optimizer sharding has split along the data axis; return any other unchanged.

        The gradient is reduce-scattered. The operator before the transfer is needed because OneFlow 0.8.0 aborts
        (register.cpp:75) if a parameter is the direct source of a transfer between ranks.

        In half precision, parameter and gradient are both transferred as fp16. So is the gradient of a parameter that
        is not split, which OneFlow would cast to fp32 first.
        """
        if self.layout.data == 1 or (weight.sbp[0] == BROADCAST and not self.half):
            return weight
        source = ops.to_half(weight) if self.half else flow._C.identity(weight)
        return source.to_global(sbp=[BROADCAST, *weight.sbp[1:]], grad_sbp=weight.sbp)
