"""Memory of a rank: state, activations, communication, and the software's own needs."""

from __future__ import annotations

from dataclasses import dataclass

from repro.perfmodel.constants import Constants
from repro.perfmodel.work import ModelJob, Stage, state_bytes

MIB = 2**20


@dataclass(frozen=True)
class Memory:
    """Memory of the fullest rank by purpose, in MiB."""

    state_mib: float
    activations_mib: float
    communication_mib: float
    context_mib: float

    @property
    def total_mib(self) -> float:
        return self.state_mib + self.activations_mib + self.communication_mib + self.context_mib


def stage_memories(job: ModelJob, stages: tuple[Stage, ...], constants: Constants) -> tuple[Memory, ...]:
    """The memory of a rank of each pipeline stage, the first stage first."""
    return tuple(_of_stage(job, stage, constants) for stage in stages)


def memory(job: ModelJob, stages: tuple[Stage, ...], constants: Constants) -> Memory:
    """The memory of the stage that needs most."""
    parts = (_of_stage(job, stage, constants) for stage in stages[:1] + stages[1:-1][:1] + stages[1:][-1:])
    return max(parts, key=lambda part: part.total_mib)


def _of_stage(job: ModelJob, stage: Stage, constants: Constants) -> Memory:
    ranks = job.layout.world_size
    communication = reduced_bytes(job, stage) / MIB if job.layout.data > 1 else 0.0
    return Memory(
        state_mib=(state_bytes(job, stage.parameters) + _accumulated(job, stage)) / MIB,
        activations_mib=activation_bytes(job, stage) / MIB,
        communication_mib=communication + (constants.communicator_mib if ranks > 1 else 0.0),
        context_mib=constants.context_mib,
    )


def activation_bytes(job: ModelJob, stage: Stage) -> float:
    """What is kept for the backward pass, and what else is alive at the worst moment.

    A pipeline keeps up to 2p micro-batches: OneFlow's PipelineBufferPass gives every tensor that goes from forward to
    backward that many buffers. In one stage the logits and a recomputed layer are never alive together; in a pipeline
    the forward and the backward pass of different micro-batches are, each with its own.
    """
    depth = job.layout.pipeline
    if depth == 1:
        alive = max(stage.layer_bytes, stage.head_bytes) if job.activation_checkpointing else stage.head_bytes
        return stage.kept_bytes + alive
    in_flight = min(2 * depth, job.accumulation_steps)
    return in_flight * stage.kept_bytes + 2 * stage.layer_bytes + stage.head_bytes


def reduced_bytes(job: ModelJob, stage: Stage) -> float:
    """Gradients of a rank as they are summed over the data-parallel ranks, in the precision of the activations.

    Under mixed precision OneFlow sums before it widens (its pass DoParallelCastBeforeWideningTypeCast).
    """
    return job.element_bytes * stage.parameters


def _accumulated(job: ModelJob, stage: Stage) -> float:
    return job.element_bytes * stage.parameters if job.accumulation_steps > 1 else 0.0
