"""A stand-in for BERT's Wikipedia features, with the lengths and masks of Google's BERT.

90% of the samples have the full length; the others have a uniformly distributed length, as in
create_pretraining_data.py of google-research/bert with short_seq_prob = 0.1. 15% of the words are masked, up to the
number of predictions: 80% by [MASK], 10% by another word. Words follow Zipf's law over the whole vocabulary.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from repro.trainers.data.masking import CLASSIFY, SEPARATE, SPECIAL, feature_record
from repro.trainers.data.ofrecord import part_name, write_part
from repro.trainers.data.standin.zipf import zipf_shares

if TYPE_CHECKING:
    from repro.trainers.data.standin.sets import StandIn

PER_PART = {"published": 512, "small": 16}
SHORT = 0.1
SHORTEST = 2


def write(folder: Path, standin: StandIn) -> dict:
    """Write the parts, numbered without zero padding as published; returns the facts."""
    lengths: list[int] = []
    shares = zipf_shares(standin.vocab_size - len(SPECIAL))
    for part in range(standin.parts):
        generator = np.random.default_rng([standin.seed, part])
        samples = [sample(standin, shares, generator) for _ in range(PER_PART[standin.scale])]
        write_part(folder / part_name(part, 0), (record for _, record in samples))
        lengths += [length for length, _ in samples]
    full = sum(length == standin.seq_length for length in lengths)
    return {"records": len(lengths), "mean_length": float(np.mean(lengths)), "full_share": full / len(lengths)}


def sample(standin: StandIn, shares: np.ndarray, generator: np.random.Generator) -> tuple[int, bytes]:
    """Number of tokens and encoded record of a sample with two passages."""
    most = standin.seq_length - 3
    words = int(generator.integers(SHORTEST, most + 1)) if generator.random() < SHORT else most
    first = int(generator.integers(1, words))
    ids = len(SPECIAL) + np.searchsorted(shares, generator.random(words))
    tokens = np.array([CLASSIFY, *ids[:first], SEPARATE, *ids[first:], SEPARATE])
    unrelated = int(generator.integers(0, 2))
    sizes = standin.seq_length, standin.max_predictions, standin.vocab_size
    return len(tokens), feature_record(tokens, first + 2, unrelated, *sizes, generator)
