"""The trainer's configuration of a case: in its published shape, or in a tiny one with the same kind of layout."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from repro.models.programs import PUBLISHED
from repro.models.registry import spec_of
from repro.models.spec import ModelSpec, SmallTraining
from repro.planning.derived import trained_in
from repro.published.cases import Case, Layout
from repro.published.trainer_config import SYNTHETIC, TrainerConfig, TrainingData

SMOKE_PROCESSES = 4
SMOKE_GLOBAL_BATCH = 8
SMOKE_ROWS = 10
SMOKE_ACCUMULATION = 2
SEED = 12345
SINGLE = Layout()


def config_of(case: Case, device: str) -> TrainerConfig:
    """The trainer's configuration of a case in its published shape."""
    training = case.training
    return TrainerConfig(
        case=case.name,
        model=case.model,
        program=PUBLISHED,
        device=device,
        seed=SEED,
        layout=case.layout,
        micro_batch=case.micro_batch,
        accumulation_steps=case.accumulation_steps,
        precision=trained_in(case),
        activation_checkpointing=case.activation_checkpointing,
        optimizer_sharding=case.optimizer_sharding,
        dropout=training.get("dropout", 0.0),
        iterations=case.iterations,
        log_interval=case.log_interval,
        log_generation=case.log_generation,
        shape=dict(case.shape),
        optimizer=dict(training["optimizer"]),
        schedule=dict(training["schedule"]),
        label_smoothing=training.get("label_smoothing", 0.0),
        data=TrainingData(SYNTHETIC),
    )


def smoke_config(case: Case, layout: Layout) -> TrainerConfig:
    """A tiny shape with the case's kind of layout, in fp32 and without dropout so that losses can be compared.

    The global batch is the same for all, so that every layout must print the losses of one process. Iterations
    and print interval shrink together: one printed row is one iteration, and the published rule still applies.
    """
    config = config_of(case, "cpu")
    accumulation = SMOKE_ACCUMULATION if case.accumulation_steps > 1 else 1
    rows = min(case.iterations // case.log_interval, SMOKE_ROWS)
    schedule = {
        **config.schedule,
        "warmup_iterations": min(1, config.schedule.get("warmup_iterations", 0)),
        "decay_iterations": rows,
    }
    return replace(
        config,
        layout=layout,
        micro_batch=SMOKE_GLOBAL_BATCH // (layout.data * accumulation),
        accumulation_steps=accumulation,
        precision="fp32",
        dropout=0.0,
        iterations=rows,
        log_interval=1,
        shape=dict(spec_of(case.model).smoke_shape),
        schedule=schedule,
    )


def small_config(
    spec: ModelSpec,
    training: SmallTraining,
    optimizer: Mapping[str, Any],
    *,
    name: str,
    device: str,
    precision: str,
    iterations: int,
    warmup_iterations: int,
    min_lr: float,
    layout: Layout = SINGLE,
    accumulation_steps: int = 1,
    **more: Any,
) -> TrainerConfig:
    """A short training for checks with the port of a model's newest report, which prints every iteration.

    It has no dropout, and neither sharding nor recomputation. `optimizer` is without its learning rate; `more` are further
    values of the configuration.
    """
    return TrainerConfig(
        case=name,
        model=spec.name,
        program=PUBLISHED,
        device=device,
        seed=SEED,
        layout=layout,
        micro_batch=training.global_batch // (layout.data * accumulation_steps),
        accumulation_steps=accumulation_steps,
        precision=precision,
        activation_checkpointing=False,
        optimizer_sharding=0,
        dropout=0.0,
        iterations=iterations,
        log_interval=1,
        log_generation=spec.log_generation,
        shape=dict(training.shape),
        optimizer={**optimizer, "lr": training.lr},
        schedule={
            "kind": "cosine",
            "warmup_iterations": warmup_iterations,
            "decay_iterations": iterations,
            "min_lr": min_lr,
        },
        **more,
    )


def reference_config(config: TrainerConfig) -> TrainerConfig:
    """The same training on one process.

    Batch normalisation uses the statistics of a shard, so a model with batch normalisation on several ranks is compared
    with one process that treats each rank's shard as a separate micro-step and averages their gradients.
    """
    shards = config.layout.data if spec_of(config.model).batch_statistics else 1
    return replace(
        config,
        layout=Layout(),
        micro_batch=SMOKE_GLOBAL_BATCH // shards,
        accumulation_steps=shards,
        optimizer_sharding=0,
        activation_checkpointing=False,
    )


def smoke_name(case: Case, config: TrainerConfig) -> str:
    """A name with everything that distinguishes one smoke configuration from the others of the same report."""
    parts = ["smoke", case.report, str(config.layout)]
    if config.accumulation_steps > 1:
        parts.append(f"acc{config.accumulation_steps}")
    if config.activation_checkpointing:
        parts.append("recompute")
    if config.optimizer_sharding:
        parts.append(f"zero{config.optimizer_sharding}")
    return "_".join(parts)
