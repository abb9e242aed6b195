"""Measures OneFlow's own collectives: `allreduce.py --config FILE`, alone or under oneflow.distributed.launch."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[2])

from repro.trainers.config import Sizes, load, parse_layout  # noqa: E402
from repro.trainers.process import run  # noqa: E402
from repro.trainers.run import set_environment, wait_for_master  # noqa: E402
from repro.trainers.validators import ConfigError, number, one_of, require_table, text, whole  # noqa: E402


@dataclass(frozen=True)
class Measurement:
    """What to measure: fp32 tensors of `sizes` bytes, each in `repeats` windows of about `window_s` seconds.

    The ranks are the data axis of the layout. `pairs` says whether neighbours also send to each other.
    """

    device: str
    layout: Sizes
    sizes: tuple[int, ...]
    repeats: int
    window_s: float
    pairs: bool
    output: str


def parse(values: dict) -> Measurement:
    """Build a Measurement from the decoded JSON; ConfigError names the first key that is wrong."""
    require_table("", values, Measurement)
    sizes = values["sizes"]
    if not isinstance(sizes, list) or not sizes:
        raise ConfigError(f"sizes: {sizes!r} is not a list of numbers of bytes")
    if not isinstance(values["pairs"], bool):
        raise ConfigError(f"pairs: {values['pairs']!r} is neither true nor false")
    return Measurement(
        device=one_of("device", values["device"], ("cpu", "cuda")),
        layout=parse_layout(values["layout"]),
        sizes=tuple(whole(f"sizes[{place}]", size, 4) for place, size in enumerate(sizes)),
        repeats=whole("repeats", values["repeats"], 1),
        window_s=number("window_s", values["window_s"], 0.0, 60.0),
        pairs=values["pairs"],
        output=text("output", values["output"]),
    )


def measure(measurement: Measurement) -> None:
    set_environment(measurement.device)
    wait_for_master()
    from repro.trainers.checks.collectives import measure

    measure(measurement)


if __name__ == "__main__":
    sys.exit(run(lambda path: load(path, parse), measure))
