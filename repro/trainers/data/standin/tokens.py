"""A stand-in for the sample of OpenWebText that GPT reads: documents of tokens, drawn after Zipf from the vocabulary.

The lengths of documents are log-normal with a mean of about 1100 tokens, that of the 8,013,769 documents and 9.04e9
tokens of OpenWebText in GPT-2's encoding (karpathy/nanoGPT, data/openwebtext).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from repro.trainers.data.megatron import write_tokens
from repro.trainers.data.standin.zipf import zipf_shares

if TYPE_CHECKING:
    from repro.trainers.data.standin.sets import StandIn

TOKENS = {"published": 8_000_000, "small": 60_000}
MEAN_LENGTH = {"published": 1100, "small": 60}
SPREAD = 0.9
"""Standard deviation of the logarithm of the lengths."""


def write(folder: Path, standin: StandIn) -> dict:
    """Write the two token files; gives the facts."""
    generator = np.random.default_rng(standin.seed)
    mean, count = MEAN_LENGTH[standin.scale], TOKENS[standin.scale] // MEAN_LENGTH[standin.scale]
    lengths = np.maximum(1, generator.lognormal(np.log(mean) - SPREAD**2 / 2, SPREAD, count)).astype(int)
    ranks = np.searchsorted(zipf_shares(standin.vocab_size), generator.random(lengths.sum())).astype(np.uint16)
    documents = np.split(ranks, np.cumsum(lengths)[:-1])
    tokens = write_tokens(str(folder / "tokens"), documents)
    return {"records": len(documents), "tokens": tokens, "mean_length": tokens / len(documents)}
