"""The operators whose kernels OneFlow 0.8.0 no longer has, in the shapes of the published cases."""

from __future__ import annotations

from collections.abc import Iterable

from repro.models.past import Subject, Use, Work, uses
from repro.models.registry import spec_of
from repro.published.cases import Case


def uses_of(case: Case) -> tuple[Use, ...]:
    """What a GPU calls in an iteration of a case; of a pipeline, the GPU of a middle stage."""
    vocabulary = case.shape.get("vocab_size", 0)
    padded = spec_of(case.model).padded_vocab_size(vocabulary, case.layout.tensor)
    return uses(
        case.report,
        Work(
            {**case.shape, "vocab_size": padded},
            case.micro_batch,
            times=case.accumulation_steps,
            pipeline=case.layout.pipeline,
            recomputes=case.activation_checkpointing,
        ),
    )


def subjects(cases: Iterable[Case]) -> list[Subject]:
    """Every operator that these cases call, once."""
    return list(dict.fromkeys(use.subject for case in cases for use in uses_of(case)))
