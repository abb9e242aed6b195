"""Work of a job's ranks, by the terms of its model.

The terms are a module of this package named after the model. It has `stages` (work and memory of each pipeline stage)
and two closed formulas from publications for comparison with the performance model: `flops` and `memory`.
"""

from __future__ import annotations

from functools import lru_cache

from repro.models.registry import module_of
from repro.perfmodel.work import ModelJob, Stage


@lru_cache
def stages(job: ModelJob) -> tuple[Stage, ...]:
    """The stages of a job's pipeline, first to last; ValueError if its layers cannot be divided."""
    return module_of("repro.perfmodel", job.model).stages(job)


def flops(job: ModelJob) -> float:
    """Floating-point operations of an iteration over all ranks, by the model's closed formula."""
    return module_of("repro.perfmodel", job.model).flops(job)


def closed_memory(job: ModelJob) -> tuple[float, float]:
    """Parameters of a rank, and bytes of its activations, by the model's closed formulas."""
    return module_of("repro.perfmodel", job.model).memory(job)
