"""An attempt as a run records it, a line of `attempts.jsonl`: its form, and the one reader and the one writer of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from repro.published.trainer_config import COUNT, ITERATIONS, NAME, RANKS, SINGLE
from repro.published.validators import (
    bounded,
    line,
    mapping,
    number_from,
    one_of,
    optional,
    several,
    table,
    text,
)
from repro.runs import translation
from repro.runs.failures import Failure
from repro.runs.form import FIGURE, FLAG, MESSAGE, REPEATS, UNITS, YEAR_2100, folder
from repro.runs.metrics import DamagedLine

INTERRUPTED = "interrupted"
STATUSES = ("ok", "failed", INTERRUPTED)
"""How attempts end."""
BYTES = 2**62
FORM = table(
    {
        "unit": NAME,
        "repeat": bounded(1, REPEATS),
        "attempt": bounded(1, COUNT),
        "folder": folder,
        "status": one_of(*STATUSES),
        "started": number_from(0, YEAR_2100),
        "wall_s": number_from(0, YEAR_2100),
        **dict.fromkeys(
            ("throughput", "latency_ms", "memory_mib", "memory_peak_mib", "memory_allocated_mib", "first_row_s"), FIGURE
        ),
        "trainer_s": FIGURE,
        "parameters": FIGURE,
        **dict.fromkeys(("losses", "last_losses"), optional(several(number_from(), ITERATIONS))),
        "log_tail": optional(text(r"(?s).*")),
        "failure": optional(MESSAGE),
        **dict.fromkeys(("versions", "operators"), optional(mapping(SINGLE))),
        **dict.fromkeys(("code", "data", "transport", "adapters"), optional(table({}))),
        "rdma": optional(FLAG),
        "enough": optional(line()),
        "cut": several(
            table(
                {"path": folder, **dict.fromkeys(("printed", "kept"), bounded(0, BYTES))}, ("path", "printed", "kept")
            ),
            UNITS,
        ),
        "damaged": several(
            table({"file": line(), "line": bounded(1, COUNT), "text": line()}, ("file", "line", "text")), UNITS
        ),
        "beside": several(
            table({"attempt": line(), "nodes": several(line(), RANKS)}, ("attempt", "nodes")), UNITS * REPEATS
        ),
        "nodes": optional(several(line(), RANKS)),
    },
    ("unit", "repeat", "folder", "status", "started", "wall_s"),
)


@dataclass(frozen=True)
class CutLog:
    """A log that was cut: its path in the attempt's folder, the bytes that were printed, and those in the file."""

    path: str
    printed: int
    written: int

    @classmethod
    def from_json(cls, content: Mapping) -> CutLog:
        return cls(content["path"], content["printed"], content["kept"])

    def as_json(self) -> dict:
        return {"path": self.path, "printed": self.printed, "kept": self.written}


@dataclass(frozen=True)
class Neighbour:
    """An attempt that ran at the same time: its folder, and its nodes; none on one machine."""

    attempt: str
    nodes: tuple[str, ...]

    @classmethod
    def from_json(cls, content: Mapping) -> Neighbour:
        return cls(content["attempt"], tuple(content["nodes"]))

    def as_json(self) -> dict:
        return {"attempt": self.attempt, "nodes": list(self.nodes)}


@dataclass(frozen=True)
class Windows:
    """Figures of the windows between rank 0's printed rows (`repro.analysis.steady.windows`)."""

    steady_samples_per_s: float
    second_window_s: float
    after_last_row_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class AttemptRecord:
    """What a run recorded of an attempt that ended; None or nothing for what it did not record.

    Attributes
    ----------
    repeat, attempt : which repeat of the unit, and which attempt at it, from 1.
    folder : relative to the run's.
    started, wall_s : Unix time, and s of the whole attempt; `trainer_s` from the start to the end of the ranks.
    code : digests of the program (`repro.launch.program_code`).
    nodes : where it ran, on a cluster.
    generation, throughput, latency_ms, memory_mib : by the rule of its report (`repro.analysis.measurement.measure`).
    losses, last_losses, … rdma : by rank 0's metrics (`repro.analysis.measurement.RankZero.figures`).
    transport, adapters : what NCCL's logs and the counters of the nodes' adapters say.
    beside : the attempts that ran at the same time.
    enough : why its unit needs no more repeats by the plan's stopping rule; None while it does.
    recorded : the names of what its line has, in that order: releases recorded different ones.
    windows : of its metrics, if they were read; no line has it.
    """

    unit: str
    repeat: int
    folder: str
    status: str
    started: float
    wall_s: float
    attempt: int | None = None
    code: Mapping | None = None
    nodes: tuple[str, ...] = ()
    generation: str | None = None
    throughput: float | None = None
    latency_ms: float | None = None
    memory_mib: float | None = None
    transport: Mapping = field(default_factory=dict)
    adapters: Mapping[str, Mapping[str, Mapping[str, int]]] = field(default_factory=dict)
    losses: list[float] | None = None
    last_losses: list[float] | None = None
    memory_peak_mib: float | None = None
    first_row_s: float | None = None
    versions: Mapping | None = None
    memory_allocated_mib: float | None = None
    parameters: int | None = None
    operators: Mapping | None = None
    data: dict | None = None
    rdma: bool | None = None
    failure: Failure | None = None
    log_tail: str | None = None
    cut: tuple[CutLog, ...] = ()
    damaged: tuple[DamagedLine, ...] = ()
    trainer_s: float | None = None
    beside: tuple[Neighbour, ...] = ()
    enough: str | None = None
    recorded: tuple[str, ...] = field(default=(), repr=False)
    windows: Windows | None = None

    @classmethod
    def of(cls, **values: Any) -> AttemptRecord:
        """A record of these values, in this order."""
        return cls(**values, recorded=tuple(values))

    def with_more(self, **values: Any) -> AttemptRecord:
        """The same record with these values after its own."""
        return replace(self, **values, recorded=tuple(dict.fromkeys((*self.recorded, *values))))

    @property
    def ended(self) -> float:
        """Unix time of its end."""
        return self.started + self.wall_s

    @classmethod
    def from_json(cls, content: dict) -> AttemptRecord:
        """A recorded attempt of any release, whose form was checked; names that this release does not know are left out."""
        current = translation.attempt(content)
        values = {name: value for name, value in current.items() if name in NAMES and value is not None}
        read = {name: READERS[name](value) if name in READERS else value for name, value in values.items()}
        return cls(**read, recorded=tuple(name for name in current if name in NAMES))

    def as_json(self) -> dict:
        """What its line has."""
        return {name: _as_json(getattr(self, name)) for name in self.recorded}


NAMES = frozenset(entry.name for entry in fields(AttemptRecord)) - {"recorded", "windows"}
READERS: dict[str, Callable[[Any], Any]] = {
    "nodes": tuple,
    "failure": Failure.from_json,
    "cut": lambda logs: tuple(map(CutLog.from_json, logs)),
    "damaged": lambda lines: tuple(DamagedLine(entry["file"], entry["line"], entry["text"]) for entry in lines),
    "beside": lambda others: tuple(map(Neighbour.from_json, others)),
}


def _as_json(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_as_json(element) for element in value]
    return value.as_json() if isinstance(value, Failure | CutLog | DamagedLine | Neighbour) else value


def parse(text_line: str) -> AttemptRecord:
    """The attempt in a line; ValueError says why it is none that a run records."""
    try:
        content = json.loads(text_line)
        fault = FORM(content)
    except (ValueError, RecursionError) as error:
        fault = f"is no JSON: {error}"
    if fault:
        raise ValueError(fault)
    return AttemptRecord.from_json(content)


def serialise(attempt: AttemptRecord) -> bytes:
    """The line of an attempt, with its end."""
    return (json.dumps(attempt.as_json(), ensure_ascii=False, allow_nan=True) + "\n").encode()
