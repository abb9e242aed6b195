"""Published figures: how they were printed, what peers reached, and the clusters they were measured on."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from repro.models import extensions
from repro.utils.paths import DATA

PEERS = DATA / "peers.toml"
CLUSTERS = DATA / "clusters"


class PrintedNumber(float):
    """A published number: a float that remembers its digits ("383.760")."""

    text: str

    def __new__(cls, text: str | float) -> PrintedNumber:
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

    throughput: PrintedNumber
    latency_ms: PrintedNumber | None = None
    memory_mib: PrintedNumber | None = None
    speedup: PrintedNumber | None = None
    gpu_utilisation: PrintedNumber | None = None
    repeats: tuple[PrintedNumber, ...] = ()
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
    throughput: PrintedNumber
    unit: str
    source: str
    url: str
    reports: tuple[str, ...]
    variant: str = ""
    latency_ms: PrintedNumber | None = None
    memory_mib: PrintedNumber | None = None
    gpu_utilisation: PrintedNumber | None = None
    optimizer_sharding: int | None = None
    case: str | None = None

    @property
    def name(self) -> str:
        """Its model, framework and version, and its case, or batch and GPUs where it has none; findings name it so."""
        named = " ".join(part for part in (self.framework, self.version, self.variant) if part)
        of = self.case or f"bs{self.micro_batch}, {self.gpus} GPU"
        return f"{self.model}, {named}, {of}"


@cache
def load_peers(file: Path = PEERS) -> tuple[Peer, ...]:
    """All peers' figures, in the order of the file."""
    with open(file, "rb") as stream:
        content = tomllib.load(stream, parse_float=PrintedNumber)
    tables, commit = content["table"], content["commit"]
    return tuple(peer for table in tables for column in table["columns"] for peer in _column(table, column, commit))


def _column(table: dict, column: dict, commit: str) -> Iterable[Peer]:
    repository, _, revision = commit.partition("@")
    path = re.split(r"[, ]", table["source"].removeprefix(f"{repository}:"), maxsplit=1)[0]
    for row, gpus in enumerate(table["gpus"]):
        values = {key: value[row] if isinstance(value, list) else value for key, value in column.items()}
        values |= {
            key: PrintedNumber(values[key])
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
    """The description of a published cluster: hardware, and software and topology if they are known; these are shared.

    That of a report from outside the project is in `data/clusters/` beside it (`repro.models.extensions`).
    """
    places = (folder, *(extra / "data" / "clusters" for extra in extensions.folders()))
    file = next((path for place in places if (path := place / f"{name}.toml").is_file()), folder / f"{name}.toml")
    return {"software": {}, **_read(file)}


@cache
def _read(file: Path) -> dict:
    with open(file, "rb") as stream:
        return tomllib.load(stream)
