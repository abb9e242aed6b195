"""Trains two parameters with known gradients by a baseline's optimizer and prints them; test_optimizers.py runs it."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from repro.baselines.config import parse
from repro.baselines.step import Step


class Product(torch.nn.Module):
    """Its gradients are its inputs: that of the weight x, that of the bias y."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))
        self.norm_bias = torch.nn.Parameter(torch.ones(2))

    def forward(self, x, y):
        return {"loss": (self.weight * x).sum() + (self.norm_bias * y).sum()}


def main():
    task = json.loads(sys.argv[1])
    model = Product()
    step = Step(parse(task["config"]), model, torch.device("cpu"), world_size=1, rank=0)
    for iteration, gradients in enumerate(task["gradients"], start=1):
        step(iteration, [tuple(torch.tensor(values) for values in gradients)])
    groups = [len(group["params"]) for group in step.optimizer.param_groups]
    print(json.dumps({"weight": model.weight.tolist(), "norm_bias": model.norm_bias.tolist(), "groups": groups}))


if __name__ == "__main__":
    main()
