"""Random windows of a text that is tokenised at the start, as in GPT-2's trainer of December 2020."""

from __future__ import annotations

import numpy as np

from repro.trainers.config import Shape
from repro.trainers.data.bpe import BytePairs, text_files


class TextWindows:
    """Ids and labels from windows of seq_length + 1 tokens; each window depends only on seed, batch and row.

    The folder has the text, `*.txt` sorted by name, and the two files of GPT-2's byte pair encoding. The constructor
    encodes the whole text, as the published program did with `--dataset`.

    Raises
    ------
    ValueError
        If the text is shorter than a window, or has a token outside the vocabulary.
    """

    period = 0

    def __init__(self, seed: int, shape: Shape, folder: str) -> None:
        self.seed = seed
        self.shape = shape
        texts = [path.read_text(encoding="utf-8", errors="replace") for path in text_files(folder)]
        self.tokens = BytePairs(folder).encode("\n".join(texts))
        if len(self.tokens) <= shape.seq_length:
            raise ValueError(f"{folder}: {len(self.tokens)} tokens are fewer than one sample needs")
        if (largest := int(self.tokens.max())) >= shape.vocab_size:
            raise ValueError(f"{folder}: token {largest} is outside the vocabulary of {shape.vocab_size}")

    def rows(self, batch: int, first: int, last: int) -> tuple:
        """Ids and labels, both (last - first, seq_length), of the rows [first, last) of a batch."""
        length = self.shape.seq_length + 1
        generators = (np.random.default_rng([self.seed, batch, row]) for row in range(first, last))
        starts = [int(generator.integers(0, len(self.tokens) - length + 1)) for generator in generators]
        windows = np.stack([self.tokens[start : start + length] for start in starts])
        return windows[:, :-1], windows[:, 1:]
