"""Differences between the published programs and their ports, from `repro/models/deviations.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from repro.published.trainer_config import TrainerConfig
from repro.utils.paths import PACKAGE

FILE = PACKAGE / "models" / "deviations.toml"
ALL = "all"
KINDS = ("speed", "mathematics", "data", "runtime")
SPEED, MEMORY, LOSS = MATTERS = ("speed", "memory", "loss")
EVIDENCE = ("measured", "published", "estimated", "source")
COUNTED = ("gpus", "data", "tensor", "pipeline", "accumulation")
"""Conditions that are "one" or "several"; others are a value of the configuration."""


@dataclass(frozen=True, eq=False)
class Deviation:
    """One difference between the published programs and their ports.

    Parameters
    ----------
    programs : ids of the reports whose programs differ so; ("all",) for every one.
    kind : of KINDS; "speed" is the same mathematics at another speed.
    matters : for which of MATTERS it may matter.
    what, effect : by language.
    evidence : of EVIDENCE, what the effect is known from.
    sources : "repository@commit:path#lines", or paths of this project.
    where : what the trainer's configuration must have for the deviation to apply, every entry of it.
    """

    id: str
    programs: tuple[str, ...]
    kind: str
    matters: tuple[str, ...]
    what: Mapping[str, str]
    effect: Mapping[str, str]
    evidence: str
    sources: tuple[str, ...]
    where: Mapping[str, object]

    def of(self, report: str) -> bool:
        """Whether the program of this report differs so in some configuration."""
        return self.programs == (ALL,) or report in self.programs

    def applies(self, report: str, config: TrainerConfig) -> bool:
        """Whether a trainer with this configuration differs so from the program of a report."""
        return self.of(report) and holds(self.where, config)


def holds(where: Mapping[str, object], config: TrainerConfig) -> bool:
    """Whether a trainer's configuration meets all conditions."""
    facts = _facts(config)
    return all(facts[name] == value for name, value in where.items())


@cache
def deviations() -> tuple[Deviation, ...]:
    """Every entry of the file, in its order."""
    with open(FILE, "rb") as file:
        entries = tomllib.load(file)["deviation"]
    return tuple(
        Deviation(**{"where": {}, **entry, **{name: tuple(entry[name]) for name in ("programs", "matters", "sources")}})
        for entry in entries
    )


def deviations_of(report: str, config: TrainerConfig, *matters: str) -> tuple[Deviation, ...]:
    """Deviations of the port of a report's program, configured so; with `matters`, only those that may affect it."""
    return tuple(
        deviation
        for deviation in deviations()
        if deviation.applies(report, config) and (not matters or set(matters) & set(deviation.matters))
    )


def _facts(config: TrainerConfig) -> dict[str, object]:
    counts = {**vars(config.layout), "gpus": config.layout.world_size, "accumulation": config.accumulation_steps}
    return {
        **{name: "several" if counts[name] > 1 else "one" for name in COUNTED},
        "precision": config.precision,
        "optimizer_sharding": config.optimizer_sharding,
        "input": config.data.kind,
        "standin": config.data.standin is not None,
    }
