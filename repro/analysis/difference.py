"""What can be held against a run: two witnesses of a fact that contradict each other, or a fact without a witness."""

from __future__ import annotations

import json
from dataclasses import dataclass

SHOWN = 120
"""How much of a value is shown, in characters."""


@dataclass(frozen=True)
class Difference:
    """Two witnesses that contradict each other: the place in the run, the subject, and the value of each, by name."""

    where: str
    what: str
    says: tuple[tuple[str, object], tuple[str, object]]

    def __str__(self) -> str:
        (one, first), (other, second) = self.says
        return f"{self.where}: {self.what}: {_short(first)} in {one}, {_short(second)} in {other}"


@dataclass(frozen=True)
class Unrecorded:
    """A fact of an attempt that it left no trace of, as runs of early releases; nothing proves or refutes it."""

    fact: str


def _short(value: object) -> str:
    text = json.dumps(value) if isinstance(value, list | dict) else str(value)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."
