"""A stand-in for GPT-2's Wikipedia text, with an encoding of GPT-2's size.

Words are random letters, with frequencies after Zipf's law. The encoding has as many tokens as the vocabulary, at most
GPT-2's 50257: the bytes, the merges that build words letter by letter, and the end-of-text token.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from repro.trainers.data.bpe import ENCODER, MERGES, byte_characters
from repro.trainers.data.standin.zipf import zipf_shares

if TYPE_CHECKING:
    from repro.trainers.data.standin.sets import StandIn

WORDS = {"published": 400_000, "small": 4_000}
"""Words of the text."""
LEXICON = 20_000
LARGEST_VOCABULARY = 50257
LETTERS = "etaoinshrdlucmfwygpbvkxqjz"
MEAN_LETTERS = 5


def write(folder: Path, standin: StandIn) -> dict:
    """Write the text and the two files of the encoding; returns the facts."""
    generator = np.random.default_rng(standin.seed)
    lexicon = words(generator)
    merges = merges_of(lexicon, min(standin.vocab_size, LARGEST_VOCABULARY) - 257)
    tokens = [*byte_characters().values(), *(first + second for first, second in merges), "<|endoftext|>"]
    numbers = {token: number for number, token in enumerate(tokens)}
    (folder / ENCODER).write_text(json.dumps(numbers), encoding="utf-8")
    lines = ["#version: 0.2", *(" ".join(pair) for pair in merges)]
    (folder / MERGES).write_text("\n".join(lines) + "\n", encoding="utf-8")
    drawn = np.searchsorted(zipf_shares(len(lexicon)), generator.random(WORDS[standin.scale]))
    text = " ".join(lexicon[number] for number in drawn)
    (folder / "text.txt").write_text(text + "\n", encoding="utf-8")
    return {"records": len(drawn), "vocabulary": len(numbers)}


def words(generator: np.random.Generator) -> list[str]:
    """Distinct words, the most frequent first; short words tend to come early."""
    shares = zipf_shares(len(LETTERS))
    lexicon: dict[str, None] = {}
    while len(lexicon) < LEXICON:
        letters = np.searchsorted(shares, generator.random(1 + generator.poisson(MEAN_LETTERS - 1)))
        lexicon["".join(LETTERS[letter] for letter in letters)] = None
    return list(lexicon)


def merges_of(lexicon: list[str], count: int) -> list[tuple[str, str]]:
    """The first `count` merges, which build words and their leading space from left to right."""
    space = byte_characters()[ord(" ")]
    merges: dict[tuple[str, str], None] = {}
    for word in lexicon:
        for place, letter in enumerate(word):
            if len(merges) == count:
                return list(merges)
            merges[(space + word[:place], letter)] = None
    return list(merges)
