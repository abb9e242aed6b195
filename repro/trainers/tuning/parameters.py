"""Parameters of the tuned program: sharded by their signatures, and exchanged in half precision where that is enough."""

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
    """Makes the parameters of a model.

    With optimizer sharding a parameter is stored split along the data axis, so that its gradient and both moments
    are split too: ZeRO by signature. Under AMP data parallel ranks add up gradients in half precision: not on a mesh with
    tensor parallel ranks, which OneFlow compiles slowly, the more so the more operators there are, nor where gradients are
    accumulated, which would travel after each micro-step instead of once.

    Matrices are split along rows alone. OneFlow takes the global norm of the gradients signature by signature, and with
    few blocks of them its kernel ends the process (multi_reduce_kernels.cu:108, seen on H200 with the column weights by
    themselves).
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
        """First dimension that the data axis can split evenly and the tensor axis does not split; None if none."""
        if math.prod(shape) < SMALLEST_SHARD * self.layout.data:
            return None
        taken = axis if self.layout.tensor > 1 else None
        free = (at for at, size in enumerate(shape) if at != taken and size % self.layout.data == 0)
        return next(free, None)

    def use(self, weight: flow.Tensor) -> flow.Tensor:
        """Gather a parameter that optimizer sharding has split along the data axis; leave any other as it is.

        The gradient goes back split, reduced and scattered in one step. The operator before the transfer is there
        because OneFlow 0.8.0 aborts (register.cpp:75) where a parameter itself is the source of a transfer between ranks.

        In half precision both travel so, and the gradient of a parameter that is not split too; OneFlow would cast that
        to fp32 first.
        """
        if self.layout.data == 1 or (weight.sbp[0] == BROADCAST and not self.half):
            return weight
        source = ops.to_half(weight) if self.half else flow._C.identity(weight)
        return source.to_global(sbp=[BROADCAST, *weight.sbp[1:]], grad_sbp=weight.sbp)
