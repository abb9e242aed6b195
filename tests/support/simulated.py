"""What tests do with simulated nodes beside bringing them up: keep their disks, read what they recorded, boot another kernel."""

import json
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor

from repro.simulation import machines, nodes
from repro.simulation.engine import SimulationEngine, running
from repro.simulation.machine_disk import Disk
from repro.simulation.machines import RECORD, Machines
from repro.simulation.nodes import THIRD, Nodes
from repro.simulation.owners import started


def process_label() -> str:
    """An owner's name for nodes of this very process: it tells when the process is gone."""
    return f"process {os.getpid()} {started(os.getpid())}"


def is_gone(owner: str) -> bool:
    """Whether an owner was a process that has ended."""
    kind, *process = owner.split()
    return kind == "process" and started(process[0]) != process[1]


def remove_leftover_nodes() -> list[str]:
    """Remove the clusters of processes that are gone; their names."""
    engine = running()
    left = [name for name, owner in (engine.clusters() if engine else {}).items() if is_gone(owner)]
    for name in left:
        nodes.attach(name).down()
    return left


def remove_leftover_machines() -> list[str]:
    """Remove the machines of processes that are gone; the names of their clusters."""
    there = [machines.attach(path.parent.name) for path in machines.MACHINES.glob(f"*/{RECORD}")]
    left = [each for each in there if is_gone(each.owner)]
    for each in left:
        each.down()
    return [each.name for each in left]


def keep(kept: Nodes, name: str) -> None:
    """Keep the nodes' disks as they are, without what their engines hold, for `up` to start others from."""

    def commit(node: str) -> None:
        kept.root(node, "sh", "-ec", "mkdir -p /simulation/kept/etc; cp /etc/hosts /simulation/kept/etc/")
        label = f"LABEL {THIRD}={kept.third}"
        kept.engine.docker("commit", "--change", label, kept.container(node), f"{name}:{node}")
        kept.root(node, "rm", "-r", "/simulation/kept")

    with ThreadPoolExecutor() as pool:
        list(pool.map(commit, kept.names))


def are_kept(engine: SimulationEngine, name: str, count: int) -> bool:
    """Whether the disks kept under a name are enough to start `count` nodes: whoever kept them may have been interrupted."""
    there = engine.docker("image", "ls", "--format", "{{.Tag}}", name).split()
    return {f"node{number}" for number in range(1, count + 1)} <= set(there)


def containers_asked_for(cluster: Nodes, node: str) -> list[dict]:
    """What each container that this node's engine started had asked for; see repro/simulation/node/sim-runc.py."""
    record = cluster.root(node, "sh", "-c", "cat /var/log/sim-runc.jsonl 2>/dev/null || true")
    return [json.loads(line) for line in record.splitlines()]


def use_kernel(cluster: Machines, node: str, release: str) -> None:
    """Boot a node from now on with a kernel that it has installed; "" is the one that machines have."""
    own = cluster.own_kernel(node)
    if not release:
        shutil.rmtree(own.folder)
        return
    disk = Disk(cluster.folder / f"{node}.making")
    disk.folder.mkdir()
    for source, target in ((f"vmlinuz-{release}", disk.kernel), (f"initrd.img-{release}", disk.initrd)):
        with open(target, "wb") as file:
            command = ["ssh", "-F", cluster.ssh_config, node, f"sudo cat /boot/{source}"]
            subprocess.run(command, stdout=file, check=True)
    disk.folder.rename(own.folder)
