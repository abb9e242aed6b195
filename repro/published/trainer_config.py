"""A trainer's configuration as the controller has it: its form, and its one reader and one writer.

`repro.trainers.config` reads what is written here, on its own side; runs record it in `run.json` and `config.json`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any

from repro.published.cases import Layout
from repro.published.validators import bounded, mapping, number_from, one_of, optional, table, text
from repro.utils.records import as_json, values_of

RANKS, ITERATIONS = 65_536, 10**7
LAYERS, SIZE, COUNT = 10_000, 10**7, 10**12
"""Bounds of what is read, far beyond any run."""
NAME = text(r"[A-Za-z0-9][A-Za-z0-9_., '-]{0,199}", "a name of letters, digits, blanks and _ - . , '")
SINGLE = optional(lambda value: None if isinstance(value, str | bool) else number_from(-COUNT, COUNT)(value))
AXES = dict.fromkeys(("data", "tensor", "pipeline"), bounded(1, RANKS))
SHAPE = table({"layers": bounded(1, LAYERS)}, other=bounded(0, SIZE))
COUNTED = ("accumulation_steps", "micro_batch", "log_interval", "iterations")


def _layout(value: object) -> str | None:
    fault = table(AXES, tuple(AXES), one_of(1))(value)
    ranks = 0 if fault else math.prod(value.values())  # type: ignore[attr-defined]
    return fault or (f"has {ranks} ranks; at most {RANKS} are read" if ranks > RANKS else None)


FORM = table(
    {
        "case": NAME,
        "model": NAME,
        "layout": _layout,
        "shape": SHAPE,
        **dict.fromkeys(COUNTED, bounded(1, ITERATIONS)),
        **dict.fromkeys(
            ("optimizer", "schedule"), mapping(lambda value: None if isinstance(value, list) else SINGLE(value))
        ),
        "data": optional(table({})),
        "baseline": table({}),
        "peer": table({}),
    },
    other=SINGLE,
)
"""A configuration in a run's record."""
SYNTHETIC = "synthetic"
"""The kind of data that a trainer makes itself."""


@dataclass(frozen=True)
class TrainingData:
    """What a trainer reads: synthetic batches, files at `path` or `prefix`, or a stand-in of a size, made in `folder`."""

    kind: str
    path: str | None = None
    prefix: str | None = None
    parts: int | None = None
    standin: str | None = None
    scale: str | None = None
    folder: str | None = None
    further: Mapping[str, Any] = field(default_factory=dict)

    @property
    def own_file(self) -> str | None:
        """A file or folder of the data set that it names; None for a stand-in or synthetic batches."""
        return f"{self.prefix}.idx" if self.prefix is not None else self.path

    @property
    def own_folder(self) -> str | None:
        """The folder with all files of the data set that it names."""
        return str(PurePosixPath(self.prefix).parent) if self.prefix is not None else self.path

    def is_in(self, folder: str) -> bool:
        """Whether files of this folder are read."""
        return f"{self.own_file or ''}/".startswith(f"{folder}/")

    @classmethod
    def from_json(cls, content: Mapping) -> TrainingData:
        return cls(**values_of(cls, content))

    def as_json(self) -> dict:
        return as_json(self)


@dataclass(frozen=True, kw_only=True)
class TrainerConfig:
    """What a trainer or a baseline trains, and how; `repro.trainers.config.Config` says what each value means.

    `case` is the name of the unit, `shape`, `optimizer` and `schedule` have the keys of the model's specification.
    `baseline` has the switches of a baseline (`repro.models.variants`), `output` is the folder of an attempt. `further`
    is what a record has that this release does not know.
    """

    case: str
    model: str
    program: str
    device: str
    seed: int
    layout: Layout
    micro_batch: int
    accumulation_steps: int
    precision: str
    activation_checkpointing: bool
    optimizer_sharding: int
    dropout: float
    iterations: int
    log_interval: int
    log_generation: str
    shape: Mapping[str, int]
    optimizer: Mapping[str, Any]
    schedule: Mapping[str, Any]
    label_smoothing: float | None = None
    loss_scale: float | None = None
    data: TrainingData = TrainingData(SYNTHETIC)
    baseline: Mapping[str, bool] | None = None
    output: str | None = None
    further: Mapping[str, Any] = field(default_factory=dict)

    @property
    def global_batch(self) -> int:
        """Samples per iteration of all ranks together."""
        return self.micro_batch * self.accumulation_steps * self.layout.data

    @property
    def switches(self) -> Mapping[str, bool]:
        """The switches of a baseline; none for a trainer of OneFlow."""
        return self.baseline or {}

    def written(self, output: str, standins: str) -> TrainerConfig:
        """As an attempt gets it that leaves its files in the folder `output`, where stand-ins are in `standins`."""
        data = replace(self.data, folder=standins) if self.data.standin else self.data
        return replace(self, data=data, output=output)

    @classmethod
    def from_json(cls, content: Mapping) -> TrainerConfig:
        """A recorded configuration in the terms of `repro.runs.translation`; KeyError if it lacks a value."""
        values = values_of(cls, content)
        layout = Layout(**{axis: values["layout"][axis] for axis in AXES})
        data = TrainingData.from_json(values.pop("data", None) or {"kind": SYNTHETIC})
        return cls(**{**values, "layout": layout, "data": data})

    def as_json(self) -> dict:
        """What `run.json` and `config.json` have of it: every value but those that it does without."""
        return as_json(self) | {"layout": asdict(self.layout), "data": self.data.as_json()}
