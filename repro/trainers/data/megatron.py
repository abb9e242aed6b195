"""Writes, reads and checks Megatron's indexed token files, `prefix`.idx and `prefix`.bin.

The index consists of a magic word, a version, the element type's code, the count of documents and of their boundaries,
the documents' lengths, their byte offsets in the other file, and their numbers (Megatron-LM,
megatron/data/indexed_dataset.py, class MMapIndexedDataset).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from repro.models.token_files import MAGIC, read_index

TOKEN_TYPES = {1: np.uint8, 2: np.int8, 3: np.int16, 4: np.int32, 5: np.int64, 8: np.uint16}
"""Element types by their code in an index."""
UINT16 = 8
CHECKED = 1 << 24
"""Tokens that are compared with the vocabulary: the first ones, a few hundredths of a second's work."""


def write_tokens(prefix: str, documents: Sequence[np.ndarray]) -> int:
    """Write documents of tokens below 65536; returns the number of tokens."""
    sizes = np.array([len(document) for document in documents], np.int32)
    pointers = np.concatenate([[0], np.cumsum(sizes[:-1], dtype=np.int64)]) * np.dtype(np.uint16).itemsize
    Path(prefix).parent.mkdir(parents=True, exist_ok=True)
    np.concatenate(documents).astype(np.uint16).tofile(f"{prefix}.bin")
    with open(f"{prefix}.idx", "wb") as file:
        file.write(MAGIC + struct.pack("<QBQQ", 1, UINT16, len(sizes), len(sizes) + 1))
        file.write(sizes.tobytes() + pointers.astype(np.int64).tobytes())
        file.write(np.arange(len(sizes) + 1, dtype=np.int64).tobytes())
    return int(sizes.sum())


def tokens_of(prefix: str) -> np.ndarray:
    """All tokens in file order, memory-mapped; ValueError if the index is invalid."""
    return np.memmap(f"{prefix}.bin", dtype=TOKEN_TYPES[read_index(prefix).code], mode="r")


def check_tokens(prefix: str, vocab_size: int) -> None:
    """Raise ValueError if the files have no tokens, or one at the start is outside the vocabulary."""
    if not len(tokens := tokens_of(prefix)):
        raise ValueError(f"{prefix}.bin: has no tokens")
    if (largest := int(tokens[:CHECKED].max())) >= vocab_size:
        raise ValueError(f"{prefix}.bin: token {largest} is outside the vocabulary of {vocab_size}")
