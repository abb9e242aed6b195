"""Word frequencies after Zipf's law."""

from __future__ import annotations

import numpy as np


def zipf_shares(words: int) -> np.ndarray:
    """Cumulative shares (words,) by rank; a word's share is proportional to 1 / rank (Zipf's law, exponent 1)."""
    weights = 1.0 / np.arange(1, words + 1)
    return np.cumsum(weights) / weights.sum()
