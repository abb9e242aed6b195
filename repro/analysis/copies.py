"""Finds attempts that are copies of others, in one run or under the name of another, by the noise of their rows.

How long each row took relative to the one before is noise that no two attempts share, and that stays if all times are
shifted or scaled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path

from repro.analysis.difference import Difference
from repro.runs import digests
from repro.runs.files import PREFLIGHT
from repro.runs.metrics import METRICS, events
from repro.runs.record import ATTEMPT, ATTEMPTS, Run

DIGITS = 9
"""To how many digits the quotient of two rows' durations is compared; a row has about 8 of a nanosecond counter."""
FEWEST = 3
"""The fewest equal quotients that show a copy: of 680 kept attempts no two share more than one."""

Noise = frozenset[tuple[int, float]]
"""An attempt's quotients, each with the iteration of its row."""


def noise(rows: Iterable[dict]) -> Noise:
    """The quotients of rows, without those that are 1: rows of equal length are not measured."""
    quotients = (
        (row["iteration"], round(row["latency_ms"] / before["latency_ms"], DIGITS))
        for before, row in pairwise(rows)
        if before["latency_ms"] > 0
    )
    return frozenset(quotient for quotient in quotients if quotient[1] != 1)


def noise_of(every: Iterable[dict]) -> Noise:
    """The noise of the rows among rank 0's events."""
    return noise(event for event in every if event["event"] == "iteration")


def within(noises: Mapping[str, Noise]) -> Iterator[Difference]:
    """Attempts of a run that are copies of earlier ones, by the noise of each folder's rows."""
    for copy, original in _copies(noises.items()):
        says = (ATTEMPTS, "yes"), (METRICS.format(0), f"a copy of {original}")
        yield Difference(copy, "an attempt of its own", says)


def between(runs: Mapping[str, Mapping[str, Noise]]) -> list[str]:
    """A line for each attempt of a run that is a copy of one in another, by the noises of each run's attempts."""
    every = ((f"{name}: {folder}", quotients) for name, run in runs.items() for folder, quotients in run.items())
    pairs = ((copy, original) for copy, original in _copies(every) if copy.split(": ")[0] != original.split(": ")[0])
    return [f"{copy} is a copy of {original}" for copy, original in pairs]


def of_kept(reproduced: Path) -> list[str]:
    """The same of all kept runs, of all hosts together, in the order in which they were kept."""
    runs = {path: Run(reproduced / path) for path in digests.read(reproduced / digests.NAME)}
    there = {path: run for path, run in runs.items() if run.path.is_file()}
    return between({path: noises(run) for path, run in there.items() if not (run.files / PREFLIGHT).is_file()})


def noises(run: Run) -> dict[str, Noise]:
    """The noise of each successful attempt of a run, by its folder."""
    folders = (
        attempt.folder for attempt in run.attempts() if attempt.status == "ok" and ATTEMPT.fullmatch(attempt.folder)
    )
    return {folder: noise_of(events(run.files / folder / METRICS.format(0))) for folder in folders}


def _copies(noises: Iterable[tuple[str, Noise]]) -> Iterator[tuple[str, str]]:
    """Each copy with its original, the first attempt that has the same noise, by name."""
    of_quotient: dict[tuple[int, float], list[str]] = {}
    for name, mine in noises:
        shared = Counter(other for quotient in mine for other in of_quotient.get(quotient, ()))
        original = next((other for other, count in shared.items() if count >= FEWEST), None)
        if original:
            yield name, original
        for quotient in mine:
            others = of_quotient.setdefault(quotient, [])
            if not original or original not in others:
                others.append(name)
