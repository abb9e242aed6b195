"""Documents of tokens for tests."""

import numpy as np


def documents(*lengths: int) -> list[np.ndarray]:
    """A document per length, of tokens below 100."""
    generator = np.random.default_rng(1)
    return [generator.integers(0, 100, length).astype(np.uint16) for length in lengths]
