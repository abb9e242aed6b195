"""The random inputs of an operator, and its result and gradients in one step of a graph like the models'."""

from __future__ import annotations

import numpy as np
import oneflow as flow
from oneflow import nn

from repro.trainers.graph.graph import Change, ChangedGraph
from repro.trainers.layout import BROADCAST
from repro.trainers.models.operators import HALF, Input, Operator

SEED = 20200821


def inputs_of(operator: Operator, device: str) -> list:
    """The same random tensors on every call, in the operator's precision."""
    flow.manual_seed(SEED)
    dtype = flow.float16 if operator.precision == HALF else flow.float32
    place = flow.placement(device, ranks=[0])
    return [tensor(argument, place, dtype) for argument in operator.inputs]


def tensor(given: Input, place, dtype):
    """Create an input on the device."""
    if given.below:
        values = np.random.default_rng(SEED).integers(0, given.below, given.shape)
        return flow.tensor(values).to_global(placement=place, sbp=BROADCAST)
    values = flow.randn(*given.shape, placement=place, sbp=BROADCAST) * given.scale
    return values.to(dtype).detach().requires_grad_()


class Shifted(nn.Module):
    """An operator on inputs with zero parameters added, through which the optimizer captures the inputs' gradients."""

    def __init__(self, operator: Operator, tensors: list) -> None:
        super().__init__()
        self.call = operator.call
        for number, given in enumerate(tensors):
            zeros = flow.zeros(*given.shape, placement=given.placement, sbp=given.sbp)
            self.register_parameter(f"shift{number}", nn.Parameter(zeros))

    def forward(self, *tensors):
        shifts = (getattr(self, f"shift{number}") for number in range(len(tensors)))
        return self.call(*((given.to(flow.float32) + shift).to(given.dtype) for given, shift in zip(tensors, shifts)))


class Once(ChangedGraph):
    """One SGD step with learning rate 1, which turns zero parameters into the negative gradient."""

    def __init__(self, model: Shifted, changes: tuple[Change, ...]) -> None:
        super().__init__()
        self.changes = changes
        self.model = model
        self.add_optimizer(flow.optim.SGD(model.parameters(), lr=1.0))

    def build(self, back, *tensors):
        result = self.model(*tensors)
        (result * back).sum().backward()
        return result


def in_a_graph(operator: Operator, tensors: list, back) -> tuple:
    """Result of an operator in a graph like the models', and the gradient of each input."""
    model = Shifted(operator, tensors)
    result = Once(model, operator.changes)(back, *(given.detach() for given in tensors))
    return result, [-shift for shift in model.parameters()]


def on_host(values) -> np.ndarray:
    """All values of a tensor, on the host."""
    return values.detach().to_local().numpy()
