"""Disks of provisioned nodes, kept so that later tests start from them: named by what provisioning depends on.

`test_provision.py` provisions bare nodes each time and keeps their disks; other tests take them, also in later sessions,
as long as nothing of `PARTS` has changed. While it makes them in another process, they wait for it. Without such disks they
provision bare nodes themselves.
"""

import hashlib
from contextlib import AbstractContextManager

from repro.cluster.cluster import load_cluster
from repro.cluster.provision import provision
from repro.simulation.engine import SimulationEngine
from repro.simulation.images import node_image
from repro.simulation.nodes import Nodes
from repro.simulation.places import HOME
from tests.e2e.launching import locked
from tests.support import simulated
from tests.support.paths import ROOT

NAME = "provisioned"
PARTS = (
    "ansible/*.*",
    "ansible/callback/*.py",
    "ansible/library/*.py",
    "ansible/roles/**/*.*",
    "docker/**/*.*",
    "repro/cluster/provision.py",
    "repro/simulation/*.py",
    "tests/e2e/test_provision.py",
    "tests/e2e/vendor.py",
    "uv.lock",
)
"""All that decides what provisioning leaves on a node, besides the node's image: roles, pins, inventory, Ansible."""


def kept_name(engine: SimulationEngine) -> str:
    """The name of the disks that provisioning as it is now leaves."""
    content = hashlib.sha256(f"{node_image(engine, 'bare')} {engine.host}".encode())
    for path in sorted({path for part in PARTS for path in ROOT.glob(part)}):
        if path.is_file() and path.suffix != ".pyc":
            content.update(f"{path.relative_to(ROOT)} ".encode() + path.read_bytes())
    return f"{NAME}-{content.hexdigest()[:12]}"


def being_made() -> AbstractContextManager[None]:
    """Held while disks of now are made; whoever wants them waits for its end."""
    return locked(HOME / f"{NAME}.lock")


def keep(nodes: Nodes) -> None:
    """Keep the disks of nodes that were just provisioned, and none of before."""
    name, images = kept_name(nodes.engine), ("image", "ls", "--format", "{{.Repository}}:{{.Tag}}")
    old = nodes.engine.docker(*images, "--filter", f"reference={NAME}-*").split()
    if old:
        nodes.engine.docker("image", "rm", *old, check=False)
    simulated.keep(nodes, name)


def provisioned(make_nodes, engine: SimulationEngine) -> Nodes:
    """Two nodes that are provisioned, with the trainer image in their engines."""
    name = kept_name(engine)
    with being_made():
        there = simulated.are_kept(engine, name, 2)
    if there:
        return make_nodes("provisioned", 2, kind="bare", image=True, disks=name)
    nodes = make_nodes("provisioned", 2, kind="bare", image=True)
    done = provision(load_cluster(nodes.inventory), quiet=True)
    assert done.succeeded, done
    return nodes
