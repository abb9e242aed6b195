"""A trainer's configuration: parsed from JSON, checked, with the sizes derived from it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from repro.models.programs import KINDS, Program
from repro.models.registry import names, spec_of
from repro.models.spec import ModelSpec
from repro.trainers.data.settings import Data, check_data, parse_data
from repro.trainers.validators import ConfigError, flag, number, one_of, require_keys, require_table, text, whole


@dataclass(frozen=True)
class Sizes:
    """Data, tensor and pipeline parallel sizes."""

    data: int
    tensor: int
    pipeline: int

    @property
    def world_size(self) -> int:
        return self.data * self.tensor * self.pipeline


class Shape(SimpleNamespace):
    """Sizes of the model and of a sample, named as in the model's specification."""


@dataclass(frozen=True)
class Optimizer:
    name: str
    lr: float
    weight_decay: float
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    momentum: float = 0.0
    clip_norm: float | None = None


@dataclass(frozen=True)
class Schedule:
    """Learning rate schedule: linear warm-up from 0 and the decay named by `kind`."""

    kind: str
    warmup_iterations: int = 0
    decay_iterations: int = 0
    min_lr: float = 0.0
    power: float = 1.0


@dataclass(frozen=True)
class Config:
    """One training run.

    `program` ("published" or "tuned") and `log_generation` select the program (`choices`). `micro_batch` counts samples
    per data parallel rank and accumulation step. `optimizer_sharding` is the ZeRO stage, 0 for none.
    `loss_scale` is the initial value under AMP; each iteration whose gradients overflow is skipped and halves it.

    Batch normalisation uses the statistics of one micro-batch on one rank. One process with n accumulation steps is
    therefore the reference for n data parallel ranks.
    """

    case: str
    model: str
    program: str
    device: str
    seed: int
    layout: Sizes
    micro_batch: int
    accumulation_steps: int
    precision: str
    activation_checkpointing: bool
    optimizer_sharding: int
    dropout: float
    iterations: int
    log_interval: int
    log_generation: str
    shape: Shape
    optimizer: Optimizer
    schedule: Schedule
    data: Data
    output: str
    label_smoothing: float = 0.0
    loss_scale: float = 2.0**20

    @property
    def spec(self) -> ModelSpec:
        """The model's specification."""
        return spec_of(self.model)

    @property
    def choices(self) -> Program:
        """The program's choices, which distinguish the programs of a model."""
        return self.spec.program(self.program, self.log_generation)

    @property
    def global_batch(self) -> int:
        """Samples per iteration over all ranks and accumulation steps."""
        return self.micro_batch * self.accumulation_steps * self.layout.data

    @property
    def padded_vocab_size(self) -> int:
        """Rows of the token embedding, for models that have one."""
        return self.spec.padded_vocab_size(self.shape.vocab_size, self.layout.tensor)


def load(path: str, parser: Callable[[dict], Any] | None = None) -> Any:
    """Read a configuration file and parse it with `parse` or another parser.

    Raises
    ------
    ConfigError
        If the file cannot be read, or a key is unknown, missing or has a value that cannot be run.
    """
    try:
        values = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{path}: not JSON: {error}") from error
    try:
        return (parser or parse)(values)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def parse(values: dict) -> Config:
    """Build a Config from the decoded JSON; ConfigError names the first key that is wrong."""
    require_table("", values, Config)
    spec = spec_of(one_of("model", values["model"], names()))
    kind = one_of("program", values["program"], KINDS)
    generation = one_of("log_generation", values["log_generation"], spec.log_generations)
    program = spec.program(kind, generation)
    shape = parse_shape(spec, values["shape"])
    config = Config(
        case=text("case", values["case"]),
        model=spec.name,
        program=kind,
        device=one_of("device", values["device"], ("cpu", "cuda")),
        seed=whole("seed", values["seed"], 0),
        layout=parse_layout(values["layout"]),
        micro_batch=whole("micro_batch", values["micro_batch"], 1),
        accumulation_steps=whole("accumulation_steps", values["accumulation_steps"], 1),
        precision=one_of("precision", values["precision"], ("fp32", "amp")),
        activation_checkpointing=flag("activation_checkpointing", values["activation_checkpointing"]),
        optimizer_sharding=one_of("optimizer_sharding", values["optimizer_sharding"], (0, 1, 2)),
        dropout=number("dropout", values["dropout"], 0.0, 0.999),
        iterations=whole("iterations", values["iterations"], 1),
        log_interval=whole("log_interval", values["log_interval"], 1),
        log_generation=generation,
        shape=shape,
        optimizer=parse_optimizer(spec, values["optimizer"]),
        schedule=parse_schedule(values["schedule"]),
        data=parse_data(spec, shape, values["data"]),
        output=text("output", values["output"]),
        label_smoothing=number("label_smoothing", values.get("label_smoothing", 0.0), 0.0, 0.999),
        loss_scale=number("loss_scale", values.get("loss_scale", program.loss_scale), 1.0, 2.0**30),
    )
    check_together(config)
    return config


def parse_layout(values: Any) -> Sizes:
    require_table("layout", values, Sizes)
    return Sizes(**{key: whole(f"layout.{key}", value, 1) for key, value in values.items()})


def parse_shape(spec: ModelSpec, values: Any) -> Shape:
    require_keys("shape", values, spec.shape_keys, (*spec.shape_keys, *spec.optional_shape))
    return Shape(**{**spec.optional_shape, **{key: whole(f"shape.{key}", value, 1) for key, value in values.items()}})


def parse_optimizer(spec: ModelSpec, values: Any) -> Optimizer:
    require_table("optimizer", values, Optimizer)
    betas = values.get("betas", [0.9, 0.999])
    if not isinstance(betas, list) or len(betas) != 2:
        raise ConfigError(f"optimizer.betas: {betas!r} is not a list of two numbers")
    clip_norm = values.get("clip_norm")
    return Optimizer(
        name=one_of("optimizer.name", values["name"], (spec.optimizer,)),
        lr=number("optimizer.lr", values["lr"], 0.0, 1e6),
        weight_decay=number("optimizer.weight_decay", values["weight_decay"], 0.0, 1e6),
        betas=(number("optimizer.betas", betas[0], 0.0, 0.999999), number("optimizer.betas", betas[1], 0.0, 0.999999)),
        eps=number("optimizer.eps", values.get("eps", 1e-8), 0.0, 1.0),
        momentum=number("optimizer.momentum", values.get("momentum", 0.0), 0.0, 0.999999),
        clip_norm=None if clip_norm is None else number("optimizer.clip_norm", clip_norm, 1e-12, 1e12),
    )


def parse_schedule(values: Any) -> Schedule:
    require_table("schedule", values, Schedule)
    kind = one_of("schedule.kind", values["kind"], ("constant", "cosine", "polynomial"))
    return Schedule(
        kind=kind,
        warmup_iterations=whole("schedule.warmup_iterations", values.get("warmup_iterations", 0), 0),
        decay_iterations=whole("schedule.decay_iterations", values.get("decay_iterations", 0), int(kind != "constant")),
        min_lr=number("schedule.min_lr", values.get("min_lr", 0.0), 0.0, 1e6),
        power=number("schedule.power", values.get("power", 1.0), 0.0, 100.0),
    )


def check_together(config: Config) -> None:
    """Reject combinations of individually valid values."""
    if config.log_interval > config.iterations:
        raise ConfigError(f"log_interval: {config.log_interval} is more than the {config.iterations} iterations")
    check_data(config.data, config.layout.world_size, config.layout.tensor, config.micro_batch)
    check_axes(config)
    check_options(config)
    if wrong := config.spec.check(vars(config.shape), asdict(config.layout)):
        raise ConfigError(wrong)


def check_axes(config: Config) -> None:
    """Reject a layout with a parallel axis that the model does not support."""
    for axis, part in (("pipeline", "stage"), ("tensor", "part")):
        size = getattr(config.layout, axis)
        if size > 1 and axis not in config.spec.axes:
            raise ConfigError(f"layout.{axis}: {config.model} runs with 1 {part} only, not {size}")


def check_options(config: Config) -> None:
    """Reject settings that the model's program does not support."""
    spec = config.spec
    for key in ("activation_checkpointing", "optimizer_sharding"):
        if getattr(config, key) and key not in spec.options:
            raise ConfigError(f"{key}: {config.model} does not have it, give 0 or false")
    divided = config.layout.tensor * config.layout.pipeline > 1
    if config.optimizer_sharding and divided and not config.choices.own_zero:
        raise ConfigError(
            f"optimizer_sharding: {config.optimizer_sharding}, but the {config.program} program shards the optimizer under"
            " data parallelism alone, as it was published; give 0"
        )
    if config.dropout and spec.regularisation != "dropout":
        raise ConfigError(f"dropout: {config.model} does not have it, give 0 or false")
    if config.optimizer.clip_norm is not None and "clip_norm" not in spec.options:
        raise ConfigError(f"optimizer.clip_norm: {config.model} trains without clipping, give null")
    if spec.batch_statistics and config.precision == "amp" and config.accumulation_steps > 1:
        raise ConfigError(
            f"accumulation_steps: {config.accumulation_steps}, but {config.model} under amp takes 1: OneFlow 0.8.0"
            " turns the running statistics that it repeats for each micro-step into half precision, which its batch"
            " normalisation does not take"
        )
