"""Reads the metrics of ranks, JSON Lines that other processes wrote: their events, and the lines that are none.

A rank that is killed, a full disk or a foreign program may leave anything in such a file. A damaged line is never an
error of its reader: it is a fact of the attempt, named by file and line.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from repro.runs.failures import Failure
from repro.runs.files import RunPath, lined
from repro.utils.i18n import N_
from repro.utils.printable import one_line

METRICS = "metrics-rank{}.jsonl"
MOST_DAMAGED = 5
"""Damaged lines of a file that are kept: the first ones. Nobody reads more, and a hostile file has millions."""
TEXT = 80
"""How much of a damaged line is quoted, in characters."""
ROW = {"iteration", "time", "throughput", "latency_ms"}
"""What the event of a printed row always has; on rank 0 also its loss."""
MOST = 2**63
"""The largest whole number that an event has; floating point does not hold any."""
FIELDS: dict[str, tuple[type, ...]] = {
    "iteration": (int,),
    **dict.fromkeys(("time", "loss", "throughput", "latency_ms"), (int, float)),
    **dict.fromkeys(("memory_mib", "peak_allocated_mib"), (int, float, type(None))),
    **dict.fromkeys(("versions", "operators", "data"), (dict, type(None))),
}
"""The types of fields that are computed with, where an event has them."""
NOT_OF_RANKS = ("gpu", "state")
"""Kinds of events that launchers add themselves (`repro.launch.attempt.Attempt.run`)."""


@dataclass(frozen=True)
class DamagedLine:
    """A line that is no event: its file, by its name in the attempt's folder, its number from 1, and how it begins."""

    file: str
    line: int
    text: str

    def as_json(self) -> dict:
        return {"file": self.file, "line": self.line, "text": self.text}


class Metrics(NamedTuple):
    """The content of a metrics file: its events, and the first MOST_DAMAGED lines that are none."""

    events: list[dict]
    damaged: list[DamagedLine]


def parse(data: bytes, file: str, before: int = 0) -> Metrics:
    """Read whole lines of the metrics file of this name; `before` is how many lines it has before them."""
    metrics, row = Metrics([], []), ROW | ({"loss"} if file == METRICS.format(0) else set())
    for number, line in enumerate(data.split(b"\n")[:-1], before + 1):
        event = _event(line, row) if b'"event"' in line else None
        if event is not None:
            metrics.events.append(event)
        elif len(metrics.damaged) < MOST_DAMAGED:
            metrics.damaged.append(DamagedLine(file, number, _beginning(line)))
    return metrics


def read_metrics(path: RunPath) -> Metrics:
    """The content of a metrics file, in a folder or an archive; nothing if there is no such file.

    A last line without its end was cut off with its rank, and is left out. RecordError as `lined`.
    """
    return parse(lined(path), path.name) if path.is_file() else Metrics([], [])


def events(path: RunPath) -> list[dict]:
    """The events in a metrics file, without its damaged lines; none if there is no such file."""
    return read_metrics(path).events


def damaged_lines(attempt: Path) -> list[DamagedLine]:
    """The damaged lines of all ranks of an attempt, in the order of the files' names."""
    return [line for path in sorted(attempt.glob(METRICS.format("*"))) for line in read_metrics(path).damaged]


def damage(lines: Iterable[DamagedLine]) -> Failure | None:
    """The failure of an attempt with damaged lines, which names the first; None if there is none."""
    for line in lines:
        return Failure(N_("line {line} of {file} is damaged: {text}"), vars(line))
    return None


def _event(line: bytes, row: set[str]) -> dict | None:
    """The event in a line; None if it is damaged, as a printed row without what `row` names."""
    try:
        event = json.loads(line.decode("utf-8"))
        if b"\\u" in line:  # perhaps of lone surrogates, which nothing can record
            json.dumps(event, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError):
        return None
    if not isinstance(event, dict) or not isinstance(event.get("event"), str) or event["event"] in NOT_OF_RANKS:
        return None
    if event["event"] == "iteration" and not event.keys() >= row:
        return None
    for name, value in event.items():
        if name in FIELDS and (type(value) not in FIELDS[name] or (type(value) is int and abs(value) > MOST)):
            return None
    return event


def _beginning(line: bytes) -> str:
    return one_line(line[: 4 * TEXT].decode("utf-8", "backslashreplace"), TEXT)
