"""Which network NCCL used, by its own log: every rank's, and the ways between ranks."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from repro.runs.files import RunPath, opened

LOG_BYTES = 4_000_000
NETWORK = re.compile(rb"NCCL INFO Using network (\w+)|NCCL INFO NET/(IB|Socket) ?: Using ")
WAY = re.compile(rb"NCCL INFO .*?\bvia (P2P|SHM|direct shared memory|NET/\w+)(?:/(\d+))?")
VERBS = re.compile(r"IB(ext(_v\d+)?)?")
"""NCCL's own InfiniBand transport, and the same in the plugin of HPC-X and of NVIDIA's images, of whatever version."""
DEVICES = re.compile(rb"NCCL INFO NET/IB ?: Using((?: \[\d+\][\w.-]+:\d+/[\w/]+)+)")
DEVICE = re.compile(rb"\[(\d+)\][\w.-]+:\d+/(\w+)")
NO_LIBRARY = re.compile(rb"Failed to open libibverbs\.so")


@dataclass(frozen=True)
class Transport:
    """The transports that an attempt's ranks used, by NCCL's log.

    `networks` is what each rank chose for traffic to other nodes ("IB", "RoCE", "Socket"), by rank; a rank without a
    log line is absent. `ways` are the ways between ranks that were seen ("P2P", "SHM", "NET/IB", "NET/RoCE",
    "NET/Socket"), sorted.
    """

    networks: dict[int, str]
    ways: tuple[str, ...]

    def as_json(self) -> dict:
        """The form in which an attempt keeps it: networks with the ranks that chose them."""
        ranks: dict[str, list[int]] = {}
        for rank, network in sorted(self.networks.items()):
            ranks.setdefault(network, []).append(rank)
        return {"networks": ranks, "ways": list(self.ways)}


def transport(logs: dict[int, Iterable[RunPath]]) -> Transport:
    """Read the logs of each rank; a log that is not there is passed over.

    NCCL 2.7 writes "NET/IB : Using [0]mlx5_0:1/IB …" and "Using network IB", 2.12 only the latter where a plugin is
    searched for first; for each channel "0[1a000] -> 8[1a000] [send] via NET/IB/0/GDRDMA", or "via P2P/IPC". A plugin
    of the vendor has a name of its own in their place ("IBext"). The devices show whether it is Ethernet that verbs
    reach: "[0]mlx5_0:1/RoCE", numbered as in the ways.
    """
    networks, ways = {}, set()
    for rank, paths in logs.items():
        for text in (_start_of(path) for path in paths if path.is_file()):
            for match in NETWORK.finditer(text):
                networks[rank] = _network((match[1] or match[2]).decode(), _layers(text).values())
            ways |= _ways(text)
    return Transport(networks, tuple(sorted(ways)))


def transport_of(attempt: RunPath, world_size: int) -> Transport:
    """That of an attempt, by its folder."""
    ranks = {rank: attempt / "logs" / f"local_rank_{rank}" for rank in range(world_size)}
    return transport({rank: (folder / "stdout", folder / "stderr") for rank, folder in ranks.items()})


def ways_in(paths: Iterable[RunPath]) -> set[str]:
    """The ways between ranks that any of the logs names."""
    return {way for path in paths for way in _ways(_start_of(path))}


def lacks_verbs(paths: Iterable[RunPath]) -> bool:
    """Whether any of the logs says that NCCL could not open libibverbs, without which it uses sockets."""
    return any(NO_LIBRARY.search(_start_of(path)) for path in paths)


def _ways(text: bytes) -> set[str]:
    layers, ways = _layers(text), set()
    for way, device in set(WAY.findall(text)):
        kind, _, network = way.decode().partition("/")
        layer = [layers[int(device)]] if device and int(device) in layers else layers.values()
        ways.add(f"{kind}/{_network(network, layer)}" if network else kind)
    return {"SHM" if way == "direct shared memory" else way for way in ways}


def _layers(text: bytes) -> dict[int, str]:
    """The link layer of each device that verbs reach ("IB", "RoCE"), by NCCL's number."""
    return {
        int(number): layer.decode() for devices in DEVICES.findall(text) for number, layer in DEVICE.findall(devices)
    }


def _network(name: str, layers: Iterable[str]) -> str:
    """The network that NCCL calls so, over devices of these link layers; several are joined by "+"."""
    if not VERBS.fullmatch(name):
        return name
    return "+".join(sorted(set(layers))) or "IB"


def _start_of(path: RunPath) -> bytes:
    with opened(path) as file:
        return file.read(LOG_BYTES)
