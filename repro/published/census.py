"""The operators of each published program, counted in its source, and what the port to oneflow 0.8.0 changes of them.

Both are in `repro/data/census.toml`, which explains its tables.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from repro.published.deviations import deviations, holds
from repro.published.trainer_config import TrainerConfig
from repro.utils.paths import DATA

FILE = DATA / "census.toml"
Parts = dict[str, dict[str, int]]


def parameter_tensors(report: str, layers: int) -> int:
    """Number of parameter tensors of a report's program with this number of layers; 0 for one without a census."""
    program = _census().get(report, {})
    return program.get("parameters", 0) + layers * program.get("layer_parameters", 0)


def operator_types(report: str, config: TrainerConfig) -> frozenset[str]:
    """Types of the operators that the port has with a trainer's configuration; none for a program without a census."""
    return frozenset(name for counts in operators(report, config).values() for name in counts)


def operators(report: str, config: TrainerConfig, *without: str) -> Parts:
    """Operators of the port by part and type, with a trainer's configuration: the source's and all declared differences.

    Differences of the deviations `without` are left out.
    """
    return _parts(report, config, summed(report, config, without))


def times(counts: Mapping[str, int], number: int) -> Counter:
    return Counter({name: count * number for name, count in counts.items()})


def _parts(report: str, config: TrainerConfig, counts: Mapping[str, Counter]) -> Parts:
    layers, tensors = _sizes(report, config)
    waiting = layers - layers // config.layout.pipeline
    again = _added(counts["layer"], counts["recomputed"]) if config.activation_checkpointing else Counter()
    parts = {
        "layers": times(counts["layer"], layers),
        "layers gradient": times(_added(_gradient(counts["layer"]), counts["layer_gradient"]), layers),
        "outside": counts["outside"],
        "outside gradient": _added(_gradient(counts["outside"]), counts["outside_gradient"]),
        "recomputed": times(again, layers),
        "micro-steps": _added(
            times(counts["steps_each"], tensors), times(counts["steps_layer"], waiting), counts["steps"]
        ),
        "update": _added(times(counts["each"], tensors), counts["once"]),
    }
    sorted_parts = {part: _sorted(part_counts) for part, part_counts in sorted(parts.items())}
    return {part: part_counts for part, part_counts in sorted_parts.items() if part_counts}


def _gradient(counts: Mapping[str, int]) -> Counter:
    """What goes back through operators that go forward."""
    return _added(*(times(_census()["gradient"].get(name, {}), count) for name, count in counts.items()))


def summed(report: str, config: TrainerConfig, without: tuple[str, ...]) -> Mapping[str, Counter]:
    """The tables of counts for a configuration, each summed over the entries whose conditions hold."""
    program = _census().get(report, {})
    entries = [program, *(entry for entry in program.get("layouts", ()) if holds(entry["where"], config))]
    entries += [entry for entry in differences(report, config) if entry["deviation"] not in without]
    totals: dict[str, Counter] = _Tables()
    for entry in entries:
        for name, table in entry.items():
            if isinstance(table, dict) and name != "where":
                totals[name].update(table)
    return totals


class _Tables(dict):
    """Counters by name; a table that no entry has is empty."""

    def __missing__(self, name: str) -> Counter:
        return self.setdefault(name, Counter())


def differences(report: str, config: TrainerConfig) -> Iterator[Mapping[str, Any]]:
    """Entries of the differences whose deviation applies and whose own conditions hold."""
    applying = {deviation.id for deviation in deviations() if deviation.applies(report, config)}
    for entry in _census().get(report, {}).get("differences", ()):
        if entry["deviation"] in applying and holds(entry.get("where", {}), config):
            yield entry


def _sizes(report: str, config: TrainerConfig) -> tuple[int, int]:
    """Number of layers, and of parameter tensors."""
    layers = config.shape.get("layers", 0)
    return layers, parameter_tensors(report, layers)


def _added(*counts: Mapping[str, int]) -> Counter:
    total: Counter = Counter()
    for counter in counts:
        total.update(counter)
    return total


def _sorted(counts: Mapping[str, int]) -> dict[str, int]:
    return {name: count for name, count in sorted(counts.items()) if count}


@cache
def _census() -> dict:
    return tomllib.loads(FILE.read_text(encoding="utf-8"))
