"""The published cluster as its inventory describes it, without reading that."""

from pathlib import Path

from repro.cluster.cluster import Cluster, Image, Node

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
