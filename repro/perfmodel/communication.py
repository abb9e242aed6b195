"""How long collectives and transfers take: ring and tree all-reduce over NVLink and InfiniBand.

The structure is NCCL's own cost model (src/graph/tuning.cc of NCCL 2.7 to 2.8): latency by the number of steps inside
and between nodes, plus bytes over the bandwidth of the slowest link; NCCL too takes the quicker of ring and tree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import log2

from repro.perfmodel.hardware import ClusterModel, NodeModel

RING_START_US = 8.4  # tuning.cc, baseLat and hwLat, protocol "simple"
RING_STEP_US = {"link": 3.4, "pci": 5.7, "network": 9.6}
RING_PLATEAU = 1.9  # tuning.cc, "plateau effect of ring" between nodes
TREE_STEP_US = {"link": 28.0, "pci": 28.0, "network": 50.0}
TREE_SHARE = 0.9  # tuning.cc, of the bandwidth of a ring
BETWEEN_SOCKETS_GBS = 9.0  # NCCL's src/graph/topo.h, SKL_QPI
BUCKET_BYTES = 16 * 2**20  # OneFlow's nccl_fusion_threshold_mb, 16 by default


@dataclass(frozen=True)
class Path:
    """The links of a group of ranks: `gbs` is the bandwidth of a ring through all of them."""

    ranks: int
    nodes: int
    inside: str
    gbs: float


@lru_cache(maxsize=65536)
def path(cluster: ClusterModel, first: int, stride: int, count: int, network: float) -> Path:
    """The path between `count` ranks starting at `first`, `stride` apart; ranks fill nodes in order.

    Between nodes a ring gets the bandwidth of the node's ports (`network` of their rate), shared by all groups that
    cross them at the same time: the ranks of one group on a node share one ring.
    """
    node = cluster.node
    ranks = range(first, first + stride * count, stride)
    by_node = Counter(rank // node.gpus for rank in ranks)
    here = [rank % node.gpus for rank in ranks if rank // node.gpus == first // node.gpus]
    inside, gbs = _inside(node, here)
    if len(by_node) == 1:
        return Path(count, 1, inside, gbs)
    rings = node.gpus / max(by_node.values())
    port = network * node.ports * node.port_gbs / rings
    return Path(count, len(by_node), inside, min(gbs, port))


def _inside(node: NodeModel, gpus: Sequence[int]) -> tuple[str, float]:
    """The kind of link between GPUs of one node and the bandwidth of all rings through them.

    A directed ring takes one link out of and one into every GPU, so there are as many rings as the GPU with the
    fewest NVLinks to the others has; NCCL finds that many in the hybrid cube mesh.
    """
    if len(gpus) < 2:
        return "link", float("inf")
    if node.links is None:
        return "link", node.gpu.links * node.gpu.link_gbs
    rings = min(sum(node.links[one][other] for other in gpus) for one in gpus)
    return ("link", rings * node.gpu.link_gbs) if rings else ("pci", BETWEEN_SOCKETS_GBS)


def all_reduce_s(way: Path, size: float) -> float:
    """Seconds to sum `size` bytes over a group, by the quicker of ring and tree.

    Ring: 2(n-1) steps and 2(n-1)/n of the bytes (Patarasuk and Yuan, 2009). Tree: up and down, 2 log2(nodes) steps
    between nodes and twice the bytes (NCCL's double binary trees).
    """
    if way.ranks < 2 or size <= 0:
        return 0.0
    ring = 2 * ring_half_s(way, size)
    if way.nodes < 2:
        return ring
    steps = (way.ranks / way.nodes - 1) * TREE_STEP_US[way.inside] + log2(way.nodes) * TREE_STEP_US["network"]
    tree = 2e-6 * steps + 2 * size / (TREE_SHARE * way.gbs * 1e9)
    return min(ring, tree)


def ring_half_s(way: Path, size: float) -> float:
    """Seconds of a reduce-scatter or an all-gather of `size` bytes: each is half an all-reduce."""
    if way.ranks < 2 or size <= 0:
        return 0.0
    between = way.nodes - 1
    steps = (way.ranks - 1 - between) * RING_STEP_US[way.inside] + between * RING_STEP_US["network"]
    latency = (RING_START_US / 2 + steps) * (RING_PLATEAU if way.nodes > 1 else 1)
    return latency * 1e-6 + (way.ranks - 1) / way.ranks * size / (way.gbs * 1e9)


def in_buckets_s(way: Path, size: float, one: Callable[[Path, float], float] = all_reduce_s) -> float:
    """Seconds of a collective over gradients or parameters, which go in buckets of 16 MiB."""
    buckets = max(1, round(size / BUCKET_BYTES))
    return buckets * one(way, size / buckets)


def transfer_s(cluster: ClusterModel, size: float, sharers: int, network: float) -> float:
    """Seconds to send `size` bytes to a peer: over one NVLink, or through ports shared by `sharers` GPUs."""
    node = cluster.node
    if not sharers:
        return RING_STEP_US["link"] * 1e-6 + size / (node.gpu.link_gbs * 1e9)
    rate = network * node.ports * node.port_gbs / sharers
    return RING_STEP_US["network"] * 1e-6 + size / (rate * 1e9)
