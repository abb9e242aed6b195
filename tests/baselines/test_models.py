"""Parts of the baselines against their formulas: attention unfused and fused, and the published losses."""

import json
from pathlib import Path

import numpy as np
import pytest

from repro.utils.ports import free_port
from tests.baselines.conftest import TIME_LIMIT_S, start
from tests.support.patience import patience
from tests.trainers.conftest import configuration

PROBE = Path(__file__).with_name("model_probe.py")
SINGLE = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
WEIGHTS = [[1.0, 0.5, 0.0], [1.0, 1.0, 1.0]], [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0]]
"""Of the three masked tokens of two samples, on each of two ranks."""


@pytest.fixture
def compute(torch_python):
    """Callable that runs a function of the probe on some ranks, and gives what each printed."""

    def run(name: str, ranks: int = 1, **task) -> list:
        if ranks > 1:
            task["world"] = ranks
        command, port = [torch_python, str(PROBE), name, json.dumps(task)], free_port()
        started = [start(command, rank, ranks, port) for rank in range(ranks)]
        outputs = [rank.communicate(timeout=patience(TIME_LIMIT_S)) for rank in started]
        assert [rank.returncode for rank in started] == [0] * ranks, outputs
        # Gloo prints its connections before.
        return [json.loads(stdout.splitlines()[-1]) for stdout, _ in outputs]

    return run


@pytest.mark.parametrize("name", ["padded_attention", "causal_attention"])
def test_unfused_attention_computes_what_the_fused_one_does(compute, name):
    fused, unfused = map(np.array, compute(name)[0])
    assert np.abs(fused).max() > 0.01
    assert unfused == pytest.approx(fused, rel=1e-4, abs=1e-6)


def test_a_samples_loss_is_over_the_mean_weight_of_all_samples(compute):
    """A weight of 1 on one token of each sample gives that token's loss; others follow from those by the formula."""
    config = {"output": "out", **configuration("bert")}
    single = [[[row, row]] for row in SINGLE]
    losses = np.array(compute("masked_tokens", config=config, weights=single)[0]).T * (1.0 + 1e-5)
    found = compute("masked_tokens", ranks=2, config=config, weights=[WEIGHTS])
    weights = np.array(WEIGHTS)
    divisor = weights.sum() / 4 + 1e-5
    for rank, printed in enumerate(found):
        assert printed[0] == pytest.approx((losses * weights[rank]).sum(axis=1) / divisor, rel=1e-5)


def test_the_last_label_counts_but_in_gpt_2(compute):
    found = compute("last_label", config={"output": "out", **configuration("gpt")})[0]
    assert found["D"][0] == found["D"][1]
    assert found["E"][0] != pytest.approx(found["E"][1], rel=1e-6)
