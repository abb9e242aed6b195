"""Feeds a rank its rows of the trainers' batches, cut into micro-batches on its device."""

from __future__ import annotations

import numpy as np
import torch

from repro.baselines.config import BaselineConfig
from repro.trainers.data.batches import Placed, build_batches


class Feeder(Placed):
    """A batch is a list of micro-batches, each a tuple of tensors."""

    def __init__(self, config: BaselineConfig, rank: int, device: torch.device) -> None:
        rows = config.micro_batch * config.accumulation_steps
        super().__init__(build_batches(config), rank * rows, (rank + 1) * rows)
        self.micro_batch = config.micro_batch
        self.channels_last = config.baseline.channels_last
        self.device = device

    def place(self, arrays: tuple) -> list:
        columns = [self.place_array(array) for array in arrays]
        return list(zip(*(column.split(self.micro_batch) for column in columns), strict=True))

    def place_array(self, array: np.ndarray) -> torch.Tensor:
        """Copy without waiting for the work before it; numbers of tokens and classes become int64, as torch wants."""
        tensor = torch.from_numpy(np.ascontiguousarray(array))
        if not tensor.is_floating_point():
            tensor = tensor.long()
        if self.channels_last and tensor.ndim == 4:
            tensor = tensor.contiguous(memory_format=torch.channels_last)
        if self.device.type == "cuda":
            tensor = tensor.pin_memory()
        return tensor.to(self.device, non_blocking=True)
