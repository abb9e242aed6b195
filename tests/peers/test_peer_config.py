"""What a peer's configuration may say, without PyTorch."""

import pytest

from repro.peers import make_peer_config, refusal
from repro.peers.config import Peer, parse
from repro.trainers import config as trainers
from repro.trainers.config import Config
from repro.trainers.values import ConfigError
from tests.trainers.conftest import configuration


def full(model: str = "gpt", *arguments, **changes) -> dict:
    return {"output": "out", **configuration(model, *arguments, **changes)}


def test_a_peer_is_told_what_the_trainer_is_told_and_how_to_run_it():
    wanted = full("resnet50")
    config = parse(make_peer_config(wanted, tf32=True, channels_last=True))
    assert config.peer == Peer(tf32=True, channels_last=True, compile=False)
    trainer = trainers.parse(wanted)
    assert {name: getattr(config, name) for name in vars(trainer)} == vars(trainer)
    assert isinstance(config, Config) and "peer" not in wanted


def test_without_a_table_the_peer_is_eager_in_true_fp32():
    assert parse(full()).peer == Peer(tf32=False, channels_last=False, compile=False)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (full("gpt", (1, 2, 1)), "layout.tensor: peers are data parallel only, tensor is 2"),
        (full("gpt", (2, 1, 2)), "layout.pipeline: peers are data parallel only, pipeline is 2"),
        (full("gpt", (2, 1, 1), optimizer_sharding=1), "optimizer_sharding: peers do not shard the optimizer, it is 1"),
        (
            full("bert", data={"kind": "ofrecord", "path": ".", "parts": 0}),
            "data.kind: peers do not read OFRecord files, give synthetic data",
        ),
    ],
    ids=["tensor", "pipeline", "sharded", "ofrecord"],
)
def test_what_no_peer_can_run_is_refused(config, reason):
    assert refusal(config) == reason
    with pytest.raises(ValueError, match=reason):
        make_peer_config(config, tf32=False)


def test_sharding_among_one_rank_is_none():
    assert refusal(full("gpt", optimizer_sharding=1)) is None


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"tf64": True}, "peer.tf64: unknown key; known are tf32, channels_last, compile"),
        ({"tf32": 1}, "peer.tf32: 1 is neither true nor false"),
        ("fast", "peer: 'fast' is not a table"),
        ({"channels_last": True}, "peer.channels_last: gpt has no channels, give false"),
    ],
)
def test_a_wrong_table_is_named(table, message):
    with pytest.raises(ConfigError) as caught:
        parse({**full(), "peer": table})
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("values", "message"),
    [({**full(), "colour": "blue"}, "colour: unknown key"), ([], "configuration: .* is not a table")],
)
def test_the_rest_is_checked_as_the_trainers_do(values, message):
    with pytest.raises(ConfigError, match=message):
        parse(values)


def test_a_trainer_does_not_run_as_a_peer_by_mistake():
    with pytest.raises(ConfigError, match="peer: unknown key"):
        trainers.parse(make_peer_config(full(), tf32=False))
