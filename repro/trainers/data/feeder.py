"""Feeds batches to the graph: each process places its own rows on its device."""

from __future__ import annotations

import numpy as np
import oneflow as flow

from repro.trainers.config import Config
from repro.trainers.data.batches import Placed, build_batches
from repro.trainers.layout import Layout


class Feeder(Placed):
    """Splits each batch over the data axis; each process gets only its own rows.

    A batch is a tuple of global tensors. `stages` has the pipeline stage that uses each array, or None if the array is
    not fed.
    """

    def __init__(self, batches, layout: Layout, rows_per_rank: int, stages: tuple, keep: bool) -> None:
        super().__init__(batches, layout.data_rank * rows_per_rank, (layout.data_rank + 1) * rows_per_rank, keep)
        self.layout = layout
        self.stages = stages

    def place(self, arrays: tuple) -> tuple:
        pairs = zip(arrays, self.stages)
        return tuple(self.place_array(array, stage) for array, stage in pairs if stage is not None)

    def place_array(self, array: np.ndarray, stage: int) -> flow.Tensor:
        tensor = flow.tensor(np.ascontiguousarray(array))
        return tensor.to_global(placement=self.layout.placement(stage), sbp=self.layout.batch_signature())


def build_feeder(config: Config, layout: Layout) -> Feeder:
    fed, last = config.choices.inputs or tuple(config.spec.inputs), config.spec.last_stage_inputs
    stages = tuple(None if name not in fed else layout.last_stage if name in last else 0 for name in config.spec.inputs)
    rows = config.micro_batch * config.accumulation_steps
    return Feeder(build_batches(config), layout, rows, stages, config.choices.keep_batches)
