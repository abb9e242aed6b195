"""What a person wrote about a host: a text in each language, and the changes that were tried by hand."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from repro.runs.record import RecordError
from repro.utils.i18n import LANGUAGES

READING = "reading.toml"
TRIALS = "tried"
NUMBER = (int, float)


@dataclass(frozen=True)
class Experiment:
    """A change of a case on `gpus` GPUs, told in both languages, and the throughput without and with it (samples/s).

    `stays` says whether the trainers have it now.
    """

    case: str
    gpus: int
    en: str
    zh: str
    without_it: float
    with_it: float
    stays: bool

    def told(self, language: str) -> str:
        return getattr(self, language)


@dataclass(frozen=True)
class Reading:
    """`texts` by language, paragraphs apart by an empty line; empty where nobody wrote any."""

    texts: dict
    trials: tuple[Experiment, ...] = ()


KINDS = {"case": str, "gpus": int, "en": str, "zh": str, "without_it": NUMBER, "with_it": NUMBER, "stays": bool}


def toml(file: Path) -> dict:
    """What a file holds, nothing if there is none; RecordError if it is not TOML in UTF-8."""
    try:
        return tomllib.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RecordError(f"{file}: not TOML in UTF-8: {error}") from error


def read(folder: Path) -> Reading:
    """Read what was written about the host of a folder; RecordError names what is wrong with it."""
    file = folder / READING
    texts = toml(file)
    trials = texts.pop(TRIALS, [])
    if unknown := [name for name, text in texts.items() if name not in LANGUAGES or not isinstance(text, str)]:
        raise RecordError(
            f"{file}: {', '.join(unknown)}: it has a text for each of {', '.join(LANGUAGES)}, "
            f"tables [[{TRIALS}]] and no more"
        )
    if not isinstance(trials, list):
        raise RecordError(f"{file}: {TRIALS}: write each as a table of its own, [[{TRIALS}]]")
    return Reading(texts, tuple(_trial(file, number, each) for number, each in enumerate(trials, 1)))


def _trial(file: Path, number: int, given: object) -> Experiment:
    given = given if isinstance(given, dict) else {}
    wrong = sorted(given.keys() ^ KINDS.keys()) or [
        name
        for name, value in given.items()
        if not isinstance(value, KINDS[name]) or (isinstance(value, bool) and KINDS[name] is not bool)
    ]
    if wrong:
        raise RecordError(
            f"{file}: {TRIALS} {number}: {', '.join(wrong)}: each has case (text), gpus (number), en and "
            "zh (text), without_it and with_it (samples/s), stays (true or false)"
        )
    return Experiment(**given)
