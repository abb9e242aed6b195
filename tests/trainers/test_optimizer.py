"""The optimizers within the graph, against their formulas: decay, clipping, warm-up and schedules."""

import itertools
import json
import math

import pytest

GRADIENTS = [([3.0, -1.0, 0.5], [2.0, 4.0]), ([0.1, 0.2, -0.3], [0.2, -0.1]), ([-5.0, 1.0, 0.0], [1.0, 1.0])] * 2
COSINE = {"kind": "cosine", "warmup_iterations": 2, "decay_iterations": 5, "min_lr": 0.01}
POLYNOMIAL = {"kind": "polynomial", "warmup_iterations": 1, "decay_iterations": 4, "min_lr": 0.02, "power": 2.0}
CONSTANT = {"kind": "constant", "warmup_iterations": 3}
OPTIMIZER = {"name": "adamw", "lr": 0.1, "weight_decay": 0.5, "betas": [0.9, 0.99], "eps": 0.5, "clip_norm": 1.0}
SGD = {"name": "sgd", "lr": 0.1, "weight_decay": 0.5, "momentum": 0.875}


def task(optimizer: dict, schedule: dict, **program) -> str:
    return json.dumps({"optimizer": optimizer, "schedule": schedule, "program": program, "gradients": GRADIENTS})


ADAMW_TASKS = {
    (clip, to_base, schedule["kind"]): task({**OPTIMIZER, "clip_norm": clip}, schedule, warmup_to_base=to_base)
    for clip, to_base, schedule in itertools.product((1.0, 0.5), (True, False), (COSINE, POLYNOMIAL, CONSTANT))
}
UNCORRECTED_TASK = task(OPTIMIZER, CONSTANT, bias_correction=False)
SGD_TASKS = {
    l2_on_all: task(SGD, {"kind": "constant"}, l2_on_all=l2_on_all, not_decayed=["bias"]) for l2_on_all in (True, False)
}


@pytest.fixture(scope="module")
def trained(probe):
    """What comes of each task; one process trains all of them."""
    tasks = [*ADAMW_TASKS.values(), UNCORRECTED_TASK, *SGD_TASKS.values()]
    return dict(zip(tasks, json.loads(probe("optimizer_probe.py", f"[{','.join(tasks)}]")[-1]), strict=True))


def decayed(step: int, lr: float, schedule: dict) -> float:
    if schedule["kind"] == "constant":
        return lr
    done, least = min(step / schedule["decay_iterations"], 1.0), schedule["min_lr"]
    if schedule["kind"] == "cosine":
        return least + (lr - least) * (1 + math.cos(math.pi * done)) / 2
    return least + (lr - least) * (1 - done) ** schedule["power"]


def rates(lr: float, schedule: dict, to_base: bool = True) -> list:
    warmup = schedule["warmup_iterations"]
    top = lr if to_base else decayed(warmup, lr, schedule)
    rise = [top * step / warmup for step in range(warmup)]
    return rise + [decayed(step, lr, schedule) for step in range(warmup, len(GRADIENTS))]


def adamw(
    lr: float, eps: float, decay: float, clip: float, schedule: dict, to_base: bool = True, corrects: bool = True
) -> tuple:
    """Weight and bias after all gradients, by the formulas of AdamW (arXiv 1711.05101) with clipping beforehand."""
    parameters, first, second = [1.0] * 5, [0.0] * 5, [0.0] * 5
    for step, ((x, y), rate) in enumerate(zip(GRADIENTS, rates(lr, schedule, to_base), strict=True), start=1):
        gradients = [*x, *y]
        norm = math.sqrt(sum(value * value for value in gradients))
        for at, gradient in enumerate(value * min(1.0, clip / norm) for value in gradients):
            first[at] = 0.9 * first[at] + 0.1 * gradient
            second[at] = 0.99 * second[at] + 0.01 * gradient**2
            bias = (1 - 0.9**step, 1 - 0.99**step) if corrects else (1.0, 1.0)
            corrected = first[at] / bias[0] / (math.sqrt(second[at] / bias[1]) + eps)
            parameters[at] -= rate * (corrected + (decay if at < 3 else 0.0) * parameters[at])
    return parameters[:3], parameters[3:]


@pytest.mark.parametrize("clip", [1.0, 0.5], ids=["the published norm", "another norm"])
@pytest.mark.parametrize("to_base", [True, False], ids=["to the base rate", "to the decayed rate"])
@pytest.mark.parametrize("schedule", [COSINE, POLYNOMIAL, CONSTANT], ids=lambda schedule: schedule["kind"])
def test_adamw_clips_all_gradients_together_and_decays_weights_alone(trained, schedule, to_base, clip):
    found = trained[ADAMW_TASKS[clip, to_base, schedule["kind"]]]
    weight, bias = adamw(0.1, 0.5, 0.5, clip, schedule, to_base)
    assert found["weight"] == pytest.approx(weight, rel=1e-5)
    assert found["bias"] == pytest.approx(bias, rel=1e-5)
    assert found["rates"] == pytest.approx(rates(0.1, schedule, to_base))


def test_moments_are_not_corrected_where_the_program_did_not(trained):
    found = trained[UNCORRECTED_TASK]
    assert found["weight"] == pytest.approx(adamw(0.1, 0.5, 0.5, 1.0, CONSTANT, corrects=False)[0], rel=1e-5)
    assert found["weight"] != pytest.approx(adamw(0.1, 0.5, 0.5, 1.0, CONSTANT)[0], rel=1e-3)


@pytest.mark.parametrize("l2_on_all", [True, False])
def test_sgd_decays_weights_apart_from_the_momentum_and_penalises_all_parameters_or_none(trained, l2_on_all):
    found = trained[SGD_TASKS[l2_on_all]]
    parameters, momentum = [1.0] * 5, [0.0] * 5
    for x, y in GRADIENTS:
        for at, gradient in enumerate([*x, *y]):
            penalty = 0.5 * parameters[at] if l2_on_all else 0.0
            momentum[at] = 0.875 * momentum[at] - 0.1 * (gradient + penalty)
            parameters[at] += momentum[at] - (0.1 * 0.5 * parameters[at] if at < 3 else 0.0)
    assert [*found["weight"], *found["bias"]] == pytest.approx(parameters, rel=1e-5)
