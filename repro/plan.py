"""Turns published cases into what is run here: the published shapes on GPUs, or tiny ones with the same layouts."""

import math
from dataclasses import asdict, dataclass, replace

from repro.cases import Case, Layout
from repro.locales import N_

SMOKE_PROCESSES = 4
SMOKE_GLOBAL_BATCH = 8
SMOKE_ROWS = 10
SMOKE_ACCUMULATION = 2
SEED = 12345
SMOKE_SHAPES = {
    "gpt": {"seq_length": 32, "vocab_size": 512, "layers": 2, "hidden_size": 64, "attention_heads": 4},
    "bert": {"seq_length": 32, "max_predictions": 4, "vocab_size": 512, "layers": 2, "hidden_size": 64,
             "attention_heads": 4},
    "resnet50": {"image_size": 32, "classes": 100, "width": 8},
}  # fmt: skip
PARITY_ITERATIONS = 5
PARITY_TOLERANCE = 1e-4


class PlanError(Exception):
    """Nothing can be run as asked; the message says why and what to do."""


@dataclass(frozen=True)
class Unit:
    """One configuration to run, `repeats` times. `config` is what the trainer gets, less its output folder.

    `stands_for` names the published cases it is run for: one at the published scale; at the smoke scale all
    that shrink to the same configuration, none if it is only the reference for parity. `reference` is the unit
    whose losses this one's must equal.
    """

    name: str
    model: str
    config: dict
    rule: dict
    global_batch: int
    stands_for: tuple[str, ...] = ()
    reference: str | None = None

    @property
    def world_size(self) -> int:
        return math.prod(self.config["layout"].values())

    @property
    def cost(self) -> int:
        """A rough order of how long it takes, for running short ones first."""
        return self.world_size * (2 if self.config["layout"]["pipeline"] > 1 else 1)

    @classmethod
    def from_json(cls, content: dict) -> "Unit":
        return cls(**{**content, "stands_for": tuple(content["stands_for"])})


@dataclass(frozen=True)
class Plan:
    """The units of a run in their order, and the cases left out with the reason for each."""

    scale: str
    device: str
    repeats: int
    units: tuple[Unit, ...]
    skipped: tuple[dict, ...] = ()

    def as_json(self) -> dict:
        return asdict(self)

    @classmethod
    def from_json(cls, content: dict) -> "Plan":
        return cls(**{**content, "units": tuple(Unit.from_json(unit) for unit in content["units"]),
                      "skipped": tuple(content["skipped"])})  # fmt: skip


def make_plan(cases: list[Case], gpus: int, scale: str | None = None, repeats: int | None = None) -> Plan:
    """Plan a run of `cases` on this machine.

    Parameters
    ----------
    cases : the chosen cases, of one model or several.
    gpus : how many GPUs may be used here.
    scale : "published" or "smoke"; without it, published if there is a GPU.
    repeats : how often each case is run; without it, as published (7 where a median of 7 is), at the smoke scale 2.

    Raises
    ------
    PlanError
        The scale is unknown or needs GPUs that are not here, `repeats` is not a positive number, or no case fits.
    """
    scale = scale or ("published" if gpus else "smoke")
    if scale not in ("smoke", "published"):
        raise PlanError(f"SCALE={scale}: it is smoke or published")
    if repeats is not None and repeats < 1:
        raise PlanError(f"REPEATS={repeats}: it is a whole number from 1 on")
    if scale == "smoke":
        return Plan("smoke", "cpu", repeats or 2, _smoke_units(cases))
    if not gpus:
        raise PlanError("SCALE=published needs a GPU, and nvidia-smi shows none here; SCALE=smoke runs on any machine")
    fitting = [case for case in cases if case.layout.world_size <= gpus]
    skipped = [_skip(case, gpus) for case in cases if case.layout.world_size > gpus]
    if not fitting:
        smallest = min(case.layout.world_size for case in cases)
        raise PlanError(f"none of these cases fits on {gpus} GPUs: the smallest needs {smallest}")
    repeats = repeats or max(case.rule.repeats for case in fitting)
    units = sorted((_published_unit(case) for case in fitting), key=lambda unit: unit.cost)
    return Plan("published", "cuda", repeats, tuple(units), tuple(skipped))


def _skip(case: Case, gpus: int) -> dict:
    return {"case": case.name, "model": case.model, "message": N_("needs {needed} GPUs, {present} are here"),
            "values": {"needed": case.layout.world_size, "present": gpus}}  # fmt: skip


def shrink(layout: Layout, processes: int = SMOKE_PROCESSES) -> Layout:
    """The same kind of layout on at most `processes` ranks.

    The largest size is halved until it fits, data parallel before tensor before pipeline where they are equal:
    2x4x4 becomes 1x2x2, 8x1x4 becomes 2x1x2, 1x32x1 becomes 1x4x1.
    """
    sizes = [layout.data, layout.tensor, layout.pipeline]
    while math.prod(sizes) > processes:
        largest = sizes.index(max(sizes))
        sizes[largest] = math.ceil(sizes[largest] / 2)
    return Layout(*sizes)


def config_of(case: Case, device: str) -> dict:
    """What the trainer is told to run a case in its published shape."""
    training = case.training
    return {
        "model": case.model,
        "device": device,
        "seed": SEED,
        "layout": asdict(case.layout),
        "micro_batch": case.micro_batch,
        "accumulation_steps": case.accumulation_steps,
        "precision": case.precision,
        "activation_checkpointing": case.activation_checkpointing,
        "optimizer_sharding": case.optimizer_sharding,
        "dropout": training.get("dropout", 0.0),
        "iterations": case.iterations,
        "log_interval": case.log_interval,
        "log_generation": case.log_generation,
        "shape": dict(case.shape),
        "optimizer": dict(training["optimizer"]),
        "schedule": dict(training["schedule"]),
        "label_smoothing": training.get("label_smoothing", 0.0),
        "data": {"kind": "synthetic"},
    }


def _published_unit(case: Case) -> Unit:
    config = {"case": case.name, **config_of(case, "cuda")}
    return Unit(case.name, case.model, config, asdict(case.rule), case.global_batch, (case.name,))


def _smoke_config(case: Case, layout: Layout) -> dict:
    """A tiny shape with the case's kind of layout, in fp32 and without dropout so that losses can be compared.

    The global batch is the same for all, so that every layout must print the losses of one process. Iterations
    and print interval shrink together: one printed row is one iteration, and the published rule still applies.
    """
    config = config_of(case, "cpu")
    accumulation = SMOKE_ACCUMULATION if case.accumulation_steps > 1 else 1
    rows = min(case.iterations // case.log_interval, SMOKE_ROWS)
    schedule = {**config["schedule"], "warmup_iterations": min(1, config["schedule"].get("warmup_iterations", 0)),
                "decay_iterations": rows}  # fmt: skip
    return {
        **config,
        "layout": asdict(layout),
        "micro_batch": SMOKE_GLOBAL_BATCH // (layout.data * accumulation),
        "accumulation_steps": accumulation,
        "precision": "fp32",
        "dropout": 0.0,
        "iterations": rows,
        "log_interval": 1,
        "shape": SMOKE_SHAPES[case.model],
        "schedule": schedule,
    }


def _smoke_units(cases: list[Case]) -> tuple[Unit, ...]:
    units: dict[str, Unit] = {}
    for case in cases:
        config = _smoke_config(case, shrink(case.layout))
        reference = _reference(config)
        for candidate, stands_for in ((reference, ()), (config, (case.name,))):
            name = _smoke_name(case, candidate)
            unit = units.get(name) or _smoke_unit(name, case, candidate)
            units[name] = replace(unit, stands_for=unit.stands_for + stands_for)
        if reference != config:
            units[name] = replace(units[name], reference=_smoke_name(case, reference))
    return tuple(sorted(units.values(), key=lambda unit: (unit.reference is not None, unit.cost)))


def _smoke_unit(name: str, case: Case, config: dict) -> Unit:
    return Unit(name, case.model, {"case": name, **config}, asdict(case.rule), SMOKE_GLOBAL_BATCH)


def _reference(config: dict) -> dict:
    """The same training on one process.

    BatchNorm's statistics are those of a shard, so a ResNet50 on several ranks is compared with one process that
    takes each rank's shard as a micro-step of its own and averages their gradients.
    """
    shards = config["layout"]["data"] if config["model"] == "resnet50" else 1
    return {
        **config,
        "layout": {"data": 1, "tensor": 1, "pipeline": 1},
        "micro_batch": SMOKE_GLOBAL_BATCH // shards,
        "accumulation_steps": shards,
        "optimizer_sharding": 0,
        "activation_checkpointing": False,
    }


def _smoke_name(case: Case, config: dict) -> str:
    """A name that says all in which one smoke configuration differs from another of its report's."""
    layout = config["layout"]
    parts = ["smoke", case.report, f"{layout['data']}x{layout['tensor']}x{layout['pipeline']}"]
    if config["accumulation_steps"] > 1:
        parts.append(f"acc{config['accumulation_steps']}")
    if config["activation_checkpointing"]:
        parts.append("recompute")
    if config["optimizer_sharding"]:
        parts.append(f"zero{config['optimizer_sharding']}")
    return "_".join(parts)
