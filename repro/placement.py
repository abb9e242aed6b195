"""Which nodes of a cluster hold the ranks of a layout, and how many each."""

from __future__ import annotations

from dataclasses import dataclass

from repro.cluster import Cluster, Node


@dataclass(frozen=True)
class Placement:
    """The nodes in the order of their ranks; each holds `per_node` ranks that follow each other."""

    nodes: tuple[Node, ...]
    per_node: int

    @property
    def world_size(self) -> int:
        return len(self.nodes) * self.per_node

    def ranks(self, index: int) -> range:
        """The ranks of the node at a position."""
        return range(index * self.per_node, (index + 1) * self.per_node)

    def node_of(self, rank: int) -> Node:
        """Where a rank is."""
        return self.nodes[rank // self.per_node]


def place(cluster: Cluster, ranks: int, spread: bool = False) -> Placement | None:
    """The first nodes of a cluster that hold `ranks` equally, None if there are none.

    The fewest nodes, as published cases are run; with `spread` the most, so that even a tiny run crosses the network:
    2 ranks on 2 nodes are one a node, 4 on 2 are two a node, 4 on 3 are two on each of two.
    """
    counts = range(1, min(len(cluster.nodes), ranks) + 1)
    fitting = [count for count in counts if ranks % count == 0 and ranks // count <= cluster.gpus_per_node]
    if not fitting:
        return None
    chosen = max(fitting) if spread else min(fitting)
    return Placement(cluster.nodes[:chosen], ranks // chosen)
