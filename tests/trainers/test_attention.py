"""Causal attention in blocks is the same as in one piece, in every layout that splits it."""

import json

import pytest

from tests.trainers.conftest import configuration

ROUNDING = 1e-5
LONG = {"seq_length": 1024, "layers": 1}


def test_contexts_and_gradients_are_those_of_attention_in_one_piece(probe):
    """On some processors even the last bit agrees, so the shapes of the scores show that there were blocks."""
    (line,) = probe("attention_probe.py")
    found = json.loads(line)
    assert found["scores"] == [[512, 512], [128, 512], [128, 384], [128, 256], [128, 128]]
    assert len(found["apart"]) == 4
    assert max(found["apart"]) < ROUNDING


def test_blocks_split_like_the_heads_and_samples_they_belong_to(losses):
    given = {"program": "tuned", "global_batch": 2, "shape": LONG}
    exclusive = losses(configuration("gpt", **given))
    assert losses(configuration("gpt", (1, 2, 1), **given)) == pytest.approx(exclusive, rel=1e-5)
