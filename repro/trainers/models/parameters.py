"""How parameters begin: values that depend on the seed and the name alone, spread as the layout wants them."""

from __future__ import annotations

import math

import numpy as np
import oneflow as flow

from repro.trainers.layout import BROADCAST, Layout, split
from repro.trainers.models import ops
from repro.trainers.models.initial import normal_values

SMALLEST_SHARD = 1024
"""Elements below which sharding a parameter costs more than it saves; OneFlow's own ZeRO takes the same."""


class Parameters:
    """Makes the parameters of a model.

    With optimizer sharding a parameter is stored split along the data axis, so that its gradient and both moments
    are split too: ZeRO by signature. `whole` gathers it where it is used.
    """

    def __init__(self, layout: Layout, seed: int, sharded: bool) -> None:
        self.layout = layout
        self.seed = seed
        self.sharded = sharded and layout.data > 1

    def normal(
        self,
        name: str,
        shape: tuple,
        std: float,
        stage: int = 0,
        axis: int | None = None,
        rows: int = 0,
        transposed: bool = False,
    ):
        """Make a normally distributed parameter.

        Parameters
        ----------
        shape : that in which the values are drawn.
        axis : dimension split over the tensor parallel ranks; None shares the parameter between them.
        rows : leading rows that are drawn, as for `normal_values`.
        transposed : store a matrix the other way round; `axis` then is of what is stored.
        """
        values = normal_values(self.seed, name, shape, std, rows)
        return self.parameter(np.ascontiguousarray(values.T) if transposed else values, stage, axis)

    def constant(self, shape: tuple, value: float, stage: int = 0, axis: int | None = None):
        return self.parameter(np.full(shape, value, np.float32), stage, axis)

    def fixed(self, values: np.ndarray, stage: int = 0, axis: int | None = None) -> flow.Tensor:
        """Tensor that is not trained, split over the tensor parallel ranks along `axis`."""
        return self.place(values, stage, self.layout.sbp_signature(tensor=along(axis)))

    def parameter(self, values: np.ndarray, stage: int, axis: int | None) -> flow.nn.Parameter:
        shard = self.shard_axis(values.shape, axis) if self.sharded else None
        return flow.nn.Parameter(self.place(values, stage, self.layout.sbp_signature(along(shard), along(axis))))

    def place(self, values: np.ndarray, stage: int, signature: list) -> flow.Tensor:
        placement = self.layout.placement(stage)
        tensor = flow.tensor(values).to_global(placement=placement, sbp=self.layout.sbp_signature())
        return tensor.to_global(placement=placement, sbp=signature)

    def shard_axis(self, shape: tuple, axis: int | None) -> int | None:
        """First dimension that the data axis can split evenly and the tensor axis does not split; None if none."""
        if math.prod(shape) < SMALLEST_SHARD * self.layout.data:
            return None
        taken = axis if self.layout.tensor > 1 else None
        free = (at for at, size in enumerate(shape) if at != taken and size % self.layout.data == 0)
        return next(free, None)


def along(axis: int | None) -> flow.sbp.sbp:
    return BROADCAST if axis is None else split(axis)


def whole(weight: flow.Tensor, layout: Layout) -> flow.Tensor:
    """Gather a parameter that optimizer sharding has split along the data axis; leave any other as it is.

    The gradient goes back split, reduced and scattered in one step. The operator before the transfer is there because
    OneFlow 0.8.0 aborts (register.cpp:75) where a parameter itself is the source of a transfer between ranks.

    With half gradients it has both travel in half precision, and so the gradient of a parameter that is not split;
    OneFlow would cast that to fp32 first.
    """
    if layout.data == 1 or (weight.sbp[0] == BROADCAST and not layout.half_gradients):
        return weight
    source = ops.to_half(weight) if layout.half_gradients else flow._C.identity(weight)
    return source.to_global(sbp=[BROADCAST, *weight.sbp[1:]], grad_sbp=weight.sbp)
