"""Batches as arrays: synthetic ones, and those of Megatron token files; the same ones in every layout."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np

from repro.models.spec import ModelSpec
from repro.trainers.config import Config, Shape

TOKEN_TYPES = {1: np.uint8, 2: np.int8, 3: np.int16, 4: np.int32, 5: np.int64, 8: np.uint16}
"""Element types by their code in a Megatron index file."""
INDEX_MAGIC = b"MMIDIDX\x00\x00"


class Synthetic:
    """Random samples, each depending on the seed, its batch and its row alone; after `period` batches they repeat.

    The few batches stay on the device, so that no input pipeline is measured, as in the published synthetic runs.
    """

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


class MegatronTokens:
    """Ids and labels from a Megatron token file (`prefix`.idx, `prefix`.bin), memory-mapped.

    The documents are one text in file order, cut into samples of seq_length tokens, which are shuffled again in each
    epoch by the seed.

    Raises
    ------
    ValueError
        If the index is not one, the text is shorter than a sample, or a token is outside the vocabulary.
    """

    period = 0

    def __init__(self, seed: int, shape: Shape, prefix: str, global_batch: int) -> None:
        self.seed = seed
        self.shape = shape
        self.prefix = prefix
        self.global_batch = global_batch
        self.tokens = np.memmap(f"{prefix}.bin", dtype=token_type(f"{prefix}.idx"), mode="r")
        self.samples = (len(self.tokens) - 1) // shape.seq_length
        if self.samples < 1:
            raise ValueError(f"{prefix}.bin: {len(self.tokens)} tokens are fewer than one sample needs")

    def rows(self, batch: int, first: int, last: int) -> tuple:
        start = batch * self.global_batch
        texts = np.stack([self.text(start + row) for row in range(first, last)])
        if texts.max() >= self.shape.vocab_size:
            raise ValueError(f"{self.prefix}.bin: token {texts.max()} is outside the vocabulary")
        return texts[:, :-1], texts[:, 1:]

    def text(self, number: int) -> np.ndarray:
        """Tokens (seq_length + 1,) of a sample, counted over all epochs."""
        epoch, place = divmod(number, self.samples)
        start = self.order(epoch)[place] * self.shape.seq_length
        return self.tokens[start : start + self.shape.seq_length + 1].astype(np.int64)

    def order(self, epoch: int) -> np.ndarray:
        if getattr(self, "epoch", None) != epoch:
            self.epoch = epoch
            self.permutation = np.random.default_rng([self.seed, epoch]).permutation(self.samples)
        return self.permutation


class Placed:
    """A rank's rows [first, last) of batches, placed where its framework wants them; batches that repeat are kept there."""

    def __init__(self, batches: Synthetic | MegatronTokens, first: int, last: int) -> None:
        self.batches = batches
        self.first, self.last = first, last
        self.kept: dict[int, Any] = {}

    def batch(self, index: int) -> Any:
        """What `place` makes of a batch, counted from 0."""
        if self.batches.period:
            index %= self.batches.period
            if index in self.kept:
                return self.kept[index]
        placed = self.place(self.batches.rows(index, self.first, self.last))
        if self.batches.period:
            self.kept[index] = placed
        return placed

    def place(self, arrays: tuple) -> Any:
        raise NotImplementedError


def token_type(path: str) -> type:
    """Element type that a Megatron index file declares."""
    header = Path(path).read_bytes()[:18]
    if header[:9] != INDEX_MAGIC or len(header) < 18:
        raise ValueError(f"{path}: is not a Megatron index file")
    version, code = struct.unpack("<QB", header[9:18])
    if version != 1 or code not in TOKEN_TYPES:
        raise ValueError(f"{path}: version {version} with element type {code} cannot be read")
    return TOKEN_TYPES[code]


def build_batches(config: Config) -> Synthetic | MegatronTokens:
    """Batches for a configuration whose data are not records of part files."""
    if config.data.kind == "megatron":
        return MegatronTokens(config.seed, config.shape, config.data.prefix, config.global_batch)
    return Synthetic(config.seed, config.shape, config.spec)
