"""Layout of the ranks: the ranks of each pipeline stage, and the distribution of tensors over them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import oneflow as flow

BROADCAST = flow.sbp.broadcast


def split(axis: int) -> flow.sbp.sbp:
    return flow.sbp.split(axis)


@dataclass(frozen=True)
class Layout:
    """A mesh of pipeline x data x tensor ranks; the tensor axis varies fastest.

    Tensor parallel ranks are adjacent (on one node) and pipeline stages furthest apart, as in the published runs.

    Raises
    ------
    ValueError
        If an axis is smaller than 1, or the mesh size differs from the number of processes.
    """

    data: int
    tensor: int
    pipeline: int
    device: str

    def __post_init__(self) -> None:
        for axis in ("data", "tensor", "pipeline"):
            if getattr(self, axis) < 1:
                raise ValueError(f"layout.{axis}: {getattr(self, axis)} is smaller than 1")
        processes = flow.env.get_world_size()
        if self.world_size != processes:
            raise ValueError(f"layout: {self} needs {self.world_size} processes, {processes} were started")

    def __str__(self) -> str:
        return f"{self.data}x{self.tensor}x{self.pipeline}"

    @property
    def world_size(self) -> int:
        return self.data * self.tensor * self.pipeline

    @property
    def nested(self) -> bool:
        """Whether a stage is a two-dimensional mesh; OneFlow requires a flat one if either axis is 1."""
        return self.data > 1 and self.tensor > 1

    @property
    def last_stage(self) -> int:
        return self.pipeline - 1

    @property
    def data_rank(self) -> int:
        """Index of this process on the data axis."""
        return flow.env.get_rank() // self.tensor % self.data

    def stage_of(self, layer: int, layers: int) -> int:
        """Stage that holds a layer; layers are divided evenly and in order."""
        return layer * self.pipeline // layers

    def placement(self, stage: int, device: str = "") -> flow.placement:
        """Placement on a stage's devices."""
        mesh = np.arange(self.world_size).reshape(self.pipeline, self.data, self.tensor)[stage]
        return flow.placement(device or self.device, ranks=(mesh if self.nested else mesh.reshape(-1)).tolist())

    def all_ranks(self) -> flow.placement:
        """One-dimensional placement on all devices of all stages."""
        return flow.placement(self.device, ranks=list(range(self.world_size)))

    def sbp_signature(self, data: flow.sbp.sbp = BROADCAST, tensor: flow.sbp.sbp = BROADCAST) -> list:
        """Signature on a stage from those along its axes; a flat mesh uses only one of them."""
        if self.nested:
            return [data, tensor]
        return [tensor] if self.tensor > 1 else [data]

    def batch_signature(self, axis: int = 0) -> list:
        """Signature of activations: samples (`axis`) split over the data axis, replicated along the tensor axis."""
        return self.sbp_signature(data=split(axis))
