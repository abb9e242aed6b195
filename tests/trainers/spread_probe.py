"""Prints what test_rewrite.py judges of two data parallel ranks: how many copies of gradients are left, and how far a
step lies from that of one rank with all samples."""

import json
import os
import sys
from pathlib import Path

import numpy as np
import oneflow as flow

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from repro.trainers.graph.graph import ChangedGraph
from repro.trainers.graph.job_proto import operators_of
from repro.trainers.tuning.rewrite import GRADIENT, REWRITES

RANKS = [0, 1]
RATE = 0.5
LIMIT = 0.25
"""Of the gradients' norm, where they are clipped; what they have is larger."""


class Linear(flow.nn.Linear):
    """A layer that wants its weight and the gradient of it whole on every rank, as the models' layers do."""

    def forward(self, x):
        if self.weight.is_global:
            place = {"sbp": flow.sbp.broadcast, "grad_sbp": flow.sbp.broadcast}
            return flow.matmul(x, self.weight.to_global(**place), transpose_b=True) + self.bias.to_global(**place)
        return super().forward(x)


class Graph(ChangedGraph):
    changes = REWRITES

    def __init__(self, model: flow.nn.Module, clipped: bool) -> None:
        super().__init__()
        self.model = model
        limit = {"clip_grad_max_norm": LIMIT, "clip_grad_norm_type": 2.0} if clipped else {}
        self.add_optimizer(flow.optim.SGD([{"params": list(model.parameters()), **limit}], lr=RATE))

    def build(self, x):
        loss = self.model(x).mean()
        loss.backward()
        return loss


def step(clipped: bool) -> tuple:
    """Copies of gradients in the graph, and the distance of its step from that of eager execution."""
    place = flow.placement("cpu", ranks=RANKS)
    samples = np.linspace(-1, 2, 12, dtype=np.float32).reshape(4, 3)
    weight = np.linspace(-0.5, 0.7, 6, dtype=np.float32).reshape(2, 3)
    spread, exclusive = (Linear(3, 2) for _ in range(2))
    for model in (spread, exclusive):
        model.weight.data.copy_(flow.tensor(weight))
        model.bias.data.copy_(flow.tensor(weight[:, 0]))
    spread.to_global(placement=place, sbp=flow.sbp.broadcast)
    graph = Graph(spread, clipped)
    graph(flow.tensor(samples).to_global(placement=place, sbp=flow.sbp.broadcast).to_global(sbp=flow.sbp.split(0)))
    exclusive(flow.tensor(samples)).mean().backward()
    gradients = [each.grad.numpy() for each in exclusive.parameters()]
    norm = float(np.sqrt(sum((each**2).sum() for each in gradients)))
    share = min(1.0, LIMIT / norm) if clipped else 1.0
    apart = [
        np.abs(found.to_local().numpy() - (before.numpy() - RATE * share * gradient)).max()
        for found, before, gradient in zip(spread.parameters(), exclusive.parameters(), gradients, strict=True)
    ]
    copies = operators_of(graph._full_graph_proto, "hierarchical_parallel_cast")
    return sum(op.name.startswith(GRADIENT) for op in copies), float(max(apart))


found = {"once": step(False), "twice": step(True)}
if os.environ["RANK"] == "0":
    print(json.dumps(found))
