"""What a baseline's configuration may say, without PyTorch."""

import re

import pytest

from repro.baselines.config import Variant, parse
from repro.models.variants import baseline_configs, make_baseline_config, refusal
from repro.trainers import config as trainers
from repro.trainers.config import Config
from repro.trainers.validators import ConfigError
from tests.trainers.conftest import configuration


def full(model: str = "gpt", *arguments, **changes) -> dict:
    return {"output": "out", **configuration(model, *arguments, **changes)}


def test_a_baseline_has_the_trainers_configuration_and_its_variant():
    content = full("resnet50", device="cuda")
    config = parse(make_baseline_config(content, "pytorch-tf32"))
    assert config.baseline == Variant(tf32=True, channels_last=True)
    trainer = trainers.parse(content)
    assert {name: getattr(config, name) for name in vars(trainer)} == vars(trainer)
    assert isinstance(config, Config) and "baseline" not in content


def test_without_a_table_the_baseline_is_eager_in_true_fp32():
    assert parse(full()).baseline == Variant(False, False, False, False, False)


@pytest.mark.parametrize(
    ("config", "name", "reason"),
    [
        (full("gpt", (1, 2, 1)), "pytorch", "layout.tensor: PyTorch's baselines are data parallel only, tensor is 2"),
        (
            full("gpt", (2, 1, 2)),
            "pytorch-compiled",
            "layout.pipeline: PyTorch's baselines are data parallel only, pipeline is 2",
        ),
        (
            full("gpt", (2, 1, 1), optimizer_sharding=1),
            "pytorch",
            "optimizer_sharding: PyTorch's baselines do not shard the optimizer, it is 1",
        ),
        (
            full("bert", data={"kind": "ofrecord", "path": ".", "parts": 0}),
            "pytorch",
            "data.kind: only OneFlow reads ofrecord files here, give synthetic data",
        ),
        (full("gpt"), "megatron", "device: Megatron-Core computes on GPUs only; on the CPU there are the baselines of"),
        (full("bert", device="cuda"), "megatron", "model: Megatron-Core's baselines train GPT alone, not bert"),
        (
            full("gpt", (1, 1, 2), device="cuda", shape={"layers": 3}),
            "megatron-unfused",
            "layout.pipeline: Megatron-Core divides layers equally, 3 of them not over 2 stages",
        ),
        (full("resnet50"), "pytorch-unfused", "model: resnet50 has no attention that could be unfused"),
        (full("gpt"), "pytorch-tf32", "device: TF32 needs a GPU"),
        (full("gpt", device="cuda", precision="amp"), "pytorch-tf32", "precision: TF32 is for fp32, it is amp"),
        (
            full("resnet50", device="cuda", precision="amp"),
            "pytorch-channels-last",
            "precision: under AMP `pytorch` is in channels-last format already",
        ),
    ],
)
def test_what_a_variant_cannot_run_is_refused(config, name, reason):
    assert refusal(config, name).startswith(reason)
    assert baseline_configs(config, (name,)) == {}
    with pytest.raises(ValueError, match=re.escape(reason)):
        make_baseline_config(config, name)


def test_a_process_refuses_what_its_kind_of_baseline_cannot_run():
    for config, megatron, reason in (
        (full("gpt", (1, 2, 1)), False, "layout.tensor: PyTorch's"),
        (full("gpt"), True, "device: Megatron-Core computes on GPUs only"),
    ):
        with pytest.raises(ConfigError, match=reason):
            parse({**config, "baseline": {"megatron": megatron}})


def test_sharding_among_one_rank_is_none():
    assert refusal(full("gpt", optimizer_sharding=1), "pytorch") is None


def test_megatron_runs_every_layout():
    for layout in ((2, 1, 1), (1, 2, 1), (1, 1, 2), (2, 2, 2)):
        assert refusal(full("gpt", layout, device="cuda", optimizer_sharding=1), "megatron") is None


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"tf64": True}, "baseline.tf64: unknown key; known are tf32, channels_last, compile, unfused, megatron"),
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
        parse({**full("resnet50"), "baseline": {"unfused": True}})


@pytest.mark.parametrize(
    ("values", "message"),
    [({**full(), "colour": "blue"}, "colour: unknown key"), ([], "configuration: .* is not a table")],
)
def test_the_rest_is_checked_as_the_trainers_do(values, message):
    with pytest.raises(ConfigError, match=message):
        parse(values)


def test_a_trainer_does_not_run_as_a_baseline_by_mistake():
    with pytest.raises(ConfigError, match="baseline: unknown key"):
        trainers.parse(make_baseline_config(full(), "pytorch"))
