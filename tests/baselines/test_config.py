"""What a baseline's configuration may say, without PyTorch."""

import pytest

from repro.baselines.config import Variant, parse
from repro.models.variants import make_baseline_config, refusal
from repro.trainers import config as trainers
from repro.trainers.config import Config
from repro.trainers.validators import ConfigError
from tests.trainers.conftest import configuration


def full(model: str = "gpt", *arguments, **changes) -> dict:
    return {"output": "out", **configuration(model, *arguments, **changes)}


def test_a_baseline_has_the_trainers_configuration_and_its_variant():
    content = full("resnet50")
    config = parse(make_baseline_config(content, tf32=True, channels_last=True))
    assert config.baseline == Variant(tf32=True, channels_last=True, compile=False, unfused=False)
    trainer = trainers.parse(content)
    assert {name: getattr(config, name) for name in vars(trainer)} == vars(trainer)
    assert isinstance(config, Config) and "baseline" not in content


def test_without_a_table_the_baseline_is_eager_in_true_fp32():
    assert parse(full()).baseline == Variant(tf32=False, channels_last=False, compile=False, unfused=False)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (full("gpt", (1, 2, 1)), "layout.tensor: baselines are data parallel only, tensor is 2"),
        (full("gpt", (2, 1, 2)), "layout.pipeline: baselines are data parallel only, pipeline is 2"),
        (
            full("gpt", (2, 1, 1), optimizer_sharding=1),
            "optimizer_sharding: baselines do not shard the optimizer, it is 1",
        ),
        (
            full("bert", data={"kind": "ofrecord", "path": ".", "parts": 0}),
            "data.kind: only OneFlow reads ofrecord files here, give synthetic data",
        ),
    ],
    ids=["tensor", "pipeline", "sharded", "ofrecord"],
)
def test_what_no_baseline_can_run_is_refused(config, reason):
    assert refusal(config) == reason
    with pytest.raises(ValueError, match=reason):
        make_baseline_config(config, tf32=False)


def test_sharding_among_one_rank_is_none():
    assert refusal(full("gpt", optimizer_sharding=1)) is None


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"tf64": True}, "baseline.tf64: unknown key; known are tf32, channels_last, compile, unfused"),
        ({"tf32": 1}, "baseline.tf32: 1 is neither true nor false"),
        ("fast", "baseline: 'fast' is not a table"),
        ({"channels_last": True}, "baseline.channels_last: gpt has no channels, give false"),
    ],
)
def test_a_wrong_table_is_named(table, message):
    with pytest.raises(ConfigError) as caught:
        parse({**full(), "baseline": table})
    assert str(caught.value) == message


def test_a_model_without_attention_has_nothing_to_run_unfused():
    with pytest.raises(ConfigError, match=r"baseline\.unfused: resnet50 has no attention, give false"):
        parse(make_baseline_config(full("resnet50"), tf32=False, unfused=True))


@pytest.mark.parametrize(
    ("values", "message"),
    [({**full(), "colour": "blue"}, "colour: unknown key"), ([], "configuration: .* is not a table")],
)
def test_the_rest_is_checked_as_the_trainers_do(values, message):
    with pytest.raises(ConfigError, match=message):
        parse(values)


def test_a_trainer_does_not_run_as_a_baseline_by_mistake():
    with pytest.raises(ConfigError, match="baseline: unknown key"):
        trainers.parse(make_baseline_config(full(), tf32=False))
