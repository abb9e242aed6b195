"""Creates parameters with values that depend only on seed and name, distributed according to the layout."""

from __future__ import annotations

import numpy as np
import oneflow as flow

from repro.trainers.config import Config
from repro.trainers.layout import BROADCAST, Layout, split
from repro.trainers.models.initial import normal_values


class Parameters:
    """Creates a model's parameters and prepares them for its operators (`use`).

    With `rows_only`, matrices are split along rows only; column-parallel ones are stored transposed.
    """

    rows_only = False

    def __init__(self, layout: Layout, config: Config) -> None:
        self.layout = layout
        self.seed = config.seed
        self.sharded = config.optimizer_sharding > 0 and layout.data > 1
        self.cast = config.precision == "amp"

    def normal(
        self,
        name: str,
        shape: tuple,
        std: float,
        stage: int = 0,
        axis: int | None = None,
        transposed: bool = False,
        columns: np.ndarray | None = None,
    ):
        """Make a normally distributed parameter.

        Parameters
        ----------
        shape : shape in which the values are drawn.
        axis : dimension that is split over the tensor parallel ranks; None replicates the parameter on them.
        transposed : store the matrix transposed; `axis` then refers to the stored matrix.
        columns : indices of the drawn columns to take, for programs that order them differently.
        """
        values = normal_values(self.seed, name, shape, std)
        values = values if columns is None else values[:, columns]
        return self.parameter(np.ascontiguousarray(values.T if transposed else values), stage, axis)

    def constant(self, shape: tuple, value: float, stage: int = 0, axis: int | None = None):
        return self.parameter(np.full(shape, value, np.float32), stage, axis)

    def fixed(self, values: np.ndarray, stage: int = 0, axis: int | None = None) -> flow.Tensor:
        """Create a constant tensor, split over the tensor parallel ranks along `axis`."""
        return self.place(values, stage, self.layout.sbp_signature(tensor=along(axis)))

    def parameter(self, values: np.ndarray, stage: int, axis: int | None) -> flow.nn.Parameter:
        return flow.nn.Parameter(self.place(values, stage, self.layout.sbp_signature(tensor=along(axis))))

    def place(self, values: np.ndarray, stage: int, signature: list) -> flow.Tensor:
        placement = self.layout.placement(stage)
        tensor = flow.tensor(values).to_global(placement=placement, sbp=self.layout.sbp_signature())
        return tensor.to_global(placement=placement, sbp=signature)

    def use(self, weight: flow.Tensor) -> flow.Tensor:
        """Prepare a parameter for operators.

        OneFlow 0.8.0 aborts (register.cpp:75) if a parameter is the direct source of a transfer between ranks. Its
        optimizer sharding causes such transfers. Under AMP the source is the cast, as in the published programs.
        """
        return flow._C.identity(weight) if self.sharded and not self.cast else weight


def along(axis: int | None) -> flow.sbp.sbp:
    return BROADCAST if axis is None else split(axis)
