"""Masked text in the format of Google's BERT: special tokens, masking, and the record of a sample."""

from __future__ import annotations

import numpy as np

from repro.trainers.data.ofrecord import encode

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
PAD, UNKNOWN, CLASSIFY, SEPARATE, MASK = range(len(SPECIAL))
MASKED_SHARE = 0.15


def mask(tokens: np.ndarray, size: int, most: int, generator: np.random.Generator) -> tuple:
    """Mask up to `most` words in place: 80% [MASK], 10% random, 10% unchanged; returns positions and labels."""
    words = np.flatnonzero((tokens != CLASSIFY) & (tokens != SEPARATE))
    count = min(most, max(1, round(MASKED_SHARE * len(tokens))))
    count = min(count, len(words))
    positions = np.sort(generator.choice(words, count, replace=False))
    labels = tokens[positions]
    fate = generator.random(count)
    other = generator.integers(len(SPECIAL), size, count)
    tokens[positions] = np.where(fate < 0.8, MASK, np.where(fate < 0.9, other, labels))
    return positions, labels


def feature_record(
    tokens: np.ndarray,
    second: int,
    unrelated: int,
    length: int,
    predictions: int,
    size: int,
    generator: np.random.Generator,
) -> bytes:
    """Mask a sample's tokens in place and encode its record.

    Parameters
    ----------
    second : index at which the second passage begins.
    unrelated : 1 if the second passage does not follow the first, else 0.
    length, predictions : padded lengths of the token features and of the masked-word features.
    size : vocabulary size.
    """
    positions, labels = mask(tokens, size, predictions, generator)
    return encode(
        {
            "input_ids": padded(tokens, length),
            "input_mask": padded(np.ones(len(tokens), int), length),
            "segment_ids": padded((np.arange(len(tokens)) >= second).astype(int), length),
            "masked_lm_positions": padded(positions, predictions),
            "masked_lm_ids": padded(labels, predictions),
            "masked_lm_weights": padded(np.ones(len(positions)), predictions),
            "next_sentence_labels": [unrelated],
        }
    )


def padded(values: np.ndarray, length: int) -> np.ndarray:
    return np.pad(values, (0, length - len(values)))
