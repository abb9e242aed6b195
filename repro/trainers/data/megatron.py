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

TOKEN_TYPES = {1: np.uint8, 2: np.int8, 3: np.int16, 4: np.int32, 5: np.int64, 8: np.uint16}
"""Element types by their code in an index."""
UINT16 = 8
MAGIC = b"MMIDIDX\x00\x00"
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
    with open(f"{prefix}.idx", "rb") as file:
        header = file.read(18)
    if header[:9] != MAGIC or len(header) < 18:
        raise ValueError(f"{prefix}.idx: is not a Megatron index file")
    version, code = struct.unpack("<QB", header[9:18])
    if version != 1 or code not in TOKEN_TYPES:
        raise ValueError(f"{prefix}.idx: version {version} with element type {code} cannot be read")
    return np.memmap(f"{prefix}.bin", dtype=TOKEN_TYPES[code], mode="r")


def check_tokens(prefix: str, seq_length: int, vocab_size: int) -> None:
    """Raise ValueError if the files hold less than a sample, or a token at the start is outside the vocabulary."""
    tokens = tokens_of(prefix)
    if len(tokens) <= seq_length:
        raise ValueError(f"{prefix}.bin: {len(tokens)} tokens are fewer than one sample needs")
    if (largest := int(tokens[:CHECKED].max())) >= vocab_size:
        raise ValueError(f"{prefix}.bin: token {largest} is outside the vocabulary of {vocab_size}")
