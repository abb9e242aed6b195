"""What a peer is told: a trainer's configuration and a table of its own, `peer`."""

from __future__ import annotations

from dataclasses import dataclass, field

from repro.peers import refusal
from repro.trainers import config as trainers
from repro.trainers.config import Config
from repro.trainers.values import ConfigError, flag, require_table


@dataclass(frozen=True)
class Peer:
    """How PyTorch runs the model; `repro.peers.make_peer_config` says what each means."""

    tf32: bool = False
    channels_last: bool = False
    compile: bool = False


@dataclass(frozen=True)
class PeerConfig(Config):
    peer: Peer = field(default_factory=Peer)


def load(path: str) -> PeerConfig:
    """Read and check a configuration file; ConfigError says what is wrong, or that no peer can run it."""
    return trainers.load(path, parse)


def parse(values: dict) -> PeerConfig:
    if not isinstance(values, dict):
        raise ConfigError(f"configuration: {values!r} is not a table")
    common = {key: value for key, value in values.items() if key != "peer"}
    config = trainers.parse(common)
    reason = refusal(common)
    if reason:
        raise ConfigError(reason)
    return PeerConfig(**vars(config), peer=parse_peer(values.get("peer", {}), config.model))


def parse_peer(values: object, model: str) -> Peer:
    require_table("peer", values, Peer)
    peer = Peer(**{key: flag(f"peer.{key}", value) for key, value in values.items()})
    if peer.channels_last and model != "resnet50":
        raise ConfigError(f"peer.channels_last: {model} has no channels, give false")
    return peer
