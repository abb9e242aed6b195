"""Inventories of simulated nodes that differ from the nodes' own in some variables."""

import json
import shutil
from pathlib import Path

from repro.cluster.cluster import Cluster, load_cluster


def changed_inventory(nodes, folder: Path, **variables) -> Cluster:
    """A cluster of these nodes with further variables, in a folder of its own."""
    shutil.copytree(nodes.inventory, folder)
    given = json.loads((folder / "group_vars/all.yml").read_text()) | variables
    (folder / "group_vars/all.yml").write_text(json.dumps(given))
    return load_cluster(folder)
