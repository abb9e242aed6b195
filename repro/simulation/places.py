"""Where simulated nodes are kept, and the inventories of those that are up."""

from pathlib import Path

from repro.utils.paths import CACHE

HOME = CACHE / "simulation"
CLUSTERS = HOME / "clusters"
MACHINES = HOME / "machines"
"""What virtual machines have written to their disks, by the name of their cluster, while they are up."""


def simulated_inventory(name: str) -> Path:
    """The folder of the inventory of simulated nodes, by the name of their cluster; it is there while they are up."""
    return CLUSTERS / name


def simulated_inventories() -> list[str]:
    """The names of all clusters of simulated nodes."""
    return sorted(path.parent.name for path in CLUSTERS.glob("*/hosts.yml"))
