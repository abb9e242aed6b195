"""Configurations of the device and link checks, parsed from JSON without OneFlow."""

from __future__ import annotations

from dataclasses import dataclass

from repro.trainers.config import Sizes, parse_layout
from repro.trainers.validators import ConfigError, flag, number, one_of, require_table, text, whole

SCALES = ("published", "small")
SINGLE, HALF, TF32 = "fp32", "fp16", "tf32"
"""The precisions that operators are compared in: TF32 is that of operators in fp32 whose libraries may use it."""


@dataclass(frozen=True)
class Comparison:
    """The operators to compare with the CPU: of these models, by name; of all models, and all, if none is given.

    Of these, those in `precisions`. `scale` selects the published sizes or small ones. `layout` is that of a single process. `share` is (k, n) for the
    k-th of n parts of these operators, counted from 1.
    """

    device: str
    layout: Sizes
    scale: str
    models: tuple[str, ...]
    precisions: tuple[str, ...]
    operators: tuple[str, ...]
    share: tuple[int, int]
    output: str


@dataclass(frozen=True)
class Measurement:
    """The collectives to measure: fp32 tensors of `sizes` bytes, each in `repeats` windows of about `window_s` seconds.

    The ranks form the data axis of the layout. With `pairs`, neighbouring ranks also send to each other.
    """

    device: str
    layout: Sizes
    sizes: tuple[int, ...]
    repeats: int
    window_s: float
    pairs: bool
    output: str


def names(key: str, value: object) -> tuple[str, ...]:
    """A list of names; ConfigError if it is none."""
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ConfigError(f"{key}: {value!r} is not a list of names")
    return tuple(value)


def precisions(key: str, value: object) -> tuple[str, ...]:
    """Precisions that can be compared in one process; ConfigError for others."""
    chosen = tuple(
        one_of(f"{key}[{place}]", name, (SINGLE, HALF, TF32)) for place, name in enumerate(names(key, value))
    )
    if SINGLE in chosen and TF32 in chosen:
        raise ConfigError(f"{key}: the libraries of a process compute in {SINGLE} or in {TF32}")
    return chosen


def share(key: str, value: object) -> tuple[int, int]:
    """Which of how many parts, [k, n]; ConfigError if there is no such part."""
    if not isinstance(value, list) or len(value) != 2:
        raise ConfigError(f"{key}: {value!r} is not [k, n]")
    parts = whole(f"{key}[1]", value[1], 1)
    if (part := whole(f"{key}[0]", value[0], 1)) > parts:
        raise ConfigError(f"{key}: there is no part {part} of {parts}")
    return part, parts


def parse_comparison(values: dict) -> Comparison:
    """Build a Comparison from the decoded JSON; ConfigError names the first key that is wrong."""
    require_table("", values, Comparison)
    layout = parse_layout(values["layout"])
    if layout.world_size != 1:
        raise ConfigError("layout: operators are compared in one process")
    return Comparison(
        device=one_of("device", values["device"], ("cpu", "cuda")),
        layout=layout,
        scale=one_of("scale", values["scale"], SCALES),
        models=names("models", values["models"]),
        precisions=precisions("precisions", values["precisions"]),
        operators=names("operators", values["operators"]),
        share=share("share", values["share"]),
        output=text("output", values["output"]),
    )


def parse_measurement(values: dict) -> Measurement:
    """Build a Measurement from the decoded JSON; ConfigError names the first key that is wrong."""
    require_table("", values, Measurement)
    sizes = values["sizes"]
    if not isinstance(sizes, list) or not sizes:
        raise ConfigError(f"sizes: {sizes!r} is not a list of numbers of bytes")
    return Measurement(
        device=one_of("device", values["device"], ("cpu", "cuda")),
        layout=parse_layout(values["layout"]),
        sizes=tuple(whole(f"sizes[{place}]", size, 4) for place, size in enumerate(sizes)),
        repeats=whole("repeats", values["repeats"], 1),
        window_s=number("window_s", values["window_s"], 0.0, 60.0),
        pairs=flag("pairs", values["pairs"]),
        output=text("output", values["output"]),
    )
