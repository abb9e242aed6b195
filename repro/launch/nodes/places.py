"""The nodes of a cluster as places for attempts that run side by side."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from repro.cluster.cluster import Cluster
from repro.launch.base import Places
from repro.launch.placement import place
from repro.perfmodel import hardware
from repro.perfmodel.plan_table import attempt_s
from repro.perfmodel.predict import expect
from repro.planning.derived import case_of
from repro.planning.schedule import Block, FreeNodes
from repro.runs.unit import Unit


class NodePlaces(Places):
    """Hands out nodes; see `repro.launch.base.Places`.

    Parameters
    ----------
    spread : whether attempts take as many nodes as possible, as smoke runs do.
    is_lost : whether a node is known to be out of reach. Attempts that can do without it leave it alone, so that a
        broken node does not fail one attempt after another.
    """

    are_nodes = True

    def __init__(self, cluster: Cluster, spread: bool, is_lost: Callable[[str], bool] = lambda name: False):
        self._cluster, self._spread, self._is_lost = cluster, spread, is_lost
        self._free = FreeNodes(node.name for node in cluster.nodes)
        self._hardware: hardware.ClusterModel | None = None
        with contextlib.suppress(hardware.HardwareError):
            self._hardware = hardware.of_inventory(cluster)
        self._seconds: dict[str, float] = {}

    def block(self, unit: Unit, repeat: int) -> Block:
        """How many nodes a unit takes, and the seconds that the performance model expects; 0 where it knows none."""
        if unit.name not in self._seconds:
            self._seconds[unit.name] = self._expected_s(unit)
        return Block(unit.name, repeat, self._count(unit.world_size), self._seconds[unit.name])

    def take(self, ranks: int) -> tuple[str, ...] | None:
        return self._free.take(self._count(ranks), lambda name: not self._is_lost(name))

    def give_back(self, names: Sequence[str]) -> None:
        self._free.give_back(names)

    def _count(self, ranks: int) -> int:
        placement = place(self._cluster, ranks, self._spread)
        if placement is None:
            raise ValueError(f"{ranks} ranks do not fit on {self._cluster.name}")
        return len(placement.nodes)

    def _expected_s(self, unit: Unit) -> float:
        case = case_of(unit)
        if self._hardware is None or case is None:
            return 0.0
        return attempt_s(unit.config.iterations, expect(case, self._hardware, program=unit.program))
