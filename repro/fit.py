"""Which cases cannot run on a cluster, before anything starts: no equal places for the ranks, or too little memory."""

from __future__ import annotations

from collections.abc import Callable

from repro.cases import Case
from repro.cluster import Cluster
from repro.hardware import HardwareError, describe
from repro.locales import N_
from repro.model import expect
from repro.placement import place

PLACES = N_("{ranks} ranks cannot be shared out equally among {nodes} nodes with {per_node} GPUs each")
MEMORY = N_(
    "needs about {needed:.0f} MiB on a GPU that has {present}; the performance model estimates it from parameters, "
    "optimizer state and activations, within {uncertainty:.0%} for nine in ten published cases"
)


def misfit_on(cluster: Cluster) -> Callable[[Case], dict | None]:
    """What says why a case cannot run on a cluster, as `message` and `values`, None if it can.

    A case is refused for its memory only where the whole range of the estimate lies above what is there, and never on
    a GPU that the model does not know.
    """
    try:
        hardware = describe(str(cluster.folder)) if cluster.gpu else None
    except HardwareError:
        hardware = None

    def misfit(case: Case) -> dict | None:
        if place(cluster, case.layout.world_size) is None:
            return {
                "message": PLACES,
                "values": {
                    "ranks": case.layout.world_size,
                    "nodes": len(cluster.nodes),
                    "per_node": cluster.gpus_per_node,
                },
            }
        expected = expect(case, hardware) if hardware else None
        if expected and expected.memory_mib * (1 - expected.memory_uncertainty) > hardware.gpu.memory_mib:
            return {
                "message": MEMORY,
                "values": {
                    "needed": expected.memory_mib,
                    "present": hardware.gpu.memory_mib,
                    "uncertainty": expected.memory_uncertainty,
                },
            }
        return None

    return misfit
