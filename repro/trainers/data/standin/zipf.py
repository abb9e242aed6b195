"""How often words occur: after Zipf's law."""

from __future__ import annotations

import numpy as np


def zipf_shares(words: int) -> np.ndarray:
    """Cumulated shares of words by their rank, each share the inverse of its rank (Zipf, with exponent 1)."""
    weights = 1.0 / np.arange(1, words + 1)
    return np.cumsum(weights) / weights.sum()
