"""Random windows of a text that is tokenised at the start, as in GPT-2's trainer of December 2020."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from repro.trainers.config import Shape
from repro.trainers.data.bpe import BytePairs, text_files

SEED = 1
"""Of the windows, whatever the run's seed (train.py#L62 of the published program)."""
CHUNK_CHARACTERS = 50_000
"""A chunk ends with the file that brings it to this length (config.py#L42)."""
SEPARATOR = "<|endoftext|>"
"""Between the files of a chunk; encoded as ordinary text, not as the token of this name."""


class TextWindows:
    """Ids and labels from windows of a text, drawn one after the other for the whole batch; none crosses two chunks.

    The folder has the text and the two files of GPT-2's byte pair encoding. The constructor encodes the whole text, as
    the published program did with `--dataset`. Files are read in the order of their names; the published program took
    them in the order of the file system.

    Source: OneFlow-Benchmark@bf832be:LanguageModeling/gpt-2/third_party/load_dataset.py#L8-L90.

    Raises
    ------
    ValueError
        If the chunks are shorter than a window on average, or a token is outside the vocabulary.
    """

    period = 0

    def __init__(self, shape: Shape, folder: str, global_batch: int) -> None:
        self.length = shape.seq_length
        self.global_batch = global_batch
        pairs = BytePairs(folder)
        chunks = [pairs.encode(text) for text in chunks_of(text_files(folder))]
        self.tokens = np.concatenate(chunks)
        self.ends = np.cumsum([len(chunk) for chunk in chunks])
        if self.length >= len(self.tokens) // len(chunks):
            raise ValueError(
                f"{folder}: {len(self.tokens)} tokens in {len(chunks)} chunks are too few for samples of {self.length}"
            )
        if (largest := int(self.tokens.max())) >= shape.vocab_size:
            raise ValueError(f"{folder}: token {largest} is outside the vocabulary of {shape.vocab_size}")
        self.restart()

    def restart(self) -> None:
        """Draw from the first batch on."""
        self.generator = np.random.RandomState(SEED)
        self.drawn = 0
        self.starts: list[int] = []

    def rows(self, batch: int, first: int, last: int) -> tuple:
        """Ids and labels, both (last - first, seq_length), of the rows [first, last) of a batch."""
        if batch < self.drawn - 1:
            self.restart()
        while self.drawn <= batch:
            self.starts = [self.start() for _ in range(self.global_batch)]
            self.drawn += 1
        windows = np.stack([self.tokens[start : start + self.length + 1] for start in self.starts[first:last]])
        return windows[:, :-1], windows[:, 1:]

    def start(self) -> int:
        """A random start from which a window and the token behind it lie in one chunk."""
        while True:
            start = int(self.generator.randint(0, len(self.tokens) - self.length - 1))
            if self.ends[np.searchsorted(self.ends, start, side="right")] > start + self.length:
                return start


def chunks_of(paths: list[Path]) -> Iterator[str]:
    """The text in chunks, each of whole files."""
    text = ""
    for path in paths:
        text += path.read_text(encoding="utf-8", errors="replace")
        if len(text) >= CHUNK_CHARACTERS:
            yield text
            text = ""
        else:
            text += SEPARATOR
    if text:
        yield text
