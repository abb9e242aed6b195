"""Compares operators of the models with the CPU: `kernels.py --config FILE`, one process."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[2])

from repro.trainers.config import Sizes, load, parse_layout  # noqa: E402
from repro.trainers.process import run  # noqa: E402
from repro.trainers.run import set_environment  # noqa: E402
from repro.trainers.validators import ConfigError, one_of, require_table, text  # noqa: E402

SCALES = ("published", "small")


@dataclass(frozen=True)
class Comparison:
    """What to compare: the operators with these names, all where none is named, in shapes of this scale.

    `layout` is that of a single process.
    """

    device: str
    layout: Sizes
    scale: str
    operators: tuple[str, ...]
    output: str


def parse(values: dict) -> Comparison:
    """Build a Comparison from the decoded JSON; ConfigError names the first key that is wrong."""
    require_table("", values, Comparison)
    names = values["operators"]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ConfigError(f"operators: {names!r} is not a list of names")
    layout = parse_layout(values["layout"])
    if layout.world_size != 1:
        raise ConfigError("layout: operators are compared in one process")
    return Comparison(
        device=one_of("device", values["device"], ("cpu", "cuda")),
        layout=layout,
        scale=one_of("scale", values["scale"], SCALES),
        operators=tuple(names),
        output=text("output", values["output"]),
    )


def compare(comparison: Comparison) -> None:
    set_environment(comparison.device)
    from repro.trainers.checks.accuracy import compare

    compare(comparison)


if __name__ == "__main__":
    sys.exit(run(lambda path: load(path, parse), compare))
