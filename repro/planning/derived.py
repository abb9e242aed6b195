"""Cases derived from published ones: on fewer ranks, in another precision, or with another number of iterations."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from repro.published.cases import Case, Layout
from repro.runs.failures import Failure
from repro.runs.plan import SkippedCase
from repro.runs.unit import TF32, Unit
from repro.utils.errors import PlanError
from repro.utils.i18n import N_

NO_PORT = N_("was measured with {framework}, whose program has no port here")
"""Why a case is not run; its figures are audited and shown."""


def with_port(cases: Sequence[Case]) -> tuple[list[Case], tuple[SkippedCase, ...]]:
    """The cases whose program can be run here, and the others as what a plan skips; PlanError if there are only others."""
    skipped = tuple(
        SkippedCase(case.name, Failure(NO_PORT, {"framework": case.framework})) for case in cases if not case.ported
    )
    if skipped and len(skipped) == len(cases):
        first = skipped[0]
        raise PlanError(
            f"none of these cases can be run: {first.case} {first.reason.text()}; `make audit` checks its figures"
        )
    return [case for case in cases if case.ported], skipped


def shrink(layout: Layout, processes: int) -> Layout:
    """The same kind of layout on at most `processes` ranks.

    The largest size is halved until the layout fits; among equal sizes, data parallel first, then tensor. On 4
    ranks 2x4x4 becomes 1x2x2, 8x1x4 becomes 2x1x2, 1x32x1 becomes 1x4x1.
    """
    sizes = [layout.data, layout.tensor, layout.pipeline]
    while math.prod(sizes) > processes:
        largest = sizes.index(max(sizes))
        sizes[largest] = math.ceil(sizes[largest] / 2)
    return Layout(*sizes)


def with_all_stages(layout: Layout, processes: int) -> Layout:
    """The same number of stages on at most `processes` ranks: 8x1x4 becomes 1x1x4 on 4."""
    stage = shrink(replace(layout, pipeline=1), processes // layout.pipeline)
    return replace(stage, pipeline=layout.pipeline)


def shrunk_case(case: Case, layout: Layout) -> Case:
    """A published case in a smaller layout: the work per rank stays the same, the global batch follows.

    With one data parallel rank the optimizer is not sharded.
    """
    return case.changed(
        name=f"{case.name}.as_{layout}",
        layout=layout,
        nodes=1,
        gpus_per_node=layout.world_size,
        global_batch=case.micro_batch * case.accumulation_steps * layout.data,
        optimizer_sharding=case.optimizer_sharding if layout.data > 1 else 0,
    )


def in_precision(case: Case, precision: str) -> Case:
    """The case in this precision, under a new name unless it was published in it."""
    if case.precision == precision:
        return case
    return case.changed(name=f"{case.name}.{precision}", precision=precision)


def trained_in(case: Case) -> str:
    """The precision that the trainer of a case computes in, "fp32" or "amp": it knows nothing of TF32."""
    return "fp32" if case.precision == TF32 else case.precision


def same_window(case: Case, iterations: int) -> bool:
    """Whether a case's rule covers the same iterations in a run of `iterations` as in one of the published length.

    Rules between two given rows are unaffected if the run ends after them. Rules over the last rows or over all rows
    depend on the run's length.
    """
    if iterations == case.iterations:
        return True
    return case.rule.same_rows and iterations >= case.rule.least_rows * case.log_interval


def with_iterations(case: Case, iterations: int) -> Case:
    """The case with this number of iterations: under its own name if the same iterations are measured.

    If there are too few iterations for the rule's rows, rows are printed more often.
    """
    name = case.name if same_window(case, iterations) else f"{case.name}.iter{iterations}"
    interval = min(case.log_interval, iterations // case.rule.least_rows)
    return case.changed(name=name, iterations=iterations, log_interval=interval)


def shrunk_cases(cases: Iterable[Case], gpus: int, sizes: Iterable[int]) -> list[tuple[Case, Case]]:
    """Pairs of a case that needs more than `gpus` GPUs and the same case on one of `sizes` GPUs.

    A data parallel case is also shrunk to one GPU, so that its scaling efficiency can be computed. A pipeline that fits
    with all its stages is also run with them, as its schedule and its idle share depend on their number.
    """
    pairs = []
    for case in cases:
        if case.layout.world_size > gpus:
            single = {1} if case.layout.data == case.layout.world_size else set()
            layouts = [shrink(case.layout, size) for size in sorted(single | set(sizes))]
            if 1 < case.layout.pipeline <= max(sizes):
                layouts.append(with_all_stages(case.layout, max(sizes)))
            pairs += [(case, shrunk_case(case, layout)) for layout in dict.fromkeys(layouts)]
    return pairs


def case_of(unit: Unit) -> Case | None:
    """The case that a unit runs, in its own layout and precision if it was derived from one.

    None for a baseline, and for TF32, which the performance model does not know.
    """
    case = None if unit.tf32 else unit.case
    if case and unit.derived_from:
        case = shrunk_case(case.changed(precision=unit.config.precision), unit.config.layout)
    return case
