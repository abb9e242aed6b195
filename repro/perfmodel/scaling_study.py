"""GPT from 8 to 8,192 GPUs on described networks: the quickest layout at each size, by the model alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from repro.perfmodel.constants import Calibration
from repro.perfmodel.hardware import describe
from repro.perfmodel.layout_search import Candidate, search, shape_of

SIZES = tuple(2**power for power in range(3, 14))
NODES = ("v100-16-edr", "dgx-v100-32", "dgx-a100-80", "dgx-h100")
SHAPE = "2304x24"  # the largest published shape that trains on 8 V100s
WEAK_BATCH = 4  # sequences a GPU
STRONG_BATCH = 8192  # sequences in all


@dataclass(frozen=True)
class Point:
    """The best layout for a number of GPUs; None where nothing fits."""

    gpus: int
    best: Candidate | None


@dataclass(frozen=True)
class Study:
    """The points of each kind of node, with the global batch growing with the GPUs (weak) or fixed (strong)."""

    weak: dict[str, tuple[Point, ...]]
    strong: dict[str, tuple[Point, ...]]


def study(calibration: Calibration) -> Study:
    """Both studies on all kinds of nodes."""
    weak = {node: _points(node, calibration, lambda gpus: WEAK_BATCH * gpus) for node in NODES}
    strong = {node: _points(node, calibration, lambda gpus: STRONG_BATCH) for node in NODES}
    return Study(weak, strong)


def _points(node: str, calibration: Calibration, batch: Callable[[int], int]) -> tuple[Point, ...]:
    return tuple(Point(gpus, _best(f"{node}x{gpus // 8}", batch(gpus), calibration)) for gpus in SIZES)


def _best(cluster: str, batch: int, calibration: Calibration) -> Candidate | None:
    return next(iter(search(shape_of(SHAPE), describe(cluster), batch, calibration)), None)
