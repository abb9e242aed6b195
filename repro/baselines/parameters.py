"""Makes layers that begin with the trainers' weights, value by value."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from repro.trainers.models.initial import normal_values


class Parameters:
    """Names are those under which the trainers draw; shapes are theirs too, a linear weight being (inputs, outputs)."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def table(self, name: str, shape: tuple, std: float) -> nn.Parameter:
        return nn.Parameter(torch.from_numpy(normal_values(self.seed, name, shape, std)))

    def linear(self, name: str, inputs: int, outputs: int, std: float, columns: np.ndarray | None = None) -> nn.Linear:
        """Linear layer; `columns` chooses, of the `outputs` that are drawn, those that it has, in their order."""
        drawn = normal_values(self.seed, f"{name}.weight", (inputs, outputs), std)
        drawn = drawn if columns is None else drawn[:, columns]
        layer = nn.Linear(*drawn.shape, device="meta")
        layer.weight = nn.Parameter(torch.from_numpy(np.ascontiguousarray(drawn.T)))
        layer.bias = nn.Parameter(torch.zeros(drawn.shape[1]))
        return layer

    def convolution(self, name: str, inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Conv2d:
        """Convolution without bias, initialised after He for its inputs, padded to keep the size at stride 1."""
        layer = nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False, device="meta")
        std = (2.0 / (inputs * size * size)) ** 0.5
        layer.weight = self.table(f"{name}.weight", tuple(layer.weight.shape), std)
        return layer
