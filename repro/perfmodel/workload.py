"""What a job asks of its ranks, by the terms of its model.

The terms are a module of this package with the model's name. It has `stages`, what each stage of the pipeline does and
holds, and two closed formulas as publications give them, with which the performance model is compared: `flops` and
`memory`.
"""

from __future__ import annotations

from repro.models.registry import module_of
from repro.perfmodel.work import Job, Stage


def stages(job: Job) -> tuple[Stage, ...]:
    """The stages of a job's pipeline, first to last; ValueError if its layers cannot be divided."""
    return module_of("repro.perfmodel", job.model).stages(job)


def flops(job: Job) -> float:
    """Floating-point operations of an iteration over all ranks, by the model's closed formula."""
    return module_of("repro.perfmodel", job.model).flops(job)


def closed_memory(job: Job) -> tuple[float, float]:
    """Parameters of a rank, and bytes of its activations, by the model's closed formulas."""
    return module_of("repro.perfmodel", job.model).memory(job)
