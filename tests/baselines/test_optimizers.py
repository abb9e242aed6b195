"""The baselines' optimizers against the published programs' formulas, written out in NumPy."""

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.trainers.conftest import configuration

PROBE = Path(__file__).with_name("optimizer_probe.py")
GRADIENTS = [([3.0, -1.0, 0.5], [2.0, 4.0]), ([0.1, 0.2, -0.3], [0.2, -0.1]), ([-5.0, 1.0, 0.0], [1.0, 1.0])] * 2
SCHEDULE = {"kind": "polynomial", "warmup_iterations": 2, "decay_iterations": 8}
RATES = [0.0, 0.5, 0.75, 0.625, 0.5, 0.375]
"""Shares of the base rate: a rise to the whole of it in 2 iterations over a fall to 0 in 8."""
ADAMW = {"name": "adamw", "lr": 0.1, "weight_decay": 0.5, "betas": [0.9, 0.99], "eps": 0.5, "clip_norm": 1.0}
SGD = {"name": "sgd", "lr": 0.1, "weight_decay": 0.25, "momentum": 0.875}
WEIGHT, NORM = slice(0, 3), slice(3, 5)


@pytest.fixture
def optimize(torch_python):
    """Callable that gives the five parameters of the probe after all gradients, and the sizes of its groups."""

    def run(config: dict, **baseline) -> tuple[list, list]:
        task = {"config": {"output": "out", **config, "baseline": baseline}, "gradients": GRADIENTS}
        done = subprocess.run([torch_python, PROBE, json.dumps(task)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        return [*found["weight"], *found["norm_bias"]], found["groups"]

    return run


def adamw(bias_correction: bool, decay: np.ndarray) -> np.ndarray:
    """Parameters after all gradients, which are clipped together by a norm of 1 beforehand."""
    w, m, v = np.ones(5), np.zeros(5), np.zeros(5)
    for step, (gradients, share) in enumerate(zip(GRADIENTS, RATES, strict=True), start=1):
        g, lr = np.concatenate(gradients), ADAMW["lr"] * share
        g = g * min(1.0, 1.0 / np.sqrt((g * g).sum()))
        m = 0.9 * m + 0.1 * g
        v = 0.99 * v + 0.01 * g * g
        first, second = (1 - 0.9**step, 1 - 0.99**step) if bias_correction else (1.0, 1.0)
        w = w - lr * (m / first) / (np.sqrt(v / second) + ADAMW["eps"]) - lr * decay * w
    return w


def momentum(l2: float, decay: np.ndarray) -> np.ndarray:
    """Parameters after all gradients, by momentum_update of OneFlow with an L2 penalty in the gradients."""
    w, m = np.ones(5), np.zeros(5)
    for gradients, share in zip(GRADIENTS, RATES, strict=True):
        g, lr = np.concatenate(gradients), SGD["lr"] * share
        m = SGD["momentum"] * m - lr * (g + l2 * w)
        w = w + m - lr * decay * w
    return w


def decay(of_weight: float, of_norm: float) -> np.ndarray:
    values = np.zeros(5)
    values[WEIGHT], values[NORM] = of_weight, of_norm
    return values


@pytest.mark.parametrize("unfused", [False, True], ids=["fused", "unfused"])
@pytest.mark.parametrize(
    ("model", "generation", "bias_correction", "of_norm"),
    [("bert", "C", False, 0.0), ("gpt", "D", True, 0.5), ("gpt", "E", True, 0.0)],
    ids=["bert", "gpt-2", "gpt"],
)
def test_adamw(optimize, model, generation, bias_correction, of_norm, unfused):
    """BERT's has no bias correction; GPT-2's decays all but the biases of linear layers."""
    config = configuration(model, optimizer=ADAMW, schedule=SCHEDULE, log_generation=generation)
    found, groups = optimize(config, unfused=unfused)
    assert found == pytest.approx(adamw(bias_correction, decay(0.5, of_norm)), rel=1e-5)
    assert groups == ([1, 1] if unfused or of_norm == 0.0 else [2]), "unfused each parameter is updated by itself"


def test_momentum_decays_twice(optimize):
    """An L2 penalty on every parameter, and a decay of all that are not of a normalisation beside the momentum."""
    found, _ = optimize(configuration("resnet50", optimizer=SGD, schedule=SCHEDULE))
    assert found == pytest.approx(momentum(0.25, decay(0.25, 0.0)), rel=1e-5)
