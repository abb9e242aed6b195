"""What a trainer is told: the JSON configuration, its checks, and the sizes that follow from it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from repro.trainers.validators import ConfigError, flag, number, one_of, require_keys, require_table, text, whole

MODELS = ("gpt", "bert", "resnet50")
GENERATIONS = {"gpt": ("D", "E"), "bert": ("C",), "resnet50": ("A", "B")}
DATA_KINDS = {
    "gpt": ("synthetic", "megatron"),
    "bert": ("synthetic", "ofrecord"),
    "resnet50": ("synthetic", "ofrecord"),
}
OPTIMIZERS = {"gpt": "adamw", "bert": "adamw", "resnet50": "sgd"}


@dataclass(frozen=True)
class Sizes:
    """Numbers of parallel parts along the data, tensor and pipeline axes."""

    data: int
    tensor: int
    pipeline: int

    @property
    def world_size(self) -> int:
        return self.data * self.tensor * self.pipeline


@dataclass(frozen=True)
class Shape:
    """Sizes of the model and of a sample; those that a model does not have are 0."""

    seq_length: int = 0
    max_predictions: int = 0
    vocab_size: int = 0
    layers: int = 0
    hidden_size: int = 0
    attention_heads: int = 0
    image_size: int = 0
    classes: int = 0
    width: int = 64


SHAPE_KEYS = {
    "gpt": ("seq_length", "vocab_size", "layers", "hidden_size", "attention_heads"),
    "bert": ("seq_length", "max_predictions", "vocab_size", "layers", "hidden_size", "attention_heads"),
    "resnet50": ("image_size", "classes"),
}


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
    """Learning rate over iterations: a linear rise from 0, then the decay named by `kind`."""

    kind: str
    warmup_iterations: int = 0
    decay_iterations: int = 0
    min_lr: float = 0.0
    power: float = 1.0


@dataclass(frozen=True)
class Data:
    kind: str
    path: str = ""
    parts: int = 1
    prefix: str = ""


@dataclass(frozen=True)
class Config:
    """One training run.

    `micro_batch` is the samples of a data parallel rank and micro-step, `optimizer_sharding` the ZeRO stage, 0 for
    none. ResNet50 normalises each micro-batch of each rank by itself, so that one process with n accumulation steps
    is the reference for n data parallel ranks. `loss_scale` is the first one under AMP; it halves with each iteration
    whose gradients overflow, which is skipped.
    """

    case: str
    model: str
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
    def global_batch(self) -> int:
        """Samples an iteration, over all ranks and micro-steps."""
        return self.micro_batch * self.accumulation_steps * self.layout.data

    @property
    def padded_vocab_size(self) -> int:
        """Rows of the token embedding: whole rows for each tensor rank, for GPT in blocks of 128 as published."""
        block = self.layout.tensor * (128 if self.model == "gpt" else 1)
        return -(-self.shape.vocab_size // block) * block

    @property
    def half_gradients(self) -> bool:
        """Whether data parallel ranks add up gradients in half precision: under AMP, where weights are so anyway.

        Not on a mesh with tensor parallel ranks, which OneFlow compiles slowly, the more so the more operators there
        are. Nor where gradients are accumulated: they would travel after each micro-step instead of once.
        """
        return self.precision == "amp" and self.layout.tensor == 1 and self.accumulation_steps == 1


def load(path: str, parser: Callable[[dict], Config] | None = None) -> Config:
    """Read and check a configuration file, with `parse` unless another parser is given.

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
    model = one_of("model", values["model"], MODELS)
    config = Config(
        case=text("case", values["case"]),
        model=model,
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
        log_generation=one_of("log_generation", values["log_generation"], GENERATIONS[model]),
        shape=parse_shape(model, values["shape"]),
        optimizer=parse_optimizer(model, values["optimizer"]),
        schedule=parse_schedule(values["schedule"]),
        data=parse_data(model, values["data"]),
        output=text("output", values["output"]),
        label_smoothing=number("label_smoothing", values.get("label_smoothing", 0.0), 0.0, 0.999),
        loss_scale=number("loss_scale", values.get("loss_scale", Config.loss_scale), 1.0, 2.0**30),
    )
    check_together(config)
    return config


def parse_layout(values: object) -> Sizes:
    require_table("layout", values, Sizes)
    return Sizes(**{key: whole(f"layout.{key}", value, 1) for key, value in values.items()})


def parse_shape(model: str, values: object) -> Shape:
    allowed = SHAPE_KEYS[model] + (("width",) if model == "resnet50" else ())
    require_keys("shape", values, SHAPE_KEYS[model], allowed)
    return Shape(**{key: whole(f"shape.{key}", value, 1) for key, value in values.items()})


def parse_optimizer(model: str, values: object) -> Optimizer:
    require_table("optimizer", values, Optimizer)
    betas = values.get("betas", [0.9, 0.999])
    if not isinstance(betas, list) or len(betas) != 2:
        raise ConfigError(f"optimizer.betas: {betas!r} is not a list of two numbers")
    clip_norm = values.get("clip_norm")
    return Optimizer(
        name=one_of("optimizer.name", values["name"], (OPTIMIZERS[model],)),
        lr=number("optimizer.lr", values["lr"], 0.0, 1e6),
        weight_decay=number("optimizer.weight_decay", values["weight_decay"], 0.0, 1e6),
        betas=(number("optimizer.betas", betas[0], 0.0, 0.999999), number("optimizer.betas", betas[1], 0.0, 0.999999)),
        eps=number("optimizer.eps", values.get("eps", 1e-8), 0.0, 1.0),
        momentum=number("optimizer.momentum", values.get("momentum", 0.0), 0.0, 0.999999),
        clip_norm=None if clip_norm is None else number("optimizer.clip_norm", clip_norm, 1e-12, 1e12),
    )


def parse_schedule(values: object) -> Schedule:
    require_table("schedule", values, Schedule)
    kind = one_of("schedule.kind", values["kind"], ("constant", "cosine", "polynomial"))
    return Schedule(
        kind=kind,
        warmup_iterations=whole("schedule.warmup_iterations", values.get("warmup_iterations", 0), 0),
        decay_iterations=whole("schedule.decay_iterations", values.get("decay_iterations", 0), int(kind != "constant")),
        min_lr=number("schedule.min_lr", values.get("min_lr", 0.0), 0.0, 1e6),
        power=number("schedule.power", values.get("power", 1.0), 0.0, 100.0),
    )


def parse_data(model: str, values: object) -> Data:
    required = {"synthetic": ("kind",), "ofrecord": ("kind", "path", "parts"), "megatron": ("kind", "prefix")}
    if not isinstance(values, dict) or "kind" not in values:
        raise ConfigError("data.kind: missing")
    kind = one_of("data.kind", values["kind"], DATA_KINDS[model])
    require_keys("data", values, required[kind], required[kind])
    if kind == "ofrecord":
        return Data(kind, path=text("data.path", values["path"]), parts=whole("data.parts", values["parts"], 1))
    if kind == "megatron":
        return Data(kind, prefix=text("data.prefix", values["prefix"]))
    return Data(kind)


def check_together(config: Config) -> None:
    """Reject values that are right alone but not together."""
    sizes, shape = config.layout, config.shape
    if config.log_interval > config.iterations:
        raise ConfigError(f"log_interval: {config.log_interval} is more than the {config.iterations} iterations")
    check_data(config)
    if config.model != "gpt" and sizes.pipeline > 1:
        raise ConfigError(f"layout.pipeline: {config.model} runs with 1 stage only, not {sizes.pipeline}")
    if config.model == "resnet50":
        check_resnet(config)
        return
    if shape.hidden_size % shape.attention_heads:
        raise ConfigError(f"shape.attention_heads: {shape.attention_heads} heads do not divide hidden_size")
    if shape.attention_heads % sizes.tensor:
        raise ConfigError(f"layout.tensor: {sizes.tensor} does not divide {shape.attention_heads} attention heads")
    if sizes.pipeline > shape.layers:
        raise ConfigError(f"layout.pipeline: {sizes.pipeline} stages for {shape.layers} layers")
    if config.model == "bert" and shape.max_predictions >= shape.seq_length:
        raise ConfigError(f"shape.max_predictions: {shape.max_predictions} do not fit seq_length {shape.seq_length}")


def check_data(config: Config) -> None:
    """Reject files that are not there, and part files that cannot be dealt over the ranks."""
    data, sizes = config.data, config.layout
    if data.kind == "megatron":
        for name in (f"{data.prefix}.idx", f"{data.prefix}.bin"):
            if not Path(name).is_file():
                raise ConfigError(f"data.prefix: there is no file {name}")
    if data.kind != "ofrecord":
        return
    for name in (f"part-{part:05d}" for part in range(data.parts)):
        if not (Path(data.path) / name).is_file():
            raise ConfigError(f"data.path: there is no file {Path(data.path) / name}")
    if data.parts < sizes.world_size:
        raise ConfigError(f"data.parts: {data.parts} cannot be dealt to {sizes.world_size} ranks")
    if config.micro_batch % sizes.tensor:
        raise ConfigError(f"micro_batch: {config.micro_batch} records cannot be dealt to {sizes.tensor} tensor ranks")


def check_resnet(config: Config) -> None:
    if config.layout.tensor > 1:
        raise ConfigError(f"layout.tensor: resnet50 runs with 1 part only, not {config.layout.tensor}")
    for key in ("activation_checkpointing", "optimizer_sharding", "dropout"):
        if getattr(config, key):
            raise ConfigError(f"{key}: resnet50 does not have it, give 0 or false")
    if config.optimizer.clip_norm is not None:
        raise ConfigError("optimizer.clip_norm: resnet50 trains without clipping, give null")
    if config.precision == "amp" and config.accumulation_steps > 1:
        raise ConfigError(
            f"accumulation_steps: {config.accumulation_steps}, but resnet50 under amp takes 1: OneFlow 0.8.0 turns the"
            " running statistics that it repeats for each micro-step into half precision, which its batch normalisation"
            " does not take"
        )
