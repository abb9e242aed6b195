"""Published figures: how they were printed, what peers reached, and how much noise they admit."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from repro.models import extensions
from repro.utils.paths import DATA
from repro.utils.stats import Spread, spread

if TYPE_CHECKING:
    from repro.published.cases import Case

PEERS = DATA / "peers.toml"
CLUSTERS = DATA / "clusters"


class Figure(float):
    """A published number: a float that remembers its digits ("383.760")."""

    text: str

    def __new__(cls, text: str | float) -> Figure:
        figure = super().__new__(cls, text)
        figure.text = str(text)
        return figure

    def __str__(self) -> str:
        return self.text

    @property
    def decimals(self) -> int:
        """Digits printed after the decimal point."""
        return len(self.text.partition(".")[2])

    @property
    def half_unit(self) -> float:
        """Half a unit of the last printed digit: how far rounding can have moved the number."""
        return 0.5 * 10.0**-self.decimals

    def agrees(self, value: float) -> bool:
        """Whether `value`, rounded as this figure was, is this figure."""
        return abs(value - self) <= self.half_unit * (1 + 1e-9)


@dataclass(frozen=True)
class Published:
    """Figures that a report prints for one case; None if it prints nothing.

    `gpu_utilisation` is in per cent, `repeats` are the throughputs of single runs, and `printed` has everything else
    printed with them, by name.
    """

    throughput: Figure
    latency_ms: Figure | None = None
    memory_mib: Figure | None = None
    speedup: Figure | None = None
    gpu_utilisation: Figure | None = None
    repeats: tuple[Figure, ...] = ()
    printed: dict = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Peer:
    """One figure of another framework, or of another OneFlow release, on the published cluster.

    `case` is set if the peer ran the same case, `optimizer_sharding` if the peer varied it; `reports` are the reports
    whose cases it is compared with. `url` is the file of the source at a commit.
    """

    framework: str
    version: str
    model: str
    precision: str
    gpus: int
    micro_batch: int
    throughput: Figure
    unit: str
    source: str
    url: str
    reports: tuple[str, ...]
    variant: str = ""
    latency_ms: Figure | None = None
    memory_mib: Figure | None = None
    gpu_utilisation: Figure | None = None
    optimizer_sharding: int | None = None
    case: str | None = None


@dataclass(frozen=True, eq=False)
class Noise:
    """How far equal configurations differ in the published figures.

    `repeats` maps a case's name to the spread of its runs; `duplicates` maps two names of one configuration to the
    difference of their throughputs over their mean.
    """

    repeats: dict[str, Spread]
    duplicates: dict[tuple[str, str], float]

    @property
    def cvs(self) -> dict[str, float]:
        """The CV of each repeated case; all have one, as a case is repeated from 2 runs on and throughput is above 0."""
        return {name: each.cv for name, each in self.repeats.items() if each.cv is not None}

    @property
    def cases(self) -> tuple[str, ...]:
        """The cases that show it: those that were repeated, and those of a configuration that stands twice."""
        return tuple(dict.fromkeys([*self.repeats, *(name for pair in self.duplicates for name in pair)]))

    @property
    def largest(self) -> float:
        """The largest relative deviation seen, 0 if nothing was repeated."""
        return max([*self.cvs.values(), *self.duplicates.values()], default=0.0)


@cache
def load_peers(file: Path = PEERS) -> tuple[Peer, ...]:
    """All peers' figures, in the order of the file."""
    with open(file, "rb") as stream:
        content = tomllib.load(stream, parse_float=Figure)
    tables, commit = content["table"], content["commit"]
    return tuple(peer for table in tables for column in table["columns"] for peer in _column(table, column, commit))


def _column(table: dict, column: dict, commit: str) -> Iterable[Peer]:
    repository, _, revision = commit.partition("@")
    path = re.split(r"[, ]", table["source"].removeprefix(f"{repository}:"), maxsplit=1)[0]
    for row, gpus in enumerate(table["gpus"]):
        values = {key: value[row] if isinstance(value, list) else value for key, value in column.items()}
        values |= {
            key: Figure(values[key])
            for key in ("throughput", "latency_ms", "memory_mib", "gpu_utilisation")
            if key in values
        }
        yield Peer(
            model=table["model"],
            precision=table["precision"],
            unit=table["unit"],
            source=table["source"],
            url=f"https://github.com/{repository}/blob/{revision}/{path}",
            reports=tuple(table["reports"]),
            gpus=gpus,
            micro_batch=values.pop("batch"),
            case=table["cases"][row] if "cases" in table else None,
            **values,
        )


def peers(model: str, **fields: object) -> tuple[Peer, ...]:
    """Peers' figures of a model; further arguments are fields of Peer and the value each must have."""
    return tuple(
        peer
        for peer in load_peers()
        if peer.model == model and all(getattr(peer, name) == value for name, value in fields.items())
    )


def load_published_cluster(name: str = "v100x32", folder: Path = CLUSTERS) -> dict:
    """The description of a published cluster: hardware, and software and topology if they are known.

    That of a report from outside the project is in `data/clusters/` beside it (`repro.models.extensions`).
    """
    places = (folder, *(extra / "data" / "clusters" for extra in extensions.folders()))
    file = next((path for place in places if (path := place / f"{name}.toml").is_file()), folder / f"{name}.toml")
    with open(file, "rb") as stream:
        return {"software": {}, **tomllib.load(stream)}


def configuration(case: Case) -> tuple:
    """All that makes two cases of one report the same measurement, whatever they are called."""
    return (
        case.report,
        case.nodes,
        case.gpus_per_node,
        case.layout,
        case.micro_batch,
        case.accumulation_steps,
        case.precision,
        case.activation_checkpointing,
        case.optimizer_sharding,
        tuple(sorted(case.shape.items())),
    )


def duplicates(cases: Iterable[Case]) -> tuple[tuple[Case, ...], ...]:
    """Groups of cases of one report that publish the same configuration more than once."""
    groups: dict[tuple, list[Case]] = {}
    for case in cases:
        groups.setdefault(configuration(case), []).append(case)
    return tuple(tuple(group) for group in groups.values() if len(group) > 1)


def published_noise(cases: Iterable[Case]) -> Noise:
    """The spread of every repeated case, and the difference between every two cases of one configuration."""
    cases = tuple(cases)
    repeats = {case.name: spread(case.published.repeats) for case in cases if len(case.published.repeats) > 1}
    differences = {}
    for group in duplicates(cases):
        for index, first in enumerate(group):
            for second in group[index + 1 :]:
                one, other = first.published.throughput, second.published.throughput
                differences[first.name, second.name] = 2 * abs(one - other) / (one + other)
    return Noise(repeats, differences)


def baseline(case: Case, cases: Iterable[Case]) -> Case | None:
    """The 1-GPU case of the same report, batch size and model shape, or None if there is none."""
    for other in cases:
        if other.layout.world_size == 1 and _per_gpu_work(other) == _per_gpu_work(case):
            return other
    return None


def _per_gpu_work(case: Case) -> tuple:
    return case.report, case.micro_batch, case.accumulation_steps, case.precision, tuple(sorted(case.shape.items()))


def speedup(case: Case, cases: Iterable[Case]) -> float | None:
    """Published throughput over that of the 1-GPU baseline, or None without a baseline."""
    single = baseline(case, cases)
    return case.published.throughput / single.published.throughput if single else None
