"""Initial values of parameters; they depend only on the seed and the parameter's name."""

from __future__ import annotations

import zlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np

BLOCK = 2**20
"""Values that one generator draws; blocks are drawn side by side."""


def normal_values(seed: int, name: str, shape: tuple, std: float, rows: int = 0) -> np.ndarray:
    """Draw normally distributed values in fp32.

    Parameters
    ----------
    rows : number of leading rows to draw; the rows after them are padding and set to 0. 0 draws all rows.
    """
    values = np.zeros(shape, np.float32)
    drawn = values[: rows or shape[0]].reshape(-1)

    def draw(first: int) -> None:
        block = drawn[first : first + BLOCK]
        key = [seed, zlib.crc32(name.encode()), first // BLOCK]
        np.random.Generator(np.random.PCG64(key)).standard_normal(dtype=np.float32, out=block)
        block *= np.float32(std)

    with ThreadPoolExecutor() as pool:
        list(pool.map(draw, range(0, drawn.size, BLOCK)))
    return values


def thirds(heads: int, size: int) -> np.ndarray:
    """Column indices (3, size) of queries, keys and values in a matrix that interleaves them by head.

    The GPT of 2021 interleaves them. With these indices, programs that do not can start from the same function.
    """
    return np.arange(3 * size).reshape(heads, 3, size // heads).transpose(1, 0, 2).reshape(3, size)
