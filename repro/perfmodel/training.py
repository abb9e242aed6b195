"""Which published cases the constants are fitted on, and which trainings are of one family."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from repro.published.cases import Case, load_catalogue


def training_cases(cases: Iterable[Case]) -> list[Case]:
    """The few cases that the constants are fitted on.

    Those on one GPU, and those that are data-parallel over several nodes, without optimizer sharding; of several
    batch sizes of one model in one report, only the first.
    """
    first: dict[tuple, int] = {}
    chosen = []
    for case in cases:
        layout = case.layout
        plain = layout.tensor == layout.pipeline == 1 and not case.optimizer_sharding
        if plain and (layout.world_size == 1 or case.nodes > 1):
            key = (case.report, tuple(sorted(case.shape.items())))
            if first.setdefault(key, case.micro_batch) == case.micro_batch:
                chosen.append(case)
    return chosen


def kind_of(case: Case) -> str:
    """The kind of case for error statistics: pipeline, tensor, sharded, data, or untrained.

    "data" is plain data parallelism with a shape and precision of the training cases, "untrained" with any other.
    """
    if case.layout.pipeline > 1:
        return "pipeline"
    if case.layout.tensor > 1:
        return "tensor"
    if case.optimizer_sharding:
        return "sharded"
    return "data" if training_of(case) in _trained() else "untrained"


def training_of(case: Case) -> tuple:
    """Model, shape and precision, in which a case and the training case nearest to it are alike."""
    return case.model, tuple(sorted(case.shape.items())), case.precision


@cache
def _trained() -> frozenset[tuple]:
    return frozenset(training_of(case) for case in training_cases(load_catalogue().ported))
