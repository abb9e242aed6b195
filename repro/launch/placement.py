"""Which nodes of a cluster hold the ranks of a layout, and how many each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from repro.cluster.cluster import Cluster, Node
from repro.perfmodel.hardware import HardwareError, of_inventory
from repro.perfmodel.predict import expect
from repro.planning.derived import trained_in
from repro.published.cases import Case
from repro.runs.failures import Failure
from repro.utils.i18n import N_


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
    2 ranks on 2 nodes are one per node, 4 on 2 are two per node, 4 on 3 are two on each of two.
    """
    counts = range(1, min(len(cluster.nodes), ranks) + 1)
    fitting = [count for count in counts if ranks % count == 0 and ranks // count <= cluster.gpus_per_node]
    if not fitting:
        return None
    chosen = max(fitting) if spread else min(fitting)
    return Placement(cluster.nodes[:chosen], ranks // chosen)


PLACES = N_("{ranks} ranks cannot be shared out equally among {nodes} nodes with {per_node} GPUs each")
MEMORY = N_(
    "needs about {needed:.0f} MiB on a GPU that has {present}; the performance model estimates it from parameters, "
    "optimizer state and activations, within a factor of {factor:.2f} for nine in ten cases like it"
)


def unplaced(cluster: Cluster, ranks: int) -> Failure | None:
    """Why this number of ranks cannot be placed on a cluster; None if they can."""
    if place(cluster, ranks):
        return None
    sizes = {"ranks": ranks, "nodes": len(cluster.nodes), "per_node": cluster.gpus_per_node}
    return Failure(PLACES, sizes)


def misfit_on(cluster: Cluster) -> Callable[[Case], Failure | None]:
    """What says why a case cannot run on a cluster, None if it can.

    A case is refused for its memory only where the whole range of the estimate lies above what is there, and never on
    a GPU that the model does not know.
    """
    try:
        hardware = of_inventory(cluster)
    except HardwareError:
        hardware = None

    def misfit(case: Case) -> Failure | None:
        if reason := unplaced(cluster, case.layout.world_size):
            return reason
        held = replace(case, precision=trained_in(case))  # TF32 is a matter of speed, not of memory
        expected = expect(held, hardware) if hardware else None
        if hardware and expected and expected.memory_mib / (1 + expected.memory_uncertainty) > hardware.gpu.memory_mib:
            values = {
                "needed": expected.memory_mib,
                "present": hardware.gpu.memory_mib,
                "factor": 1 + expected.memory_uncertainty,
            }
            return Failure(MEMORY, values)
        return None

    return misfit
