"""Whether the backward pass of fused attention drops the weights that the forward pass dropped.

Neither pass stores which weights it dropped: both draw them from the same seed. Contexts are linear in the values, so
for any incoming gradient, contexts times it and values times their own gradient have the same sum per sample and head,
unless the passes drop different weights.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np
import oneflow as flow

from repro.models.gpt import SPEC
from repro.models.programs import TUNED
from repro.trainers.checks.one_step import in_a_graph, inputs_of, on_host
from repro.trainers.layout import BROADCAST
from repro.trainers.models.gpt import COMPARED
from repro.trainers.models.operators import HALF, SINGLE, Input, Operator
from repro.trainers.tuning.attention import HEAD, attend, fusing, loaded

DROPPED = 0.1
TOLERANCE = 0.05
"""On an H100 rounding to half precision made 5e-4; passes that drop different tenths make about 0.45, by estimate."""


@dataclass(frozen=True)
class Dropping(Operator):
    """An operator on products (b, s, n, 3d) that gives contexts (b, s, n, d) and drops weights, so it has no reference."""


def dropping(scale: str, device: str, programs: Collection[str]) -> list[Operator]:
    """Fused attention if one of these programs has it and its operators are loaded; on the CPU in fp32, for tests."""
    if TUNED not in programs or not loaded():
        return []
    samples, heads, length, size = COMPARED[scale].heads_shape
    precision = HALF if device == "cuda" else SINGLE
    name = f"dropout in causal attention by cuDNN, {SPEC.name} {precision}"
    products = Input("products", (samples, length, heads, 3 * size))
    about = {"tolerance": TOLERANCE, "changes": (fusing(DROPPED),)}
    return [Dropping(name, (SPEC.name,), precision, (products,), attend, attend, **about)]


def errors(operator: Dropping, device: str) -> Iterator[tuple[str, float]]:
    """The difference between both sums, relative to the first."""
    (products,) = inputs_of(operator, device)
    *outer, size = products.shape
    incoming = flow.randn(*outer, size // 3, placement=products.placement, sbp=BROADCAST).to(products.dtype)
    contexts, (gradient,) = in_a_graph(operator, [products], incoming)
    given, products, contexts, gradient = (
        on_host(array).astype(np.float64) for array in (incoming, products, contexts, gradient)
    )
    values, slopes = (np.split(array, 3, HEAD)[2] for array in (products, gradient))
    forward = (contexts * given).sum((1, HEAD))
    backward = (values * slopes).sum((1, HEAD))
    yield "the same in both passes", float(np.linalg.norm(backward - forward) / np.linalg.norm(forward))
