"""The variables that tell NCCL and OneFlow on a node which network to use, from the cluster's inventory."""

from __future__ import annotations

from repro.cluster import Cluster

NVLS_OFF = {"NCCL_NVLS_ENABLE": "0"}


def network_environment(cluster: Cluster, device: str, nodes: int, ranks: int) -> dict[str, str]:
    """What every rank on a node gets besides the launcher's own variables.

    Sources of the names: NCCL's user guide, "Environment Variables". NCCL prefixes `=` for exact names, else `mlx5_1`
    would take `mlx5_10` too. Its log then says which network it used.

    Parameters
    ----------
    device : "cuda" or "cpu"; on the CPU there is no NCCL.
    nodes, ranks : how many the attempt has.
    """
    found = {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    if device != "cuda":
        return found
    if ranks > 1:
        found |= {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET"}
    if nodes > 1:
        found["NCCL_SOCKET_IFNAME"] = f"={cluster.interface}"
        found |= _infiniband(cluster) if cluster.hca else {"NCCL_IB_DISABLE": "1"}
    if cluster.stack == "cu102-modern":
        found |= NVLS_OFF
    return found


def _infiniband(cluster: Cluster) -> dict[str, str]:
    found = {"NCCL_IB_HCA": f"={cluster.hca}"}
    if cluster.gid_index is not None:
        found["NCCL_IB_GID_INDEX"] = str(cluster.gid_index)
    return found
