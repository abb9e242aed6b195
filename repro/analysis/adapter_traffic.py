"""What went over the RDMA adapters of an attempt's nodes, by the adapters' own counters before and after it.

A program's log says which network it meant to use; these counters say what left the node.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from repro.runs.files import RunPath, names, opened

FILE = "adapters-{}.json"
FILES = re.compile(r"adapters-(.+)\.json")
MOST_BYTES = 1 << 20
WORD = 4
"""Bytes in one count of `port_xmit_data` and `port_rcv_data`, according to the kernel's Documentation/ABI/stable/sysfs-class-infiniband."""
SENT_PACKETS = ("counters/port_xmit_packets", "hw_counters/sent_pkts")
RECEIVED_PACKETS = ("counters/port_rcv_packets", "hw_counters/rcvd_pkts")
"""InfiniBand's name first, then that of Soft-RoCE's driver, rdma_rxe, which counts no bytes."""

PORT = re.compile(r"[\w.-]{1,64}:\d{1,3}")
COUNTER = re.compile(r"(hw_)?counters/\w{1,64}")
MOST_PORTS, MOST_COUNTERS, MOST_COUNT = 64, 256, 2**64

Counters = Mapping[str, int]


@dataclass(frozen=True)
class Traffic:
    """What one port of one adapter counted during an attempt; None where it does not count that."""

    node: str
    adapter: str
    sent_bytes: int | None
    received_bytes: int | None
    sent_packets: int | None
    received_packets: int | None

    @classmethod
    def of(cls, node: str, adapter: str, changes: Counters) -> Traffic:
        """That of the changes of a port's counters."""
        sent, received = changes.get("counters/port_xmit_data"), changes.get("counters/port_rcv_data")
        return cls(
            node,
            adapter,
            None if sent is None else WORD * sent,
            None if received is None else WORD * received,
            _first(changes, SENT_PACKETS),
            _first(changes, RECEIVED_PACKETS),
        )


def readings(sent: object) -> dict:
    """The readings before and after an attempt that a node sent, without whatever else it sent."""
    if not isinstance(sent, dict):
        return {"before": {}, "after": {}}
    return {when: _ports(sent.get(when)) for when in ("before", "after")}


def _ports(sent: object) -> dict[str, dict[str, int]]:
    ports = list(sent.items())[:MOST_PORTS] if isinstance(sent, dict) else []
    return {name: _counters(counters) for name, counters in ports if PORT.fullmatch(str(name))}


def _counters(sent: object) -> dict[str, int]:
    counters = list(sent.items())[:MOST_COUNTERS] if isinstance(sent, dict) else []
    return {
        name: count
        for name, count in counters
        if COUNTER.fullmatch(str(name)) and type(count) is int and 0 <= count < MOST_COUNT
    }


def adapter_changes(attempt: RunPath) -> dict[str, dict[str, dict[str, int]]]:
    """By node and port, by how much each counter rose during an attempt, in the attempt's folder.

    A node whose agent was lost has no file. A counter that fell was reset meanwhile, and is left out.
    """
    changes: dict[str, dict[str, dict[str, int]]] = {}
    for name in sorted(names(attempt)):
        if match := FILES.fullmatch(name):
            with opened(attempt / name) as file:
                read = readings(json.loads(file.read(MOST_BYTES)))
            changes[match[1]] = {
                port: _risen(read["before"].get(port, {}), counters) for port, counters in read["after"].items()
            }
    return changes


def _risen(before: Counters, after: Counters) -> dict[str, int]:
    return {name: count - before[name] for name, count in after.items() if name in before and count >= before[name]}


def traffic(changes: Mapping[str, Mapping[str, Counters]]) -> list[Traffic]:
    """The traffic of every port, in the order of the nodes' names."""
    return [Traffic.of(node, port, counters) for node, ports in changes.items() for port, counters in ports.items()]


def claims(transport: Mapping, rdma: bool | None, device: str) -> list[str]:
    """What an attempt claims to have used RDMA for: NCCL's channels, by their log, or all of OneFlow's own transfers.

    Parameters
    ----------
    transport : the record of `repro.analysis.nccl_transport.Transport`.
    rdma : whether OneFlow's own transfers used RDMA, by rank 0. They are all of them where there is no NCCL, on the CPU.
    """
    ways = [way for way in transport.get("ways", ()) if way.startswith(("NET/IB", "NET/RoCE"))]
    return [*ways, *(["OneFlow RDMA"] if rdma and device == "cpu" else [])]


def silent_nodes(changes: Mapping[str, Mapping[str, Counters]], iterations: int) -> dict[str, int]:
    """The nodes whose adapters together sent fewer packets than an attempt had iterations, with how many they sent.

    An exchange in each iteration takes at least one packet from each node, while a subnet manager's packets are few.
    Nodes whose adapters count no packets are not among them.
    """
    sent = {}
    for node, ports in changes.items():
        packets = [port.sent_packets for port in traffic({node: ports}) if port.sent_packets is not None]
        if packets:
            sent[node] = sum(packets)
    return {node: packets for node, packets in sent.items() if packets < iterations}


def _first(changes: Counters, names: tuple[str, ...]) -> int | None:
    return next((changes[name] for name in names if name in changes), None)
