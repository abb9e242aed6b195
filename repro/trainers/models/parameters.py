"""How parameters begin: values that depend on the seed and the name alone, spread as the layout wants them."""

from __future__ import annotations

import numpy as np
import oneflow as flow

from repro.trainers.config import Config
from repro.trainers.layout import BROADCAST, Layout, split
from repro.trainers.models.initial import normal_values


class Parameters:
    """Makes the parameters of a model, and gives them to its operators (`use`).

    `rows_only` says whether matrices are split along their rows alone, those of columns being stored transposed.
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
        shape : that in which the values are drawn.
        axis : dimension split over the tensor parallel ranks; None shares the parameter between them.
        transposed : store a matrix the other way round; `axis` then is of what is stored.
        columns : places from which a matrix takes its columns, where programs have them in another order.
        """
        values = normal_values(self.seed, name, shape, std)
        values = values if columns is None else values[:, columns]
        return self.parameter(np.ascontiguousarray(values.T if transposed else values), stage, axis)

    def constant(self, shape: tuple, value: float, stage: int = 0, axis: int | None = None):
        return self.parameter(np.full(shape, value, np.float32), stage, axis)

    def fixed(self, values: np.ndarray, stage: int = 0, axis: int | None = None) -> flow.Tensor:
        """Tensor that is not trained, split over the tensor parallel ranks along `axis`."""
        return self.place(values, stage, self.layout.sbp_signature(tensor=along(axis)))

    def parameter(self, values: np.ndarray, stage: int, axis: int | None) -> flow.nn.Parameter:
        return flow.nn.Parameter(self.place(values, stage, self.layout.sbp_signature(tensor=along(axis))))

    def place(self, values: np.ndarray, stage: int, signature: list) -> flow.Tensor:
        placement = self.layout.placement(stage)
        tensor = flow.tensor(values).to_global(placement=placement, sbp=self.layout.sbp_signature())
        return tensor.to_global(placement=placement, sbp=signature)

    def use(self, weight: flow.Tensor) -> flow.Tensor:
        """A parameter as operators take it.

        OneFlow 0.8.0 aborts (register.cpp:75) where a parameter itself is the source of a transfer between ranks, as one is
        that its pass has sharded. Under AMP, as published, the cast of it is.
        """
        return flow._C.identity(weight) if self.sharded and not self.cast else weight


def along(axis: int | None) -> flow.sbp.sbp:
    return BROADCAST if axis is None else split(axis)
