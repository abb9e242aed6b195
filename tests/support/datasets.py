"""A part of the real text, and data sets without files for plans."""

import math
from pathlib import Path

from repro.planning.datasets import Dataset, text_dataset


def small_text(folder: Path) -> Dataset:
    """A part of the real text, enough for a short training."""
    return text_dataset(folder / "text", limit=60)


def without_files(kind: str = "text", tokens: int = 10**7) -> Dataset:
    """A data set that plans can be made for."""
    entropies = {"entropies_bits": [4.6, 3.5, 2.5, 1.7], "label_entropy_bits": math.log2(10)}
    return Dataset(Path("nowhere"), {"kind": kind, "tokens": tokens, **entropies})
