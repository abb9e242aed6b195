"""A baseline's configuration: a trainer's, and a table of its own, `baseline`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from repro.models.spec import ModelSpec
from repro.models.variants import MEGATRON, VARIANTS, refusal
from repro.trainers import config as trainers
from repro.trainers.config import Config
from repro.trainers.validators import ConfigError, flag, require_table


@dataclass(frozen=True)
class Variant:
    """How a baseline runs the model; `repro.models.variants.make_baseline_config` says what each means."""

    tf32: bool = False
    channels_last: bool = False
    compile: bool = False
    unfused: bool = False
    megatron: bool = False


@dataclass(frozen=True)
class BaselineConfig(Config):
    baseline: Variant = field(default_factory=Variant)

    @property
    def unfused_amp(self) -> bool:
        """Whether all between the token embedding and the loss is in half precision, as in the published programs.

        Under PyTorch's own AMP sums along the layers, normalisation and softmax are in fp32.
        """
        return self.baseline.unfused and self.precision == "amp"


def load(path: str) -> BaselineConfig:
    """Read and check a configuration file; ConfigError says what is wrong, or that no baseline can run it."""
    return trainers.load(path, parse)


def parse(values: dict) -> BaselineConfig:
    if not isinstance(values, dict):
        raise ConfigError(f"configuration: {values!r} is not a table")
    common = {key: value for key, value in values.items() if key != "baseline"}
    config = trainers.parse(common)
    variant = parse_baseline(values.get("baseline", {}), config.spec)
    reason = refusal(common, MEGATRON[0] if variant.megatron else VARIANTS[0])
    if reason:
        raise ConfigError(reason)
    return BaselineConfig(**vars(config), baseline=variant)


def parse_baseline(values: Any, spec: ModelSpec) -> Variant:
    require_table("baseline", values, Variant)
    baseline = Variant(**{key: flag(f"baseline.{key}", value) for key, value in values.items()})
    if baseline.channels_last and not (spec.baseline and spec.baseline.channels_last):
        raise ConfigError(f"baseline.channels_last: {spec.name} has no channels, give false")
    if baseline.unfused and not (spec.baseline and spec.baseline.attention):
        raise ConfigError(f"baseline.unfused: {spec.name} has no attention, give false")
    return baseline
