"""Batches that a process feeds as arrays, identical in every layout: synthetic, tokens, and windows of a text."""

from __future__ import annotations

from typing import Any, Union

import numpy as np

from repro.models.spec import ModelSpec
from repro.trainers.config import Config, Shape
from repro.trainers.data.megatron import check_tokens, tokens_of
from repro.trainers.data.text import TextWindows


class Synthetic:
    """Random samples that depend only on seed, batch and row; they repeat after `period` batches."""

    def __init__(self, seed: int, shape: Shape, spec: ModelSpec) -> None:
        self.seed = seed
        self.shape = shape
        self.spec = spec
        self.period = spec.synthetic_batches

    def rows(self, batch: int, first: int, last: int) -> tuple:
        """Rows [first, last) of a batch: one array per input of the model."""
        generators = (np.random.default_rng([self.seed, batch, row]) for row in range(first, last))
        columns = zip(*(self.spec.sample(generator, self.shape) for generator in generators))
        kinds = self.spec.inputs.values()
        return tuple(np.stack([np.asarray(value, kind) for value in column]) for column, kind in zip(columns, kinds))


class Tokens:
    """Ids and labels from a Megatron token file (`prefix`.idx, `prefix`.bin), memory-mapped.

    The documents are concatenated in file order and cut into samples of seq_length tokens, which are reshuffled in each
    epoch with the seed: an epoch has each sample once, which OneFlow's reader of these files does not ensure.

    Raises
    ------
    ValueError
        If the index is invalid, the text is shorter than a sample, or a token is outside the vocabulary.
    """

    period = 0

    def __init__(self, seed: int, shape: Shape, prefix: str, global_batch: int) -> None:
        check_tokens(prefix, shape.vocab_size)
        self.seed = seed
        self.length = shape.seq_length
        self.global_batch = global_batch
        self.tokens = tokens_of(prefix)
        if len(self.tokens) <= shape.seq_length:
            raise ValueError(f"{prefix}.bin: {len(self.tokens)} tokens are fewer than one sample needs")
        self.samples = (len(self.tokens) - 1) // shape.seq_length

    def rows(self, batch: int, first: int, last: int) -> tuple:
        start = batch * self.global_batch
        texts = np.stack([self.text(start + row) for row in range(first, last)])
        return texts[:, :-1], texts[:, 1:]

    def text(self, number: int) -> np.ndarray:
        """Tokens (seq_length + 1,) of a sample; `number` counts over all epochs."""
        epoch, place = divmod(number, self.samples)
        start = self.order(epoch)[place] * self.length
        return self.tokens[start : start + self.length + 1].astype(np.int64)

    def order(self, epoch: int) -> np.ndarray:
        if getattr(self, "epoch", None) != epoch:
            self.epoch = epoch
            self.permutation = np.random.default_rng([self.seed, epoch]).permutation(self.samples)
        return self.permutation


Batches = Union[Synthetic, Tokens, TextWindows]


class Placed:
    """A rank's rows [first, last) of each batch, placed on its framework's device.

    Repeating batches stay on the device, so no input pipeline is measured. Without `keep`, only their arrays are cached
    in host memory, and each iteration places them again.
    """

    def __init__(self, batches: Batches, first: int, last: int, keep: bool = True) -> None:
        self.batches = batches
        self.first, self.last = first, last
        self.keep = keep
        self.cached: dict[int, Any] = {}

    def batch(self, index: int) -> Any:
        """The result of `place` for a batch, counted from 0."""
        if not self.batches.period:
            return self.place(self.batches.rows(index, self.first, self.last))
        index %= self.batches.period
        if index not in self.cached:
            arrays = self.batches.rows(index, self.first, self.last)
            self.cached[index] = self.place(arrays) if self.keep else arrays
        return self.cached[index] if self.keep else self.place(self.cached[index])

    def place(self, arrays: tuple) -> Any:
        raise NotImplementedError


def build_batches(config: Config) -> Batches:
    """Batches for a configuration whose data is fed, not read within the graph."""
    if config.data.kind == "tokens":
        return Tokens(config.seed, config.shape, config.data.path, config.global_batch)
    if config.data.kind == "text":
        return TextWindows(config.shape, config.data.path, config.global_batch)
    return Synthetic(config.seed, config.shape, config.spec)
