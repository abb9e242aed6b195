"""GPT-2's byte pair encoding, and text folders with its two files.

`encoder.json` maps texts to tokens, and `vocab.bpe` lists the merges. Source: openai/gpt-2, src/encoder.py. Python's
`re` has no Unicode categories, so the pattern expresses letters and digits with other classes.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from pathlib import Path

import numpy as np

from repro.models.programs import TEXT_FILES

ENCODER, MERGES = "encoder.json", "vocab.bpe"
PIECE = re.compile(r"'(?:s|t|re|ve|m|ll|d)| ?[^\W\d_]+| ?\d+| ?(?:[^\s\w]|_)+|\s+(?!\S)|\s+")
WORDS_KEPT = 1 << 17
"""Pieces of text whose tokens are kept, as many as GPT-2 saw often."""


def byte_characters() -> dict[int, str]:
    """The character for each byte: the byte itself if printable, otherwise a code point from 256 on."""
    printed = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printed]
    return {**{byte: chr(byte) for byte in printed}, **{byte: chr(256 + place) for place, byte in enumerate(others)}}


class BytePairs:
    """Encodes text with a folder's two files; ValueError if they are invalid."""

    def __init__(self, folder: str) -> None:
        try:
            self.numbers = json.loads((Path(folder) / ENCODER).read_text(encoding="utf-8"))
            lines = (Path(folder) / MERGES).read_text(encoding="utf-8").splitlines()
        except ValueError as error:
            raise ValueError(
                f"{folder}: {ENCODER} and {MERGES} are not those of a byte pair encoding: {error}"
            ) from error
        pairs = [tuple(line.split(" ")) for line in lines if line and not line.startswith("#version")]
        self.ranks = {pair: rank for rank, pair in enumerate(pairs)}
        self.characters = byte_characters()
        self.tokens = lru_cache(WORDS_KEPT)(self.tokens_of_piece)

    def encode(self, text: str) -> np.ndarray:
        """Tokens of a text, in one dimension."""
        return np.array([token for piece in PIECE.findall(text) for token in self.tokens(piece)], np.int64)

    def tokens_of_piece(self, piece: str) -> tuple[int, ...]:
        parts = [self.characters[byte] for byte in piece.encode("utf-8")]
        while len(parts) > 1:
            rank, place = min(
                (self.ranks.get(pair, len(self.ranks)), at) for at, pair in enumerate(zip(parts, parts[1:]))
            )
            if rank == len(self.ranks):
                break
            first, second = parts[place], parts[place + 1]
            merged, at = [], 0
            while at < len(parts):
                if parts[at : at + 2] == [first, second]:
                    merged.append(first + second)
                    at += 2
                else:
                    merged.append(parts[at])
                    at += 1
            parts = merged
        return tuple(self.numbers[part] for part in parts)


def text_files(folder: str) -> list[Path]:
    """The text files of a folder and its subfolders, sorted by path."""
    return sorted(path for name in TEXT_FILES for path in Path(folder).rglob(name))


def files_of_text(folder: str) -> list[Path]:
    """The files that are read of a text folder, those of the encoding first."""
    return [Path(folder) / ENCODER, Path(folder) / MERGES, *text_files(folder)]


def missing_of_text(folder: str) -> str | None:
    """The name of a file that is missing from a text folder; None if it is complete."""
    absent = [name for name in (ENCODER, MERGES) if not (Path(folder) / name).is_file()]
    return absent[0] if absent else None if text_files(folder) else TEXT_FILES[0]
