"""The published cluster as its inventory describes it, without reading that; and the inventory of a cluster without GPUs."""

import json
from pathlib import Path

from repro.cluster.cluster import Cluster, Image, Node
from repro.simulation.nodes import cpu_cluster

DIGEST = "sha256:" + "a" * 64
NODES = tuple(Node(f"n{i}", f"10.0.0.{i}", 22, "alice", 8) for i in range(1, 5))
V100 = Cluster(
    name="v100x32",
    folder=Path("inventories/v100x32"),
    nodes=NODES,
    gpu="Tesla V100-SXM2-16GB",
    gpus_per_node=8,
    interface="ib0",
    hca="mlx5_0",
    gid_index=None,
    network_gbits=100,
    stack="cu102",
    image=Image("oneflow-reproduction:cu102", DIGEST),
    data="/data/ofrecord",
    shared_results="",
    work="/var/lib/w",
    port=29500,
    runtime_name="docker",
    launcher="ssh",
    accepted=frozenset(),
    known_hosts=Path("known_hosts"),
    private_key=None,
    python="/usr/bin/python3",
)


def cpu_inventory(folder: Path) -> Path:
    """Write the inventory of two nodes without GPUs, at addresses that nobody has."""
    hosts = {f"node{number}": {"ansible_host": f"192.0.2.{30 + number}", "ansible_user": "runner"} for number in (1, 2)}
    (folder / "group_vars").mkdir(parents=True)
    (folder / "hosts.yml").write_text(json.dumps({"nodes": {"hosts": hosts}}))
    (folder / "group_vars/all.yml").write_text(json.dumps(cpu_cluster("")))
    return folder
