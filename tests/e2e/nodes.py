"""Simulated nodes: containers with systemd, sshd and, unless bare, an engine of their own, on their own network.

They are called node1, node2, …; whoever is root on this machine reaches them as user `runner`, with the key and the
host keys that an inventory or an SSH configuration from here names. On the command line:

    python -m tests.e2e.nodes up NAME COUNT [--bare | --image]
    python -m tests.e2e.nodes inventory NAME [variable=value …]     (or ssh-config NAME; prints the path)
    python -m tests.e2e.nodes down NAME                             (or list; or engine-stop, which ends all)
"""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.e2e.engine import HOME, LABEL, Engine, EngineError, exclusive, running, start, stop
from tests.e2e.images import node_image, trainer_image
from tests.e2e.seed import seed

KEY = HOME / "id_ed25519"
WORK = "/var/lib/oneflow-reproduction"
FIRST = 11
RIGHTS = (
    "--cap-add",
    "ALL",
    "--cap-drop",
    "SYS_RESOURCE",
    "--security-opt",
    "seccomp=unconfined",
    "--security-opt",
    "apparmor=unconfined",
    "--security-opt",
    "systempaths=unconfined",
    "--device-cgroup-rule",
    "a *:* rwm",
    "--cgroupns",
    "private",
    "--shm-size",
    "1g",
    "--tmpfs",
    "/run",
    "--tmpfs",
    "/run/lock",
    "--tmpfs",
    "/tmp:exec",
)
READY_S = 180


@dataclass(frozen=True)
class Nodes:
    """The nodes of one cluster, up or not.

    `third` is the third number of their addresses, `image` the ID of the trainer image in their engines or empty,
    `options` are further ones for `docker run`.
    """

    engine: Engine
    name: str
    third: int
    count: int
    kind: str = "engine"
    image: str = ""
    options: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        return [f"node{number}" for number in range(1, self.count + 1)]

    @property
    def folder(self) -> Path:
        return HOME / "clusters" / self.name

    def address(self, node: str) -> str:
        return f"10.{self.engine.second}.{self.third}.{FIRST - 1 + int(node.removeprefix('node'))}"

    def container(self, node: str) -> str:
        """The name under which the engine around the nodes knows a node."""
        return f"{self.name}-{node}"

    def root(self, node: str, *argv, check=True, **options) -> str:
        """Run something on a node as root, past its sshd; what it printed."""
        given = ("--interactive",) if "input" in options else ()
        return self.engine.docker("exec", *given, self.container(node), *argv, check=check, **options)

    def ssh(self, node: str, *argv, **options) -> subprocess.CompletedProcess:
        """Run something on a node as `runner` through SSH, its host key checked."""
        command = ["ssh", "-F", str(self.ssh_config), node, *argv]
        return subprocess.run(command, capture_output=True, text=True, **options)

    @property
    def ssh_config(self) -> Path:
        return self.folder / "ssh_config"

    @property
    def inventory(self) -> Path:
        return self.folder / "inventory"

    def containers_asked_for(self, node: str) -> list[dict]:
        """What each container that this node's engine started had asked for; see node/sim-runc.py."""
        record = self.root(node, "sh", "-c", "cat /var/log/sim-runc.jsonl 2>/dev/null || true")
        return [json.loads(line) for line in record.splitlines()]

    def start_node(self, node: str) -> None:
        """Start a node on a new disk, with the trainer image if it is to have it, and do not wait for it."""
        name = self.container(node)
        names = [] if self.kind == "bare" else self.names
        self.engine.docker("volume", "create", name)
        if self.image:
            seed(HOME / "data", HOME / "data/volumes" / name / "_data", self.image)
        self.engine.docker(
            "run",
            "--detach",
            "--name",
            name,
            "--hostname",
            node,
            "--network",
            self.name,
            "--ip",
            self.address(node),
            "--label",
            f"{LABEL}={self.name}",
            "--volume",
            f"{name}:/var/lib/docker",
            *RIGHTS,
            "--volume",
            f"{KEY}.pub:/simulation/authorized_keys:ro",
            "--env",
            f"SIM_HOST={self.engine.host}",
            "--env",
            f"SIM_DEBIAN={self.engine.web}/debian",
            *(f"--add-host={n}:{self.address(n)}" for n in names),
            *self.options,
            node_image(self.engine, self.kind),
        )

    def wait(self, *nodes: str) -> None:
        """Until the nodes, all of them if none is named, answer SSH and have their engine up if they have one."""
        with ThreadPoolExecutor() as pool:
            list(pool.map(self._wait_for, nodes or self.names))

    def _wait_for(self, node):
        started = (
            'until state=$(systemctl is-system-running --wait); do [ "$state" != degraded ] && sleep 0.2 || exit; done'
        )
        try:
            self.root(node, "timeout", READY_S, "sh", "-c", started)
        except EngineError:
            failed = self.root(node, "systemctl", "--failed", "--no-pager", check=False)
            raise EngineError(f"{self.container(node)} is not up after {READY_S} s:\n{failed}") from None

    def host_key(self, node: str) -> str:
        """A node's true host key, read on the node itself."""
        return self.root(node, "cat", "/etc/ssh/ssh_host_ed25519_key.pub")

    def write_ssh_config(self) -> None:
        """The configuration for ssh, and the inventory's known_hosts with the keys that the nodes have now."""
        self.inventory.mkdir(parents=True, exist_ok=True)
        known = "".join(f"{self.address(node)} {self.host_key(node)}\n" for node in self.names)
        (self.inventory / "known_hosts").write_text(known)
        lines = [f"Host {node}\n  HostName {self.address(node)}\n" for node in self.names]
        lines.append(
            f"Host *\n  User runner\n  IdentityFile {KEY}\n  IdentitiesOnly yes\n  IdentityAgent none\n"
            f"  StrictHostKeyChecking yes\n  UserKnownHostsFile {self.inventory}/known_hosts\n"
            "  GlobalKnownHostsFile none\n  ConnectTimeout 5\n  BatchMode yes\n"
        )
        self.ssh_config.write_text("".join(lines))

    def write_inventory(self, **variables) -> Path:
        """An inventory folder of these nodes, a CPU cluster unless `variables` say otherwise; its path."""
        hosts = {
            node: {
                "ansible_host": self.address(node),
                "ansible_port": 22,
                "ansible_user": "runner",
                "ansible_ssh_private_key_file": str(KEY),
            }
            for node in self.names
        }
        given = {**cpu_cluster(self.image), **variables}
        (self.inventory / "group_vars").mkdir(parents=True, exist_ok=True)
        inventory = yaml.safe_dump({"nodes": {"hosts": hosts}}, sort_keys=False)
        (self.inventory / "hosts.yml").write_text(inventory)
        (self.inventory / "group_vars/all.yml").write_text(yaml.safe_dump(given, sort_keys=False))
        return self.inventory

    def remove(self, *nodes: str) -> None:
        """Remove nodes with their disks, all of them if none is named."""
        names = [self.container(node) for node in nodes or self.names]
        self.engine.docker("rm", "--force", "--volumes", *names, check=False)
        self.engine.docker("volume", "rm", "--force", *names, check=False)

    def down(self) -> None:
        """Remove the nodes, their disks, their network and their files."""
        self.remove()
        self.engine.docker("network", "rm", self.name, check=False)
        subprocess.run(["rm", "-rf", str(self.folder)], check=True)


def cpu_cluster(image: str) -> dict:
    """The variables of a cluster of simulated nodes: no GPU, no InfiniBand, the trainer image (its ID) is there."""
    return {
        "cluster_gpu": "",
        "cluster_gpus_per_node": 2,
        "cluster_interface": "eth0",
        "cluster_hca": "",
        "cluster_gid_index": None,
        "cluster_network_gbits": 10,
        "cluster_stack": "cu102",
        "cluster_image": {"name": "oneflow-reproduction:cu102", "digest": image, "registry": "", "archive": ""},
        "cluster_data": "",
        "cluster_shared_results": "",
        "cluster_work": WORK,
        "cluster_port": 29500,
        "cluster_runtime": "docker",
        "cluster_launcher": "ssh",
        "cluster_accepted_differences": [],
    }


def up(
    name: str,
    count: int,
    kind: str = "engine",
    image: bool = False,
    owner: str = "command line",
    options: tuple[str, ...] = (),
) -> Nodes:
    """Bring up nodes, `bare`, with an `engine` or with `apptainer` besides, with the trainer `image` in their engines if asked for.

    `options` are further ones for `docker run`, such as ("--ulimit", "memlock=65536"). EngineError if the name is
    taken or this machine cannot do it.
    """
    with exclusive():
        engine = start()
        if name in engine.clusters():
            raise EngineError(f"{name} is up already; `python -m tests.e2e.nodes down {name}` removes it")
        trainer = trainer_image(engine) if image else ""
        node_image(engine, kind)
        nodes = Nodes(engine, name, _free_third(engine), count, kind, trainer, options)
        _make_key()
        what = json.dumps({"count": count, "kind": kind, "image": trainer, "options": options})
        subnet = f"10.{engine.second}.{nodes.third}.0/24"
        engine.docker(
            "network",
            "create",
            "--subnet",
            subnet,
            "--opt",
            f"com.docker.network.bridge.name=sim{nodes.third}",
            "--label",
            f"{LABEL}={name}",
            "--label",
            f"{LABEL}.owner={owner}",
            "--label",
            f"{LABEL}.nodes={what}",
            name,
        )
    try:
        with ThreadPoolExecutor() as pool:
            list(pool.map(nodes.start_node, nodes.names))
        nodes.wait()
        nodes.write_ssh_config()
    except BaseException:
        nodes.down()
        raise
    return nodes


def _free_third(engine):
    taken = engine.docker(
        "network",
        "inspect",
        "--format",
        "{{range .IPAM.Config}}{{.Subnet}}{{end}}",
        *engine.docker("network", "ls", "--quiet", "--filter", f"label={LABEL}").split() or ["host"],
    )
    used = {int(subnet.split(".")[2]) for subnet in taken.split()}
    return next(third for third in range(1, 255) if third not in used)


def _make_key():
    if not KEY.exists():
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "simulated nodes", "-f", str(KEY)]
        subprocess.run(command, check=True)


def attach(name: str) -> Nodes:
    """The nodes that were brought up under a name."""
    engine = running()
    if engine is None or name not in engine.clusters():
        known = f"; up are: {', '.join(engine.clusters())}" if engine and engine.clusters() else ""
        raise EngineError(f"{name} is not up{known}")
    network = engine.inspect("network", "inspect", name)
    third = int(network["IPAM"]["Config"][0]["Subnet"].split(".")[2])
    what = json.loads(network["Labels"][f"{LABEL}.nodes"])
    return Nodes(engine, name, third, what["count"], what["kind"], what["image"], tuple(what["options"]))


def process_label() -> str:
    """An owner's name for clusters of this very process: it tells when the process is gone."""
    return f"process {os.getpid()} {_started(os.getpid())}"


def _started(pid):
    """When a process started, in clock ticks since the machine did; None if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return None


def remove_leftovers() -> list[str]:
    """Remove the clusters of processes that are gone; their names."""
    engine, removed = running(), []
    for name, owner in engine.clusters().items() if engine else ():
        kind, *process = owner.split()
        if kind == "process" and _started(process[0]) != process[1]:
            attach(name).down()
            removed.append(name)
    return removed


def main(argv: list[str]) -> None:
    verb, *rest = argv or ["help"]
    flags, rest = {word for word in rest if word.startswith("--")}, [w for w in rest if not w.startswith("--")]
    if verb == "up" and len(rest) == 2 and flags <= {"--bare", "--image"}:
        nodes = up(rest[0], int(rest[1]), "bare" if "--bare" in flags else "engine", "--image" in flags)
        print(nodes.write_inventory())
    elif verb == "down" and len(rest) == 1:
        attach(rest[0]).down()
    elif verb == "ssh-config" and len(rest) == 1:
        print(attach(rest[0]).ssh_config)
    elif verb == "inventory" and rest:
        given = {word.partition("=")[0]: yaml.safe_load(word.partition("=")[2]) for word in rest[1:]}
        print(attach(rest[0]).write_inventory(**given))
    elif verb == "list":
        engine = running()
        for name, owner in sorted(engine.clusters().items()) if engine else ():
            print(f"{name}  ({owner})")
    elif verb == "engine-stop":
        with exclusive():
            stop()
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except EngineError as error:
        sys.exit(f"nodes: {error}")
