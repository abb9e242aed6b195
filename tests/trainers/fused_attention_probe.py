"""Prints what test_fused_attention.py judges, all on the CPU: contexts and gradients of fused attention that drops
weights, and what the check of its dropout finds, also where the backward pass has another seed.
"""

import json
import sys
from pathlib import Path

import numpy as np
import oneflow as flow
from oneflow import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from repro.models.programs import KINDS
from repro.trainers.checks import dropout
from repro.trainers.graph.graph import ChangedGraph
from repro.trainers.tuning import attention
from repro.trainers.tuning.attention import attend, fusing, loaded

BATCH, LENGTH, HEADS, SIZE, DROPOUT, CALLS = 2, 16, 3, 8, 0.25, 2
PLACE, WHOLE = flow.placement("cpu", [0]), flow.sbp.broadcast


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        values = np.random.default_rng(5).normal(size=(BATCH, LENGTH, HEADS, 3 * SIZE)).astype(np.float32)
        self.products = nn.Parameter(flow.tensor(values).to_global(placement=PLACE, sbp=WHOLE))

    def forward(self, shift):
        context = attend(self.products + shift)
        return context * context


class Graph(ChangedGraph):
    """One step of rate 1, whose change is the gradient; `again` recomputes the layer for it."""

    changes = (fusing(DROPOUT),)

    def __init__(self, layer: Layer, again: bool) -> None:
        super().__init__()
        self.layer = layer
        self.layer.config.activation_checkpointing = again
        self.add_optimizer(flow.optim.SGD(layer.parameters(), lr=1.0, momentum=0.0))

    def build(self, shift):
        squares = self.layer(shift)
        squares.sum().backward()
        return squares


def results(again: bool) -> dict:
    flow.manual_seed(1)
    layer, contexts, gradients = Layer(), [], []
    graph, shift = Graph(layer, again), flow.zeros(1, placement=PLACE, sbp=WHOLE)
    first = layer.products.numpy().copy()
    for _ in range(CALLS):
        contexts.append(graph(shift).to_local().numpy().tolist())
        gradients.append((first - layer.products.numpy()).tolist())
        layer.products.data.copy_(flow.tensor(first).to_global(placement=PLACE, sbp=WHOLE))
    return {"products": first.tolist(), "contexts": contexts, "gradients": gradients, "operators": graph.census}


def checked() -> list:
    (operator,) = dropout.dropping("small", "cpu", KINDS)
    return [operator.limit, *(error for _, error in dropout.errors(operator, "cpu"))]


def with_another_seed(op, kind, rate, seed, become=attention.become) -> None:
    become(op, kind, rate, seed + (kind == attention.BACKWARD))


if __name__ == "__main__":
    assert loaded()
    found = {"once": results(again=False), "again": results(again=True), "checked": checked()}
    attention.become = with_another_seed
    print(json.dumps({**found, "checked with another seed": checked()}))
