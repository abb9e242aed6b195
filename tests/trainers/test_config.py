"""What the configuration check lets through, and how it names what is wrong."""

import pytest

from repro.trainers.config import parse
from repro.trainers.validators import ConfigError
from tests.trainers.conftest import configuration


def wrong(config: dict) -> str:
    with pytest.raises(ConfigError) as caught:
        parse({"output": "out", **config})
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("model", ["gpt", "bert", "resnet50"])
def test_good(model):
    config = parse({"output": "out", **configuration(model, (2, 1, 1), global_batch=16, accumulation_steps=4)})
    assert (config.micro_batch, config.global_batch) == (2, 16)


@pytest.mark.parametrize(
    ("model", "tensor", "vocabulary", "padded"),
    [
        ("gpt", 1, 50257, 50304),
        ("gpt", 2, 50257, 50432),
        ("gpt", 4, 50257, 50688),
        ("gpt", 8, 50257, 51200),
        ("gpt", 16, 50257, 51200),
        ("gpt", 32, 50257, 53248),
        ("gpt", 1, 50304, 50304),
        ("bert", 1, 30522, 30522),
    ],
)
def test_vocabulary_is_padded_as_published(model, tensor, vocabulary, padded):
    shape = {"vocab_size": vocabulary, "hidden_size": 64, "attention_heads": 32}
    assert parse({"output": "out", **configuration(model, (1, tensor, 1), shape=shape)}).padded_vocab_size == padded


@pytest.mark.parametrize(("generation", "scale"), [("D", 2.0**15), ("E", 2.0**20)])
def test_the_first_loss_scale_is_that_of_the_program_unless_it_is_given(generation, scale):
    config = {"output": "out", **configuration("gpt", log_generation=generation)}
    assert parse(config).loss_scale == scale
    assert parse({**config, "loss_scale": 8.0}).loss_scale == 8.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"colour": 1}, "colour: unknown key"),
        ({"model": "vgg"}, "model: 'vgg' is not one of"),
        ({"program": "fast"}, "program: 'fast' is not one of 'published', 'tuned'"),
        ({"seed": "1"}, "seed: '1' is not a whole number"),
        ({"micro_batch": 0}, "micro_batch: 0 is not a whole number of at least 1"),
        ({"activation_checkpointing": 1}, "activation_checkpointing: 1 is neither true nor false"),
        ({"optimizer_sharding": 3}, "optimizer_sharding: 3 is not one of 0, 1, 2"),
        ({"dropout": 1.0}, "dropout: 1.0 is not a number from 0 to 0.999"),
        ({"loss_scale": 0.5}, "loss_scale: 0.5 is not a number from 1"),
        ({"log_interval": 6}, "log_interval: 6 is more than the 5 iterations"),
        ({"log_generation": "A"}, "log_generation: 'A' is not one of 'D', 'E'"),
        ({"shape": {"width": 3}}, "shape.width: unknown key"),
        ({"shape": {"attention_heads": 5}}, "shape.attention_heads: 5 heads do not divide hidden_size"),
        ({"optimizer": {"name": "sgd"}}, "optimizer.name: 'sgd' is not one of 'adamw'"),
        ({"optimizer": {"betas": 0.9}}, "optimizer.betas: 0.9 is not a list of two numbers"),
        ({"schedule": {"kind": "cosine"}}, "schedule.decay_iterations: 0 is not a whole number of at least 1"),
        ({"data": {"kind": "ofrecord"}}, "data.kind: 'ofrecord' is not one of"),
        ({"data": {"kind": "megatron", "prefix": "nowhere"}}, "data.prefix: there is no file nowhere.idx"),
        ({"data": {"kind": "text", "path": "nowhere"}}, "data.path: there is no file nowhere/encoder.json"),
        ({"data": {"kind": "text", "standin": "novel"}}, "data.scale: missing"),
        ({"data": {}}, "data.kind: missing"),
    ],
)
def test_wrong_value_is_named(changes, message):
    assert message in wrong(configuration("gpt", **changes))


@pytest.mark.parametrize(
    ("model", "layout", "message"),
    [
        ("gpt", (1, 3, 1), "layout.tensor: 3 does not divide 4 attention heads"),
        ("gpt", (1, 1, 3), "layout.pipeline: 3 stages for 2 layers"),
        ("bert", (1, 1, 2), "layout.pipeline: bert runs with 1 stage only"),
        ("bert", (1, 2, 1), "layout.tensor: bert runs with 1 part only"),
        ("resnet50", (1, 2, 1), "layout.tensor: resnet50 runs with 1 part only"),
    ],
)
def test_layout_that_a_model_does_not_have(model, layout, message):
    assert message in wrong(configuration(model, layout))


def test_resnet_under_amp_does_not_accumulate():
    config = configuration("resnet50", accumulation_steps=2, precision="amp")
    assert "accumulation_steps: 2, but resnet50 under amp takes 1" in wrong(config)


@pytest.mark.parametrize("key", ["model", "program", "layout", "shape", "optimizer", "output", "accumulation_steps"])
def test_missing_key_is_named(key):
    config = {"output": "out", **configuration("gpt")}
    del config[key]
    with pytest.raises(ConfigError, match=f"^{key}: missing"):
        parse(config)


def test_part_files_must_be_there_and_be_enough(tmp_path):
    data = {"kind": "ofrecord", "path": str(tmp_path), "parts": 1}
    assert wrong(configuration("bert", data=data)).endswith("part-00000")
    (tmp_path / "part-00000").touch()
    assert "cannot be dealt to 2 ranks" in wrong(configuration("bert", (2, 1, 1), data=data))
