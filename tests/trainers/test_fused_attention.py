"""Fused attention of the tuned program: the losses of the published one, in every layout, by the library's CPU kernels."""

import json

import numpy as np
import pytest

from repro.images.attention_operator import LIBRARY
from tests.trainers.conftest import census, configuration

CLOSE = 1e-5
FORWARD, BACKWARD = "repro_attention", "repro_attention_grad"
CUT = "repro_parts"


@pytest.mark.parametrize(
    ("layout", "layers", "changes", "passes"),
    [
        ((1, 1, 1), 2, {}, 1),
        ((1, 1, 1), 2, {"activation_checkpointing": True}, 2),
        ((1, 2, 1), 1, {}, 1),
        ((2, 2, 1), 1, {"optimizer_sharding": 1}, 1),
        ((2, 1, 1), 1, {"log_generation": "D"}, 1),
        ((1, 1, 2), 2, {"accumulation_steps": 2, "activation_checkpointing": True}, 2),
    ],
    ids=[
        "one",
        "checkpointed",
        "tensor",
        "data-tensor",
        "small-data",
        "pipeline-accumulated-checkpointed",
    ],
)
def test_it_has_the_losses_of_the_published_program(train_with_library, losses, layout, layers, changes, passes):
    shape = {"layers": layers}
    outcome = train_with_library(configuration("gpt", layout, program="tuned", shape=shape, **changes))
    operators = census(outcome)
    assert (operators[FORWARD], operators[BACKWARD]) == (layers * passes, layers)
    assert CUT not in operators, "parameters are flat only where a sharded optimizer splits them over all ranks"
    kept = {name: value for name, value in changes.items() if name == "log_generation"}
    assert outcome.losses == pytest.approx(losses(configuration("gpt", shape=shape, **kept)), rel=CLOSE)


def test_the_published_program_and_other_models_do_not_take_it(train_with_library):
    for config in (configuration("gpt"), configuration("bert", program="tuned")):
        assert FORWARD not in census(train_with_library({**config, "iterations": 1, "log_interval": 1}))


def test_heads_that_cudnn_does_not_take_are_left_to_oneflow(train_with_library):
    config = configuration("gpt", program="tuned", shape={"hidden_size": 48, "attention_heads": 4})
    assert FORWARD not in census(train_with_library({**config, "iterations": 1, "log_interval": 1}))


@pytest.fixture(scope="module")
def dropped(library, probe):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(LIBRARY, str(library))
        (line,) = probe("fused_attention_probe.py")[-1:]
    return json.loads(line)


def test_a_recomputed_layer_drops_the_same_weights(dropped):
    once, again = dropped["once"], dropped["again"]
    assert (once["operators"][FORWARD], again["operators"][FORWARD]) == (1, 2)
    for name in ("contexts", "gradients"):
        assert np.allclose(once[name], again[name], rtol=1e-6), name


def test_each_call_drops_other_weights(dropped):
    first, second = map(np.array, dropped["once"]["contexts"])
    assert (first != second).mean() > 0.5


def test_the_gradient_drops_what_the_forward_pass_dropped(dropped):
    """Contexts are linear in the values, so the gradients of their squares' sum times the values are twice that sum."""
    once = dropped["once"]
    values = thirds(once["products"])[2]
    for squares, gradients in zip(once["contexts"], once["gradients"], strict=True):
        assert np.isclose((thirds(gradients)[2] * values).sum(), 2 * np.sum(squares), rtol=1e-4)


def test_the_check_before_a_run_finds_other_weights_dropped_in_the_backward_pass(dropped):
    limit, error = dropped["checked"]
    assert error < limit / 10
    limit, error = dropped["checked with another seed"]
    assert error > 2 * limit


def thirds(products: list) -> list:
    """The queries, keys and values in products (b, s, n, 3d)."""
    return np.split(np.array(products), 3, axis=-1)
