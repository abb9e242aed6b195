"""Flat parameters for an optimizer that is sharded over data parallel ranks: two tensors have all those of a layer.

Stored alone, each parameter takes a cast, an all-gather, a copy, a reduce-scatter and an update of its own. With few
samples, OneFlow takes longer to begin these operators than a GPU to run them: sharding cost GPT-2 small 20 to 36% of its
throughput on two H200s with one sample each. In a flat parameter, those of a layer lie one after the other, apart only
by weight decay; `docker/sharding/flat_operator.cpp` copies them out of what was gathered.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import oneflow as flow
from oneflow import nn

from repro.trainers.config import Config
from repro.trainers.models.parameters import Parameters
from repro.trainers.tuning.attention import loaded
from repro.trainers.tuning.parameters import TunedParameters

OPERATOR = "repro_parts"
DECAYED, EXEMPT = "pieces", "pieces.{}"
"""Names of the flat parameters of a layer; the second has a word that exempts it from weight decay."""


@dataclass(eq=False)
class Piece:
    """A parameter within a flat one: its initial values until that is stored, its tensor once that is gathered."""

    shape: tuple
    values: np.ndarray | None
    tensor: flow.Tensor | None = None


class FlatParameters(TunedParameters):
    """Creates the parameters of one layer: first pieces, which `store` joins and `gather` cuts out again for use."""

    def __init__(self, config: Config, make: Parameters) -> None:
        super().__init__(make.layout, config)
        self.exempting = config.choices.not_decayed
        self.flat: dict[str, list[Piece]] = {}

    def parameter(self, values: np.ndarray, stage: int, axis: int | None):
        """A piece; a parameter of its own if the ranks cannot have equally many of its elements."""
        even = values.size % self.layout.data == 0
        return Piece(values.shape, values) if even else super().parameter(values, stage, axis)

    def store(self, layer: nn.Module) -> None:
        """Join the pieces that a layer and its modules have to its flat parameters, split over the ranks."""
        for path, module in layer.named_modules():
            for name, value in vars(module).items():
                if isinstance(value, Piece):
                    self.flat.setdefault(self.place_of(f"{path}.{name}"), []).append(value)
        for name, pieces in self.flat.items():
            rows = [piece.values.reshape(self.layout.data, -1) for piece in pieces]
            layer._parameters[name] = super().parameter(np.concatenate(rows, axis=1).reshape(-1), 0, None)
            for piece in pieces:
                piece.values = None

    def place_of(self, path: str) -> str:
        exempt = any(word in path for word in self.exempting)
        return EXEMPT.format(self.exempting[0]) if exempt else DECAYED

    def gather(self, layer: nn.Module) -> None:
        """Gather a layer's flat parameters, so that its modules can use their pieces."""
        for name, pieces in self.flat.items():
            whole = super().use(getattr(layer, name))
            for piece, tensor in zip(pieces, cut(whole, [piece.shape for piece in pieces], self.layout.data)):
                piece.tensor = tensor

    def use(self, weight):
        return weight.tensor if isinstance(weight, Piece) else super().use(weight)


def flat_parameters(config: Config, make: Parameters) -> FlatParameters | None:
    """What creates the parameters of one layer, or None if each is to be stored alone.

    That is where ranks do not shard all of a layer alike, where the operators are not available, and where a layer's
    parameters are needed more than once in an iteration: with gradient accumulation and with recomputation.
    """
    alike = make.layout.tensor == make.layout.pipeline == 1
    once = config.accumulation_steps == 1 and not config.activation_checkpointing
    return FlatParameters(config, make) if make.sharded and alike and once and loaded() else None


def cut(whole: flow.Tensor, shapes: list[tuple], ranks: int) -> flow.TensorTuple:
    """Parameters of these shapes out of a gathered flat one (ranks * chunk).

    None of OneFlow's Python functions is for operators from outside; this one hands its arguments to any operator.
    """
    builder = flow._oneflow_internal.one.OpBuilder(OPERATOR).input("in", 1).output("out", len(shapes))
    operator = builder.attr("ranks", f"at_int64: {ranks}").build()
    outputs = {"out_shapes": [flow.Size(shape) for shape in shapes], "out_dtypes": [whole.dtype] * len(shapes)}
    return flow._C.dispatch_tensor_buffer_to_list_of_tensors_v2(operator, whole, **outputs, dynamic_out=False)
