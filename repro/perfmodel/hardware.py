"""GPUs, nodes, networks and clusters of the performance model, read from data files."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from repro.cluster.inventory import inventory_names, is_inventory
from repro.published.figures import CLUSTERS, load_published_cluster
from repro.utils.errors import ReproError
from repro.utils.paths import DATA
from repro.utils.printable import one_line

if TYPE_CHECKING:
    from repro.cluster import cluster

FOLDER = DATA / "hardware"
MOST_NODES = 4096


class HardwareError(ReproError):
    """A cluster or a model's shape that cannot be described: an unknown name, GPU or network, or no such shape."""


@dataclass(frozen=True)
class GpuModel:
    """One kind of GPU: its architecture's name, dense peaks at its highest clock (GHz), memory bandwidth (GB/s), and its
    NVLinks with the rate of one in one direction.
    """

    name: str
    generation: str
    tensor_tflops: float
    fp32_tflops: float
    bandwidth_gbs: float
    memory_mib: int
    multiprocessors: int
    clock_ghz: float
    links: int
    link_gbs: float

    @property
    def issue_ghz(self) -> float:
        """Cycles of all multiprocessors, in 1e9 a second: what limits kernels that neither memory nor arithmetic does."""
        return self.multiprocessors * self.clock_ghz

    def peak_flops(self, precision: str) -> float:
        """Peak of the matrix units in FLOP/s: tensor cores for "amp", the plain cores for "fp32" (TF32 is off)."""
        return 1e12 * (self.tensor_tflops if precision == "amp" else self.fp32_tflops)


@dataclass(frozen=True)
class NodeModel:
    """GPUs and how they are joined: `links[i][j]` NVLinks between two, or None where all meet in a switch."""

    gpu: GpuModel
    gpus: int
    links: tuple[tuple[int, ...], ...] | None
    ports: int
    port_gbs: float


@dataclass(frozen=True)
class ClusterModel:
    """Equal nodes on one network."""

    name: str
    node: NodeModel
    nodes: int

    @property
    def gpu(self) -> GpuModel:
        return self.node.gpu

    @property
    def gpus(self) -> int:
        return self.nodes * self.node.gpus


def describe(name: str) -> ClusterModel:
    """A published cluster or an inventory by name, or `NODExN`: N nodes of a kind in nodes.toml.

    HardwareError for an unknown cluster, or if its GPU is unknown.
    """
    if name in {path.stem for path in CLUSTERS.glob("*.toml")}:
        return _published(name, load_published_cluster(name))
    if is_inventory(name):
        return _inventory(name)
    kinds = {kind: node for kind, node in _read("nodes.toml").items() if kind != "fabric"}
    match = re.fullmatch(r"(.+)x([1-9][0-9]*)", name)
    if not match or match[1] not in kinds:
        named = sorted({path.stem for path in CLUSTERS.glob("*.toml")} | set(inventory_names()))
        there = ", ".join([*named, *(f"{kind}xN" for kind in kinds)])
        raise HardwareError(f"CLUSTER={one_line(name)}: no such cluster; there are {there} (N nodes)")
    if len(match[2]) > len(str(MOST_NODES)) or int(match[2]) > MOST_NODES:
        raise HardwareError(f"CLUSTER={one_line(name)}: at most {MOST_NODES} nodes")
    return ClusterModel(name, _node(kinds[match[1]]), int(match[2]))


def from_devices(gpu_name: str, gpus: int, nodes: int = 1, port_gbs: float = 12.5) -> ClusterModel:
    """The cluster of nodes with `gpus` GPUs called `gpu_name` by nvidia-smi, all joined by a switch.

    HardwareError for a GPU that gpus.toml does not know.
    """
    gpu = _gpu_by_name(gpu_name)
    return ClusterModel(
        f"{gpu.name}x{gpus * nodes}", NodeModel(gpu, gpus, links=None, ports=1, port_gbs=port_gbs), nodes
    )


def _published(name: str, described: dict) -> ClusterModel:
    hardware = described["hardware"]
    links = tuple(
        tuple(int(link[2:]) if link.startswith("NV") else 0 for link in row[: hardware["gpus_per_node"]])
        for row in described["topology"]["links"][: hardware["gpus_per_node"]]
    )
    ports, rate = hardware["network_ports_per_node"], _network_rate(hardware["network"])
    node = NodeModel(_gpu_by_name(hardware["gpu"]), hardware["gpus_per_node"], links=links, ports=ports, port_gbs=rate)
    return ClusterModel(name, node, hardware["nodes"])


def _inventory(name: str) -> ClusterModel:
    from repro.cluster import cluster

    try:
        described = cluster.load_cluster(name)
    except cluster.ClusterError as error:
        raise HardwareError(str(error)) from error
    return of_inventory(described)


def of_inventory(described: cluster.Cluster) -> ClusterModel:
    """The cluster that an inventory describes; HardwareError if it has no GPUs, or unknown ones."""
    if not described.gpu:
        raise HardwareError(f"{described.variables}: cluster_gpu is empty; the model describes clusters of GPUs only")
    modelled = from_devices(described.gpu, described.gpus_per_node, len(described.nodes), described.network_gbits / 8)
    ports = max(1, len(described.hca.split(",")))
    return replace(modelled, name=described.name, node=replace(modelled.node, ports=ports))


def _node(data: dict) -> NodeModel:
    fabrics = _read("nodes.toml")["fabric"]
    links = fabrics[data["fabric"]]["links"] if data["fabric"] in fabrics else None
    rate = _read("networks.toml")[data["network"]]["port_gbs"]
    return NodeModel(
        _gpu(data["gpu"]), data["gpus"], links=links and tuple(map(tuple, links)), ports=data["ports"], port_gbs=rate
    )


def _gpu(name: str) -> GpuModel:
    data = {key: value for key, value in _read("gpus.toml")[name].items() if key not in ("names", "source")}
    return GpuModel(name, **data)


def _gpu_by_name(printed: str) -> GpuModel:
    gpus = _read("gpus.toml")
    for name, gpu in gpus.items():
        if printed in gpu["names"]:
            return _gpu(name)
    names = ", ".join(alias for gpu in gpus.values() for alias in gpu["names"])
    raise HardwareError(f"{printed}: no description of this GPU in {FOLDER.name}/gpus.toml; it knows {names}")


def _network_rate(printed: str) -> float:
    for network in _read("networks.toml").values():
        if any(name in printed for name in network["names"]):
            return network["port_gbs"]
    raise HardwareError(f"{printed}: no description of this network in {FOLDER.name}/networks.toml")


@cache
def _read(file: str) -> dict:
    with open(Path(FOLDER) / file, "rb") as stream:
        return tomllib.load(stream)
