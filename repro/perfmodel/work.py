"""Work and memory of one rank for one micro-batch, in FLOPs and bytes, independent of hardware."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from repro.published.cases import Case, Layout

PUBLISHED_PROGRAM, TUNED_PROGRAM = "published", "tuned"
"""The two OneFlow programs: the published one, and the one tuned for newer GPUs."""


@dataclass(frozen=True)
class ModelJob:
    """A training configuration as the model sees it.

    `fused` says that the program fuses bias, dropout, mask and softmax into single kernels and keeps logits once: the
    published GPT trainer of 2021 and the tuned program do, the published trainers of 2020 do not. It has no default,
    so that one training by one program has one prediction wherever it is asked for.
    """

    model: str
    shape: tuple[tuple[str, int], ...]
    layout: Layout
    micro_batch: int
    accumulation_steps: int = 1
    precision: str = "amp"
    activation_checkpointing: bool = False
    optimizer_sharding: int = 0
    optimizer: str = "adamw"
    fused: bool = field(kw_only=True)

    @classmethod
    def of(cls, case: Case, program: str = PUBLISHED_PROGRAM) -> ModelJob:
        """The job of a case of the catalogue by one of the programs."""
        return cls(
            model=case.model,
            shape=tuple(sorted(case.shape.items())),
            layout=case.layout,
            micro_batch=case.micro_batch,
            accumulation_steps=case.accumulation_steps,
            precision=case.precision,
            activation_checkpointing=case.activation_checkpointing,
            optimizer_sharding=case.optimizer_sharding,
            optimizer=case.training["optimizer"]["name"],
            fused=program == TUNED_PROGRAM or case.fused,
        )

    @property
    def global_batch(self) -> int:
        return self.micro_batch * self.layout.data * self.accumulation_steps

    @property
    def element_bytes(self) -> int:
        """Bytes of an activation: half precision under mixed precision."""
        return 2 if self.precision == "amp" else 4


@dataclass(frozen=True)
class KernelWork:
    """Work of a rank by kind of kernel: FLOPs of products, bytes that each kind moves, and the count of kernels."""

    matrix_flops: float = 0.0
    matrix_bytes: float = 0.0
    attention_flops: float = 0.0
    attention_bytes: float = 0.0
    element_bytes: float = 0.0
    kernels: float = 0.0

    def __add__(self, other: KernelWork) -> KernelWork:
        return KernelWork(*(getattr(self, f) + getattr(other, f) for f in _FIELDS))

    def __mul__(self, factor: float) -> KernelWork:
        return KernelWork(*(getattr(self, f) * factor for f in _FIELDS))


_FIELDS = tuple(field.name for field in fields(KernelWork))


@dataclass(frozen=True)
class Stage:
    """Work and memory of one rank of a pipeline stage for a micro-batch.

    parameters: parameters on the rank; late_parameters: those of them whose gradient is complete only when the
    backward pass ends (the embedding tied to the output); tensors: how many parameter tensors the optimizer visits;
    all_reduces, all_reduce_bytes: tensor-parallel all-reduces of a micro-batch and the bytes of each;
    kept_bytes: activations kept from forward to backward; layer_bytes: alive only while one layer is recomputed;
    head_bytes: alive only at the loss; sent_bytes: activations of a micro-batch that go on to the next stage.
    """

    forward: KernelWork
    backward: KernelWork
    recompute: KernelWork
    parameters: float
    late_parameters: float
    tensors: int
    kept_bytes: float
    all_reduces: float = 0.0
    all_reduce_bytes: float = 0.0
    layer_bytes: float = 0.0
    head_bytes: float = 0.0
    sent_bytes: float = 0.0


def state_bytes(job: ModelJob, parameters: float) -> float:
    """Bytes of parameters, gradients and optimizer state of a rank.

    Adam in fp32: 4 parameter + 4 gradient + 8 moments; SGD with momentum 4 less. Under mixed precision 2 + 2 more
    for the half copies (Rajbhandari et al., ZeRO, 2020, section 3.1: 16 bytes, gradients in half precision); where
    nothing is fused the gradient is cast to 4 bytes too. Sharding (ZeRO-1) leaves 1/d of all but the half copies.
    """
    shard = job.layout.data if job.optimizer_sharding else 1
    whole = 12 if job.optimizer == "adamw" else 8
    if job.precision == "fp32":
        return parameters * (4 + whole / shard)
    return parameters * (4 + (whole + (0 if job.fused else 4)) / shard)


def update_work(job: ModelJob, stage: Stage) -> KernelWork:
    """The optimizer's step: bytes that norm, clipping and update move, and its kernels.

    Adam reads and writes parameter and two moments (24 bytes), SGD parameter and momentum (16); a gradient is read
    for its norm and for the update, and scaled in between unless that is fused; mixed precision adds the casts. Every
    tensor's collectives are operators of their own, even where NCCL joins them: one to sum, or two around a
    shard. Flat parameters (`docker/sharding`), which join them, are not modelled.
    """
    gradient = 2 if job.precision == "amp" and job.fused else 4
    moved = (24 if job.optimizer == "adamw" else 16) + 2 * gradient + (0 if job.fused else 2 * gradient)
    if job.precision == "amp":
        moved += 2 if job.fused else 6 + 6
    shard = job.layout.data if job.optimizer_sharding else 1
    collectives = 0 if job.layout.data == 1 else 2 if job.optimizer_sharding else 1
    kernels_per_tensor = (3 if job.fused else 6) + collectives
    return KernelWork(element_bytes=moved * stage.parameters / shard, kernels=kernels_per_tensor * stage.tensors)
