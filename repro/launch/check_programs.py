"""The programs of checks, such as the one that compares operators with the CPU: attempts that a launcher makes of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from repro.launch.attempt import Attempt
from repro.published.cases import Layout
from repro.published.trainer_config import SYNTHETIC, TrainerConfig, TrainingData
from repro.runs.unit import TF32


@dataclass(frozen=True)
class CheckConfig:
    """The configuration of a check's program: its device, its number of ranks, and settings of its own.

    It reads no data set. `output` is the folder for its files.
    """

    device: str
    ranks: int
    settings: Mapping[str, Any]
    output: str = ""
    data: ClassVar[TrainingData] = TrainingData(SYNTHETIC)

    @property
    def layout(self) -> Layout:
        """Its ranks are data parallel."""
        return Layout(self.ranks)

    @property
    def tf32(self) -> bool:
        """Whether it is to compute in TF32."""
        return TF32 in self.settings.get("precisions", ())

    def with_settings(self, **settings: Any) -> CheckConfig:
        """The same with these settings in place of its own."""
        return replace(self, settings={**self.settings, **settings})

    def written(self, output: str, standins: str) -> CheckConfig:
        """As an attempt gets it that leaves its files in the folder `output`."""
        return replace(self, output=output)

    def as_json(self) -> dict:
        """What its `config.json` has."""
        return {"device": self.device, "layout": asdict(self.layout), **self.settings, "output": self.output}


ProgramConfig = TrainerConfig | CheckConfig
"""What is written for a program before it starts."""
ProgramOf = Callable[[CheckConfig, Path], Attempt]
"""Makes an attempt of such a program from its configuration and the folder for its files."""
