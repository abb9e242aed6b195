"""Debian's Slurm on simulated nodes: the controller on the first, a partition `main` of all, user `runner` may submit.

Each node's Slurm has its processors, two GPUs that nothing is behind, and no accounts are kept, as on many small clusters.
"""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import yaml

CONFIGURATION = """
ClusterName=sim
SlurmctldHost=node1
SlurmUser=slurm
AuthType=auth/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
ReturnToService=2
KillWait=10
SchedulerParameters=sched_interval=5
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/lib/slurm/slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
"""
KEY = "0123456789abcdef" * 8


def start(nodes, patience: int = 1) -> None:
    """Configure and start Slurm on all nodes, which have it installed; `patience` is for slow ones, as in an inventory."""
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda node: _configure(nodes, node, patience), nodes.names))
    nodes.root("node1", "systemctl", "restart", "slurmctld")
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda node: nodes.root(node, "systemctl", "restart", "slurmd"), nodes.names))
    all_idle = f"[ $(sinfo -h -N -t idle -o %N | wc -l) -eq {len(nodes.names)} ]"
    nodes.root(
        "node1",
        "sh",
        "-c",
        f"for i in $(seq {200 * patience}); do {all_idle} && exit; sleep 0.1; done; sinfo -R; exit 1",
    )


def _configure(nodes, node, patience: int) -> None:
    processors = nodes.root(node, "nproc")
    seconds = {"SlurmctldTimeout": 20, "SlurmdTimeout": 20, "MessageTimeout": 10}
    limits = "".join(f"{name}={limit * patience}\n" for name, limit in seconds.items())
    nodes.root(node, "install", "-d", "-o", "slurm", "/var/lib/slurm", "/var/lib/slurm/slurmctld")
    nodes.root(node, "install", "-d", "/var/lib/slurm/slurmd")
    machines = "".join(
        f"NodeName={name} NodeAddr={nodes.address(name)} CPUs={processors} RealMemory=1000 Gres=gpu:2 State=UNKNOWN\n"
        for name in nodes.names
    )
    partition = f"PartitionName=main Nodes={','.join(nodes.names)} Default=YES MaxTime=INFINITE State=UP\n"
    write(nodes, node, "/etc/slurm/slurm.conf", CONFIGURATION + limits + machines + partition)
    write(nodes, node, "/etc/slurm/cgroup.conf", "CgroupPlugin=cgroup/v1\n")
    nodes.root(node, "sh", "-ec", "for number in 0 1; do mknod -m 666 /dev/gpu$number c 1 3; done")
    write(nodes, node, "/etc/slurm/gres.conf", "Name=gpu File=/dev/gpu[0-1]\n")
    write(nodes, node, "/etc/munge/munge.key", KEY)
    nodes.root(
        node, "sh", "-ec", "chown munge: /etc/munge/munge.key; chmod 400 /etc/munge/munge.key; systemctl restart munge"
    )


def hide_compute_nodes(inventory: Path, user: str = "runner") -> None:
    """Let an inventory name addresses that nobody has for the nodes, and the first of them as the login node."""
    hosts = yaml.safe_load((inventory / "hosts.yml").read_text())
    nodes = hosts["nodes"]["hosts"]
    hosts["login"] = {"hosts": {"front": dict(nodes["node1"], ansible_user=user)}}
    for number, variables in enumerate(nodes.values(), 1):
        variables |= {"ansible_host": f"192.0.2.{number}", "ansible_user": user}
    (inventory / "hosts.yml").write_text(yaml.safe_dump(hosts, sort_keys=False))


def write(nodes, node: str, path: str, text: str) -> None:
    """Put a file on a node."""
    nodes.root(node, "sh", "-c", 'cat > "$1"', "sh", path, input=text)
