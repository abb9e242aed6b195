"""Flat parameters of the tuned GPT with a sharded optimizer: the same losses, with two flat tensors for each layer."""

import pytest

from tests.trainers.conftest import census, configuration

CLOSE = 1e-5
CUT, JOINED = "repro_parts", "repro_parts_grad"
ONCE = {"iterations": 1, "log_interval": 1, "shape": {"layers": 1}}
"""One iteration, where only the operators of the compiled job are looked at."""


@pytest.mark.parametrize(
    ("layout", "layers", "changes"),
    [
        ((2, 1, 1), 2, {"log_generation": "D", "optimizer_sharding": 1}),
        ((2, 1, 1), 1, {"optimizer_sharding": 1, "shape": {"hidden_size": 33, "attention_heads": 3}}),
        ((2, 1, 1), 1, {"optimizer_sharding": 2, "shape": {"hidden_size": 160}}),
    ],
    ids=["gpt-2", "some-that-cannot-be-divided", "exempt-ones-split-too"],
)
def test_a_sharded_optimizer_has_the_losses_of_the_published_program(
    train_with_library, losses, layout, layers, changes
):
    """With a weight decay that shows in the losses, as some parameters are exempt from it."""
    shape = {"layers": layers, **changes.get("shape", {})}
    changes = {**changes, "shape": shape, "optimizer": {"weight_decay": 1.0}}
    outcome = train_with_library(configuration("gpt", layout, program="tuned", **changes))
    operators = census(outcome)
    assert (operators[CUT], operators[JOINED]) == (2 * layers, 2 * layers)
    del changes["optimizer_sharding"]
    assert outcome.losses == pytest.approx(losses(configuration("gpt", **changes)), rel=CLOSE)


@pytest.mark.parametrize("change", [{"accumulation_steps": 2}, {"activation_checkpointing": True}], ids=" ".join)
def test_other_parameters_are_stored_alone(train_with_library, change):
    """Those of an optimizer that is not sharded, and of tensor parallelism, are in test_fused_attention.py."""
    config = configuration("gpt", (2, 1, 1), program="tuned", optimizer_sharding=1, **change, **ONCE)
    assert CUT not in census(train_with_library(config))


def test_without_the_operators_each_parameter_is_sharded_alone(train, losses):
    """And with the losses of the published program."""
    outcome = train(configuration("gpt", (2, 1, 1), program="tuned", optimizer_sharding=1, shape={"layers": 1}))
    assert outcome.returncode == 0, outcome.stderr
    assert CUT not in census(outcome)
    assert outcome.losses == pytest.approx(losses(configuration("gpt", shape={"layers": 1})), rel=CLOSE)
