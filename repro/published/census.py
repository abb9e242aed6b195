"""The operators of each published program, counted in its source: `repro/data/census.toml`."""

from __future__ import annotations

import tomllib
from functools import cache

from repro.utils.paths import DATA

FILE = DATA / "census.toml"
COUNTED = ("layer", "layer_gradient", "outside", "outside_gradient", "recomputed", "each", "once")
"""The tables of a program's entry whose keys are types of operators."""


def parameter_tensors(report: str, layers: int) -> int:
    """Number of parameter tensors of a report's program with so many layers; 0 for one without a census."""
    program = _census().get(report, {})
    return program.get("parameters", 0) + layers * program.get("layer_parameters", 0)


def operator_types(report: str) -> frozenset[str]:
    """Types of the operators of a report's program, under the names of oneflow 0.8.0; none for one without a census."""
    program, gradient = _census().get(report, {}), _census()["gradient"]
    forward = {name for part in ("layer", "outside") for name in program.get(part, {})}
    backward = {name for operator in forward for name in gradient.get(operator, {})}
    counted = {name for part in COUNTED for name, count in program.get(part, {}).items() if count > 0}
    return frozenset(counted | backward)


@cache
def _census() -> dict:
    return tomllib.loads(FILE.read_text(encoding="utf-8"))
