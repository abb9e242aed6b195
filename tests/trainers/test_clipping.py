"""Clipping by the published operators: which they are, and that they clip as 0.8.0's own do."""

import json

import pytest

from tests.trainers.conftest import configuration

ONCE = {"clip_norm": 1.0}
"""The norm of every published run."""
LOWER = {"clip_norm": 0.5}
"""The published operators clip to a norm of 1 only, so 0.8.0's own are left for any other."""


def task(model: str, generation: str, optimizer: dict) -> dict:
    config = configuration(model, log_generation=generation, optimizer=optimizer)
    return {"config": {**config, "output": "."}}


@pytest.fixture(scope="module")
def updates(probe):
    """The operators behind the gradients, by program and clip norm."""
    tasks = {
        (generation, limit["clip_norm"]): task(model, generation, limit)
        for model, generation in (("bert", "C"), ("gpt", "D"), ("gpt", "E"))
        for limit in (ONCE, LOWER)
    }
    found = json.loads(probe("census_probe.py", json.dumps(list(tasks.values())))[-1])
    return {key: job["parts"]["update"] for key, job in zip(tasks, found, strict=True)}


@pytest.mark.parametrize("generation", ["C", "D", "E"])
def test_the_factor_is_computed_by_the_published_operators(updates, generation):
    published, own = updates[generation, 1.0], updates[generation, 0.5]
    assert (published["rsqrt"], published["broadcast_minimum"]) == (1, 1)
    assert not {"scalar_pow", "reciprocal_no_nan", "clip_by_scalar_max"} & set(published)
    assert {"scalar_pow", "reciprocal_no_nan", "clip_by_scalar_max"} <= set(own)


def test_berts_squares_are_added_in_groups_of_eight(updates):
    parameters = updates["C", 1.0]["adam_update"]
    assert (parameters, updates["C", 1.0]["square_sum"], updates["C", 1.0]["add_n"]) == (30, 30, 5)
    assert updates["C", 0.5]["add_n"] == 1


@pytest.mark.parametrize(
    ("model", "layout", "changes", "split"),
    [
        ("bert", (2, 1, 1), {}, {}),
        ("gpt", (1, 1, 1), {"log_generation": "D", "shape": {"layers": 1}}, {}),
        (
            "gpt",
            (2, 1, 1),
            {"log_generation": "D", "shape": {"layers": 1, "hidden_size": 64}},
            {"optimizer_sharding": 1},
        ),
    ],
)
def test_they_clip_in_every_layout_as_oneflows_own_operators_do_on_one_process(losses, model, layout, changes, split):
    """A norm a little above 1 selects 0.8.0's own operators; test_optimizer.py compares both with the formula.

    The other layouts are in test_real_data.py and, on 8 ranks, in a rehearsal; both clip to a norm of 1.
    """
    own = losses(configuration(model, **changes, optimizer={"clip_norm": 1.00001}))
    assert losses(configuration(model, layout, **changes, **split, optimizer=ONCE)) == pytest.approx(own, rel=2e-5)
