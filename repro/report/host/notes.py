"""The hand-written notes on a host: a text in each language, and the experiments that were made by hand.

A text says how runs were made and why something is as it is. What it says of figures it takes from the rows of the
page, by placeholders, so that it cannot go on saying what newer runs no longer give.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from repro.runs.files import RecordError, read_toml
from repro.utils.i18n import LANGUAGES

NOTES = "notes.toml"
EXPERIMENTS = "experiment"
SHARED = "shared"
AROUND = 25
NUMBER = (int, float)
PLACEHOLDER = re.compile(
    r"\{(?:(?P<run>[\w-]+)|(?P<of>ratio|efficiency)\s+(?P<unit>[\w.-]+)(?:\s+(?P<base>[\w-]+))?)\}"
)
"""A placeholder for a link or a figure: a run by its id or the beginning of it, the ratio of a configuration to a
baseline, or the efficiency of a configuration."""
NAME = re.compile(r"`[^`]*`|[A-Za-z_][\w.-]*\d[\w.-]*")
"""Names that have digits: anything in backticks, and words that begin with a letter."""
CLAIM = re.compile(
    r"[\d%]"
    r"|\b(?:all(?!-)|always|both|ever|every|everything|everywhere|most|mostly|never|no case|none|only|nothing)\b"
    r"|\b(?:more|less|fewer|than|better|worse|faster|slower|larger|smaller|higher|lower|longer|shorter|least|best|worst"
    r"|ahead|behind|beats?|wins?|loses?|meets?|misses|missed|reach(?:es)?|agrees?)\b"
    r"|[凡都]|(?<!平)均|更(?![新改换])|全部|所有|一律|始终|从不|从未|大多|最[高低快慢多少大小好差]|[快慢优劣高低多少大小]于|领先|落后|超过|达到|不足|一致",
    re.IGNORECASE,
)
"""Words that make a claim only the runs can support: figures, counts and comparisons."""


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
    """`texts` by language, paragraphs separated by an empty line; empty where there are none.

    `shared` has how the ids of runs begin that shared the host's processors with another program than runs like them.
    """

    texts: dict[str, str]
    experiments: tuple[Experiment, ...] = ()
    shared: tuple[str, ...] = ()


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
    experiments, shared = texts.pop(EXPERIMENTS, []), texts.pop(SHARED, [])
    if not isinstance(shared, list) or not all(isinstance(begin, str) and begin for begin in shared):
        raise RecordError(f'{file}: {SHARED}: name the runs by how their ids begin, such as {SHARED} = ["20261127-03"]')
    if unknown := [name for name, text in texts.items() if name not in LANGUAGES or not isinstance(text, str)]:
        raise RecordError(
            f"{file}: {', '.join(unknown)}: it has a text for each of {', '.join(LANGUAGES)}, "
            f"{SHARED}, tables [[{EXPERIMENTS}]] and no more"
        )
    if claims := [(name, claim) for name, text in texts.items() if (claim := _claim(text))]:
        raise RecordError(
            "\n".join(
                f"{file}: the text in {name} says {claim!r}: figures, how many of the cases, and comparisons are what the "
                "runs say. Use a placeholder, put a name in backticks, or leave the sentence out"
                for name, claim in claims
            )
        )
    if not isinstance(experiments, list):
        raise RecordError(f"{file}: {EXPERIMENTS}: write each as a table of its own, [[{EXPERIMENTS}]]")
    return Notes(
        texts,
        tuple(_experiment(file, number, experiment) for number, experiment in enumerate(experiments, 1)),
        tuple(shared),
    )


def named(notes: Notes, run_id: str) -> bool:
    """Whether a text has a placeholder for the run of this id."""
    beginnings = (match["run"] for text in notes.texts.values() for match in PLACEHOLDER.finditer(text))
    return any(run_id.startswith(begin) for begin in beginnings if begin)


def _claim(text: str) -> str:
    """The first claim of a text with the words around it; empty if it makes none."""
    bare = NAME.sub("", PLACEHOLDER.sub("", text))
    match = CLAIM.search(bare)
    return " ".join(bare[max(0, match.start() - AROUND) : match.end() + AROUND].split()) if match else ""


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
