"""A stand-in for GPT's sample of OpenWebText: documents of tokens that follow Zipf's law over the vocabulary.

Document lengths are log-normal with a mean of about 1100 tokens. OpenWebText has this mean in GPT-2's encoding, with
8,013,769 documents and 9.04e9 tokens (karpathy/nanoGPT, data/openwebtext).
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
    """Write the two token files; returns the facts."""
    generator = np.random.default_rng(standin.seed)
    mean, count = MEAN_LENGTH[standin.scale], TOKENS[standin.scale] // MEAN_LENGTH[standin.scale]
    lengths = np.maximum(1, generator.lognormal(np.log(mean) - SPREAD**2 / 2, SPREAD, count)).astype(int)
    ranks = np.searchsorted(zipf_shares(standin.vocab_size), generator.random(lengths.sum())).astype(np.uint16)
    documents = np.split(ranks, np.cumsum(lengths)[:-1])
    tokens = write_tokens(str(folder / "tokens"), documents)
    return {"records": len(documents), "tokens": tokens, "mean_length": tokens / len(documents)}
