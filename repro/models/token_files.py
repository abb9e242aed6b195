"""How many samples a set of Megatron token files has, by the arithmetic of OneFlow's reader; standard library only.

The controller asks before it starts ranks, and the trainers before they build a graph: the reader itself aborts the
process, or never returns, where it finds too little.
"""

from __future__ import annotations

import math
import struct
import sys
from array import array
from dataclasses import dataclass
from pathlib import Path

MAGIC = b"MMIDIDX\x00\x00"
SPLIT = (949, 50, 1)
"""Shares of the documents for training, validation and test, as published; the first is read."""
ELEMENT_BYTES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 8: 2}
"""Bytes of a token by the element type's code in the index: uint8, int8, int16, int32, int64, uint16."""
_HEADER = struct.Struct("<9sQBQQ")


class TokenFileError(ValueError):
    """The token files cannot be read, or are too short; the message has the numbers."""


@dataclass(frozen=True)
class TokenIndex:
    """An index's element code and the documents' lengths in tokens."""

    path: str
    code: int
    lengths: array

    def training_lengths(self) -> array:
        """Lengths of the documents that are read for training, the first ones.

        The reader rounds their number to the nearest whole one in single precision (oneflow v0.8.0,
        user/data/gpt_dataset.cpp, GetSplitDocIndices).
        """
        return self.lengths[: round(_single(_single(SPLIT[0] / sum(SPLIT)) * len(self.lengths)))]

    def check(self, seq_length: int, samples: int) -> None:
        """Raise TokenFileError unless the reader can give this number of samples of `seq_length` + 1 tokens.

        It repeats the documents as often as that takes, so one sample in an epoch is enough; it aborts at an empty
        document, and if the last epoch would have to be read whole (GetNumCompleteEpochs).
        """
        lengths = self.training_lengths()
        tokens = sum(lengths)
        held = f"{self.path}: {tokens} tokens in {len(lengths)} of {len(self.lengths)} documents are read for training"
        if tokens <= seq_length:
            raise TokenFileError(f"{held}, fewer than one sample of {seq_length + 1}; take files with more text")
        if min(lengths) < 1:
            raise TokenFileError(f"{held}, and document {lengths.index(min(lengths))} is empty; leave empty ones out")
        epochs = math.ceil((samples * seq_length + 1) / tokens)
        if epochs > 1:
            in_epoch = (tokens - 1) // seq_length
            rest = samples - ((epochs - 1) * tokens - 1) // seq_length
            if rest >= in_epoch:
                raise TokenFileError(
                    f"{held}, {in_epoch} samples an epoch; {samples} samples would take epoch {epochs} whole, at which"
                    " OneFlow's reader aborts; take other files, or a few iterations more or fewer"
                )


def read_index(prefix: str) -> TokenIndex:
    """The index of `prefix`.idx; TokenFileError if it is none, or does not fit the size of `prefix`.bin."""
    path = f"{prefix}.idx"
    with open(path, "rb") as file:
        header = file.read(_HEADER.size)
        if len(header) < _HEADER.size or header[:9] != MAGIC:
            raise TokenFileError(f"{path}: is not a Megatron index file")
        _, version, code, count, boundaries = _HEADER.unpack(header)
        if version != 1 or code not in ELEMENT_BYTES:
            raise TokenFileError(f"{path}: version {version} with element type {code} cannot be read")
        expected = _HEADER.size + 12 * count + 8 * boundaries
        if expected != Path(path).stat().st_size:
            raise TokenFileError(f"{path}: is not as long as an index of {count} documents")
        lengths = array("i", file.read(4 * count))
    if sys.byteorder == "big":
        lengths.byteswap()
    tokens, size = sum(lengths), Path(f"{prefix}.bin").stat().st_size
    if size < tokens * ELEMENT_BYTES[code]:
        raise TokenFileError(f"{prefix}.bin: has {size} bytes, fewer than the {tokens} tokens of its index need")
    return TokenIndex(path, code, lengths)


def _single(value: float) -> float:
    """The value in single precision."""
    return struct.unpack("f", struct.pack("f", value))[0]
