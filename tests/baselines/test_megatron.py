"""Megatron-Core trains as OneFlow's published program does: the losses of every kind of layout, on one and two ranks."""

import pytest

from tests.baselines.conftest import COSINE, losses
from tests.trainers.conftest import configuration

CLOSE = 2e-5
"""Both compute in fp32. Megatron-Core's GELU is that by the hyperbolic tangent; its fused cross-entropy rounds."""
GPT = {"schedule": COSINE, "accumulation_steps": 2, "activation_checkpointing": True}
GPT_2 = {"log_generation": "D"}


@pytest.fixture(scope="session")
def expected(tmp_path_factory):
    """Losses by form, of OneFlow on one process."""
    return {}


@pytest.fixture
def oneflow(train, expected):
    def of(**changes) -> dict:
        name = changes.get("log_generation", "E")
        if name not in expected:
            expected[name] = losses(train, configuration("gpt", **changes))
        return expected[name]

    return of


@pytest.mark.parametrize(
    ("layout", "changes", "table"),
    [
        ((1, 1, 1), GPT, {"unfused": True}),
        ((2, 1, 1), GPT, {}),
        ((1, 2, 1), GPT, {}),
        ((1, 2, 1), GPT, {"unfused": True}),
        ((1, 1, 2), GPT, {}),
        ((2, 1, 1), {**GPT_2, "optimizer_sharding": 1}, {}),
    ],
    ids=["alone", "data", "tensor", "tensor-unfused", "pipeline", "sharded-gpt-2"],
)
def test_losses_are_those_of_the_published_program(megatron, oneflow, layout, changes, table):
    reference = oneflow(**{name: value for name, value in changes.items() if name != "optimizer_sharding"})
    assert set(reference) == {1, 2, 3, 4, 5}
    found = losses(lambda config: megatron(config, **table), configuration("gpt", layout, **changes))
    assert found == pytest.approx(reference, rel=CLOSE)


def test_in_half_precision_it_learns_as_in_fp32(megatron):
    """A scale at which no gradient overflows, so that the two update in the same iterations."""
    exact = losses(megatron, configuration("gpt"))
    mixed = losses(megatron, configuration("gpt", precision="amp", loss_scale=1024.0))
    assert mixed == pytest.approx(exact, rel=1e-3)
    assert mixed != exact


def test_rank_0_writes_the_loss_of_the_last_stage_and_what_ran(megatron):
    outcome = megatron(configuration("gpt", (1, 1, 2), iterations=4, log_interval=2))
    assert outcome.returncode == 0, outcome.stderr
    start = outcome.events[0][0]
    layers, size, tokens, positions = 2, 32, 512, 16
    assert start["parameters"] == layers * (12 * size**2 + 13 * size) + 2 * size + (tokens + positions) * size
    assert start["versions"]["megatron_core"].startswith("0.")
    assert start["settings"]["megatron"] is True
    assert [row["iteration"] for row in outcome.rows] == [2, 4]
    assert outcome.rows[-1]["loss"] > 1
