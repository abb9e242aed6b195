"""Inventories of simulated nodes that differ from the nodes' own in some variables."""

import shutil
from pathlib import Path

import yaml

from repro.cluster.cluster import Cluster, load_cluster
from tests.support.paths import ROOT


def changed_inventory(nodes, folder: Path, **variables) -> Cluster:
    """A cluster of these nodes with further variables, in a folder of its own."""
    shutil.copytree(nodes.inventory, folder)
    sim = yaml.safe_load((ROOT / "ansible/inventories/sim/group_vars/all.yml").read_text())
    given = yaml.safe_load((folder / "group_vars/all.yml").read_text()) | sim | variables
    (folder / "group_vars/all.yml").write_text(yaml.safe_dump(given))
    return load_cluster(folder)
