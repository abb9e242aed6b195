"""Initial values of parameters: they depend on the seed and the parameter's name alone."""
from __future__ import annotations

import zlib

import numpy as np


def normal_values(seed: int, name: str, shape: tuple, std: float, rows: int = 0) -> np.ndarray:
    """Draw normally distributed values in fp32.

    Parameters
    ----------
    rows : leading rows that are drawn; those after them are padding and 0. 0 draws all.
    """
    generator = np.random.Generator(np.random.PCG64([seed, zlib.crc32(name.encode())]))
    drawn = (rows or shape[0], *shape[1:])
    values = np.zeros(shape, np.float32)
    values[: drawn[0]] = generator.standard_normal(drawn, dtype=np.float32) * np.float32(std)
    return values
