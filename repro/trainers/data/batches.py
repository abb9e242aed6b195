"""Batches as arrays that a process feeds: synthetic ones, and windows of a text; the same ones in every layout."""

from __future__ import annotations

from typing import Any

import numpy as np

from repro.models.spec import ModelSpec
from repro.trainers.config import Config, Shape
from repro.trainers.data.text import TextWindows


class Synthetic:
    """Random samples, each depending on the seed, its batch and its row alone; after `period` batches they repeat."""

    def __init__(self, seed: int, shape: Shape, spec: ModelSpec) -> None:
        self.seed = seed
        self.shape = shape
        self.spec = spec
        self.period = spec.synthetic_batches

    def rows(self, batch: int, first: int, last: int) -> tuple:
        """Arrays that hold the rows [first, last) of a batch, one per input of the model."""
        generators = (np.random.default_rng([self.seed, batch, row]) for row in range(first, last))
        columns = zip(*(self.spec.sample(generator, self.shape) for generator in generators))
        kinds = self.spec.inputs.values()
        return tuple(np.stack([np.asarray(value, kind) for value in column]) for column, kind in zip(columns, kinds))


class Placed:
    """A rank's rows [first, last) of batches, placed where its framework wants them.

    Batches that repeat are kept there, so that no input pipeline is measured; without `keep` only their arrays are
    kept, in the host's memory, and each iteration places them anew.
    """

    def __init__(self, batches: Synthetic | TextWindows, first: int, last: int, keep: bool = True) -> None:
        self.batches = batches
        self.first, self.last = first, last
        self.keep = keep
        self.kept: dict[int, Any] = {}

    def batch(self, index: int) -> Any:
        """What `place` makes of a batch, counted from 0."""
        if not self.batches.period:
            return self.place(self.batches.rows(index, self.first, self.last))
        index %= self.batches.period
        if index not in self.kept:
            arrays = self.batches.rows(index, self.first, self.last)
            self.kept[index] = self.place(arrays) if self.keep else arrays
        return self.kept[index] if self.keep else self.place(self.kept[index])

    def place(self, arrays: tuple) -> Any:
        raise NotImplementedError


def build_batches(config: Config) -> Synthetic | TextWindows:
    """Batches for a configuration whose data no reader reads."""
    if config.data.kind == "text":
        return TextWindows(config.seed, config.shape, config.data.path)
    return Synthetic(config.seed, config.shape, config.spec)
