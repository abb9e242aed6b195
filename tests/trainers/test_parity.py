"""Losses do not depend on the layout; those of ResNet50 are of batches normalised part by part."""

import pytest

from tests.trainers.conftest import configuration

CLOSE = 1e-5
ALL_ITERATIONS = {1, 2, 3, 4, 5}


def agree(found: dict, expected: dict) -> bool:
    assert set(found) == set(expected) == ALL_ITERATIONS
    return found == pytest.approx(expected, rel=CLOSE)


def test_the_table_of_the_last_stage_is_that_of_the_first(losses):
    """Gradients are clipped by a norm that counts the table once, and the rate is such that it would be seen."""
    changes = {"optimizer": {"lr": 0.03, "clip_norm": 0.5}}
    expected = losses(configuration("gpt", **changes))
    assert agree(losses(configuration("gpt", (1, 1, 2), accumulation_steps=2, **changes)), expected)


@pytest.mark.parametrize(("model", "generation"), [("gpt", "D"), ("gpt", "E"), ("bert", "C")])
def test_a_sharded_optimizer_does_not_change_the_losses(losses, model, generation):
    """The layouts without one are in test_real_data.py and test_clipping.py."""
    layers = {"shape": {"layers": 1}}
    expected = losses(configuration(model, log_generation=generation, **layers))
    sharded = configuration(model, (2, 1, 1), log_generation=generation, optimizer_sharding=1, **layers)
    assert agree(losses(sharded), expected)


@pytest.mark.parametrize(
    ("model", "generation"), [("gpt", "D"), ("gpt", "E"), ("bert", "C"), ("resnet50", "A"), ("resnet50", "B")]
)
def test_the_tuned_program_has_the_losses_of_the_published_one(losses, model, generation):
    expected = losses(configuration(model, log_generation=generation))
    assert agree(losses(configuration(model, program="tuned", log_generation=generation)), expected)


@pytest.mark.parametrize(
    ("layout", "changes"),
    [
        ((1, 2, 1), {"shape": {"layers": 1}}),
        ((2, 1, 2), {"optimizer_sharding": 2, "accumulation_steps": 2, "activation_checkpointing": True}),
    ],
    ids=["tensor", "data-pipeline-accumulated-checkpointed"],
)
def test_the_tuned_program_without_operators_of_our_own_has_them_in_other_layouts(losses, layout, changes):
    """It shards the optimizer by itself; on two ranks alone in test_flat_parameters.py."""
    found = losses(configuration("gpt", layout, program="tuned", **changes))
    assert agree(found, losses(configuration("gpt", shape=changes.get("shape", {}))))


def test_resnet_normalises_within_each_data_parallel_rank(losses):
    """One process that accumulates over two micro-batches normalises each by itself, as two ranks do."""
    reference = losses(configuration("resnet50", accumulation_steps=2))
    assert agree(losses(configuration("resnet50", (2, 1, 1))), reference)


def test_channels_last_do_not_change_the_losses(losses):
    """What the tuned ResNet50 computes under AMP, which is none on the CPU."""
    found = losses(configuration("resnet50", program="tuned", precision="amp"))
    assert agree(found, losses(configuration("resnet50")))


def test_channels_last_are_normalised_within_each_data_parallel_rank(losses):
    found = losses(configuration("resnet50", (2, 1, 1), program="tuned", precision="amp"))
    assert agree(found, losses(configuration("resnet50", (2, 1, 1))))


def test_seed_decides_weights_and_data(losses):
    expected = losses(configuration("bert"))
    assert losses(configuration("bert", seed=1)) != pytest.approx(expected, rel=1e-3)
