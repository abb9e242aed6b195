"""Trains two parameters with known gradients in a graph for each task, and prints them for test_optimizer.py."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
import oneflow as flow

from repro.models.programs import Program
from repro.trainers.config import Optimizer, Schedule
from repro.trainers.graph.graph import ChangedGraph
from repro.trainers.graph.optimizer import build_optimizer, build_scheduler
from repro.trainers.graph.schedule import learning_rate


class Product(flow.nn.Module):
    """Its gradients are its inputs: that of the weight x, that of the bias y."""

    def __init__(self):
        super().__init__()
        self.weight = flow.nn.Parameter(flow.ones(3))
        self.bias = flow.nn.Parameter(flow.ones(2))

    def forward(self, x, y):
        return (self.weight * x).sum() + (self.bias * y).sum()


class Graph(ChangedGraph):
    def __init__(self, model, settings, schedule, program):
        super().__init__()
        self.model = model
        optimizer = build_optimizer(model, settings, program)
        scheduler = build_scheduler(optimizer, settings.lr, schedule, program.warmup_to_base)
        self.add_optimizer(optimizer, lr_sch=scheduler)

    def build(self, x, y):
        loss = self.model(x, y)
        loss.backward()
        return loss


def trained(task: dict) -> dict:
    settings, schedule = Optimizer(**task["optimizer"]), Schedule(**task["schedule"])
    model = Product()
    program = Program("test", "A", **task["program"])
    graph = Graph(model, settings, schedule, program)
    for x, y in task["gradients"]:
        graph(flow.tensor(np.array(x, np.float32)), flow.tensor(np.array(y, np.float32)))
    rates = [
        learning_rate(step + 1, settings.lr, schedule, program.warmup_to_base) for step in range(len(task["gradients"]))
    ]
    return {"weight": model.weight.tolist(), "bias": model.bias.tolist(), "rates": rates}


if __name__ == "__main__":
    print(json.dumps([trained(task) for task in json.loads(sys.argv[1])]))
