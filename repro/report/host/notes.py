"""The hand-written notes on a host: a text in each language, and the experiments that were made by hand."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from repro.runs.files import RecordError, read_toml
from repro.utils.i18n import LANGUAGES

NOTES = "notes.toml"
EXPERIMENTS = "experiment"
NUMBER = (int, float)


@dataclass(frozen=True)
class Experiment:
    """A change of a case on `gpus` GPUs, described in both languages, and the throughput without and with it.

    Throughput is in samples/s; `stays` says whether the trainers have the change now.
    """

    case: str
    gpus: int
    en: str
    zh: str
    without_it: float
    with_it: float
    stays: bool

    def described(self, language: str) -> str:
        """The change in a language."""
        return {"en": self.en, "zh": self.zh}[language]


@dataclass(frozen=True)
class Notes:
    """`texts` by language, paragraphs separated by an empty line; empty where there are none."""

    texts: dict[str, str]
    experiments: tuple[Experiment, ...] = ()


KINDS: dict[str, type | tuple[type, ...]] = {
    "case": str,
    "gpus": int,
    "en": str,
    "zh": str,
    "without_it": NUMBER,
    "with_it": NUMBER,
    "stays": bool,
}


def read(folder: Path) -> Notes:
    """Read the notes in a host's folder; RecordError names what is wrong with them."""
    file = folder / NOTES
    texts = read_toml(file)
    experiments = texts.pop(EXPERIMENTS, [])
    if unknown := [name for name, text in texts.items() if name not in LANGUAGES or not isinstance(text, str)]:
        raise RecordError(
            f"{file}: {', '.join(unknown)}: it has a text for each of {', '.join(LANGUAGES)}, "
            f"tables [[{EXPERIMENTS}]] and no more"
        )
    if not isinstance(experiments, list):
        raise RecordError(f"{file}: {EXPERIMENTS}: write each as a table of its own, [[{EXPERIMENTS}]]")
    return Notes(texts, tuple(_experiment(file, number, each) for number, each in enumerate(experiments, 1)))


def _experiment(file: Path, number: int, given: object) -> Experiment:
    given = given if isinstance(given, dict) else {}
    wrong = sorted(given.keys() ^ KINDS.keys()) or [
        name
        for name, value in given.items()
        if not isinstance(value, KINDS[name]) or (isinstance(value, bool) and KINDS[name] is not bool)
    ]
    if wrong:
        raise RecordError(
            f"{file}: {EXPERIMENTS} {number}: {', '.join(wrong)}: each has case (text), gpus (number), en and "
            "zh (text), without_it and with_it (samples/s), stays (true or false)"
        )
    return Experiment(**given)
