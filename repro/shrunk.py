"""Cases derived from published ones: on fewer ranks than they were published with, or in another precision."""

import math
from collections.abc import Iterable
from dataclasses import replace

from repro.cases import Case, Layout


def shrink(layout: Layout, processes: int) -> Layout:
    """The same kind of layout on at most `processes` ranks.

    The largest size is halved until it fits, data parallel before tensor before pipeline where they are equal:
    on 4 ranks 2x4x4 becomes 1x2x2, 8x1x4 becomes 2x1x2, 1x32x1 becomes 1x4x1.
    """
    sizes = [layout.data, layout.tensor, layout.pipeline]
    while math.prod(sizes) > processes:
        largest = sizes.index(max(sizes))
        sizes[largest] = math.ceil(sizes[largest] / 2)
    return Layout(*sizes)


def shrunk_case(case: Case, layout: Layout) -> Case:
    """A published case in a smaller layout: each rank's work stays, the global batch follows.

    On one data parallel rank there is nothing to shard the optimizer over, so it is not.
    """
    return replace(
        case,
        name=f"{case.name}.as_{layout}",
        layout=layout,
        nodes=1,
        gpus_per_node=layout.world_size,
        global_batch=case.micro_batch * case.accumulation_steps * layout.data,
        optimizer_sharding=case.optimizer_sharding if layout.data > 1 else 0,
    )


def in_precision(case: Case, precision: str) -> Case:
    """A case in the precision that is asked for; itself if that is its own."""
    if case.precision == precision:
        return case
    return replace(case, name=f"{case.name}.{precision}", precision=precision)


def origin(case: Case) -> str:
    """The name of the published case that `in_precision` began with."""
    return case.name.removesuffix(f".{case.precision}")


def shrunk_cases(cases: Iterable[Case], gpus: int, sizes: Iterable[int]) -> list[tuple[Case, Case]]:
    """Pairs of a case that needs more than `gpus` and the same case on one of `sizes` GPUs.

    A data parallel case comes on one GPU too, so that its scaling can be told.
    """
    found = []
    for case in cases:
        if case.layout.world_size > gpus:
            alone = {1} if case.layout.data == case.layout.world_size else set()
            layouts = dict.fromkeys(shrink(case.layout, size) for size in sorted(alone | set(sizes)))
            found += [(case, shrunk_case(case, layout)) for layout in layouts]
    return found
