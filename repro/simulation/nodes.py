"""Simulated nodes: containers with systemd, sshd and, unless bare, an engine of their own, on their own network.

They are called node1, node2, …; whoever is root on this machine reaches them as user `runner`, with the key and the
host keys that an inventory or an SSH configuration from here names. On the command line:

    python -m repro.simulation.nodes up NAME COUNT [--bare | --image]      (prints the path of an inventory)
    python -m repro.simulation.nodes down NAME                (the last ends the engine; or engine-stop, which ends all)

`make sim` and `make sim-down` are the first and the last for a cluster of the name sim (`repro/cli/simulation.py`).
"""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repro.images.stack import tag_of
from repro.simulation.engine import LABEL, SimulationEngine, SimulationEngineError, exclusive, running, start, stop
from repro.simulation.images import STACK, has_node_image, node_image, trainer_image, trainer_layout
from repro.simulation.inventory import (
    KEY,
    USER,
    SimulatedCluster,
    SshEndpoint,
    leave_to_caller,
    make_key,
    names_of,
    number_of,
    write_inventory,
    write_ssh_config,
)
from repro.simulation.owners import PERSON, started
from repro.simulation.places import HOME, MACHINES
from repro.simulation.seed import seed
from repro.utils.progress import Stages, said_meanwhile

CPU_CLUSTER: dict[str, Any] = {
    "cluster_gpu": "",
    "cluster_gpus_per_node": 2,
    "cluster_interface": "eth0",
    "cluster_hca": "",
    "cluster_gid_index": None,
    "cluster_network_gbits": 0.1,
    "cluster_stack": STACK,
    "cluster_image": {"name": tag_of(STACK), "digest": "", "registry": "", "archive": ""},
    "cluster_data": "",
    "cluster_shared_results": "",
    "cluster_work": "/var/lib/oneflow-reproduction",
    "cluster_port": 29500,
    "cluster_runtime": "docker",
    "cluster_launcher": "ssh",
    "cluster_accepted_differences": [],
    "base_time_options": "-x",
    "base_memlock": 64,
    "base_sysctl": {"net.ipv4.tcp_rmem": "4096 87380 33554432", "net.ipv4.tcp_wmem": "4096 65536 33554432"},
}
"""The variables of an inventory of simulated nodes: no GPU, no InfiniBand, and a network as fast as the cores are free.

The clock, most kernel parameters and the most memory that may be locked (KiB) belong to the machine around.
"""
MOST = 240
"""Nodes that fit into a network of their own, a /24 whose first addresses are taken."""
FIRST = 11
THIRD = f"{LABEL}.third"
"""The label of kept disks that has the third number of the addresses that their nodes had."""
ADDRESSED = ("/etc/hosts", "/etc/ssh/ssh_known_hosts", f"/home/{USER}/.ssh/config")
"""The files in which provisioned nodes have each other's addresses."""
RIGHTS = (
    *("--cap-add", "ALL", "--cap-drop", "SYS_RESOURCE"),
    *("--security-opt", "seccomp=unconfined", "--security-opt", "apparmor=unconfined"),
    *("--security-opt", "systempaths=unconfined", "--device-cgroup-rule", "a *:* rwm", "--cgroupns", "private"),
    *("--shm-size", "1g", "--tmpfs", "/run", "--tmpfs", "/run/lock", "--tmpfs", "/tmp:exec"),
)
READY_S = 180
BUILT_S, LOADED_S, NODE_IMAGE_S, NODE_S = 200, 30, 100, 4
"""About how many seconds these take, for the time left: the trainer image built, or only loaded; the nodes' own image built; a
node started. They are guesses, not measurements."""
ENTER = ("nsenter", "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
CLEAN = ("env", "-i", "HOME=/root", f"PATH={PATH}", "DEBIAN_FRONTEND=noninteractive")
RUNNING = "{{if .State.Running}}{{.State.Pid}}{{end}}"
STARTED = (
    "until state=$(systemctl is-system-running --wait); do "
    '[ "$state" = degraded ] && break; state=; sleep 0.2; done; echo "$state"'
)
"""Prints whether a node is "running" or "degraded" once it is one of both."""
_first_processes: dict[str, tuple[str, str | None]] = {}
"""By a node's container: the ID of its first process on this machine, and when that started."""


@dataclass(frozen=True)
class Nodes(SimulatedCluster):
    """The nodes of one cluster, up or not.

    `third` is the third number of their addresses, `image` the ID of the trainer image in their engines or empty,
    `options` are further ones for `docker run`, `disks` the name of the disks that they started from or empty.
    """

    engine: SimulationEngine
    name: str
    third: int
    count: int
    kind: str = "engine"
    image: str = ""
    options: tuple[str, ...] = ()
    disks: str = ""

    @property
    def names(self) -> list[str]:
        return names_of(self.count)

    def address(self, node: str) -> str:
        return f"10.{self.engine.second}.{self.third}.{FIRST - 1 + number_of(node)}"

    def container(self, node: str) -> str:
        """The name under which the engine around the nodes knows a node."""
        return f"{self.name}-{node}"

    def root(self, node: str, *argv: object, check: bool = True, **options: Any) -> str:
        """Run something on a node as root, past its sshd; what it printed.

        It enters the node's namespaces by itself: `docker exec` takes a quarter of a second of a processor.
        """
        first = self._first_process(node)
        if not first:
            if check:
                raise SimulationEngineError(f"{self.container(node)} does not run")
            return ""
        if "input" not in options:
            options["stdin"] = subprocess.DEVNULL
        command = [*ENTER, f"--target={first}", *CLEAN, *map(str, argv)]
        done = subprocess.run(command, capture_output=True, text=True, **options)
        if check and done.returncode:
            raise SimulationEngineError(
                f"{self.container(node)}: {' '.join(map(str, argv[:6]))} …: {done.stderr.strip()}"
            )
        return done.stdout.strip()

    def _first_process(self, node: str) -> str:
        """The process of this machine that a node began with, asked for once as long as it lives; "" if none runs."""
        name = self.container(node)
        process, since = _first_processes.get(name, ("", None))
        if since is None or started(process) != since:
            process = self.engine.docker("inspect", "--format", RUNNING, name, check=False)
            if process:
                _first_processes[name] = process, started(process)
        return process

    def start_node(self, node: str) -> None:
        """Start a node on a new disk, with the trainer image if it is to have it, and do not wait for it."""
        name = self.container(node)
        names = [] if self.kind == "bare" else self.names
        self.engine.docker("volume", "create", name)
        if self.image:
            seed(HOME / "data", HOME / "data/volumes" / name / "_data", self.image)
        self.engine.docker(
            *("run", "--detach", "--name", name, "--hostname", node),
            *("--network", self.name, "--ip", self.address(node)),
            *("--label", f"{LABEL}={self.name}", "--volume", f"{name}:/var/lib/docker", *RIGHTS),
            *("--volume", f"{KEY}.pub:/simulation/authorized_keys:ro"),
            *("--env", f"SIM_HOST={self.engine.host}", "--env", f"SIM_DEBIAN={self.engine.web}/debian"),
            *(f"--add-host={n}:{self.address(n)}" for n in names),
            *self.options,
            f"{self.disks}:{node}" if self.disks else node_image(self.engine, self.kind),
        )

    def _wait_for(self, node: str) -> None:
        """Also until it has its engine up, if it has one."""
        container = self.container(node)
        said = self.root(node, "timeout", READY_S, "sh", "-c", STARTED, check=False)
        if said == "running":
            return
        state = "{{.State.Status}} with status {{.State.ExitCode}} {{.State.Error}}"
        state = self.engine.docker("inspect", "--format", state, container, check=False)
        if not state.startswith("running"):
            raise SimulationEngineError(f"{container} does not run any more: {state or 'it is gone'}")
        failed = self.root(node, "systemctl", "--failed", "--no-pager", check=False)
        why = "has started, but not all of its services" if said == "degraded" else f"is not up after {READY_S} s"
        raise SimulationEngineError(f"{container} {why}:\n{failed}")

    def host_key(self, node: str) -> str:
        """A node's true host key, read on the node itself."""
        return self.root(node, "cat", "/etc/ssh/ssh_host_ed25519_key.pub")

    def write_ssh_config(self) -> None:
        """The configuration for ssh, and the inventory's known_hosts with the keys that the nodes have now."""
        write_ssh_config(self.inventory, self._endpoints())

    def write_inventory(self, **variables: Any) -> Path:
        """An inventory folder of these nodes, a CPU cluster unless `variables` say otherwise; its path."""
        return write_inventory(self.inventory, self._endpoints(), {**cpu_cluster(self.image), **variables})

    def _endpoints(self) -> dict[str, SshEndpoint]:
        return {node: SshEndpoint(self.address(node), 22, self.host_key(node)) for node in self.names}

    def _readdress(self, node: str, before: int) -> None:
        """Write the nodes' addresses where a kept disk has those with another third number."""
        old, new = (rf"10.{self.engine.second}.{third}." for third in (before, self.third))
        script = 'pattern=$1; shift; for file; do [ ! -e "$file" ] || sed -i "$pattern" "$file"; done'
        pattern = rf"s/\<{re.escape(old)}/{new}/g"
        self.root(node, "sh", "-ec", script, "sh", pattern, *ADDRESSED)

    def remove(self, *nodes: str) -> None:
        """Remove nodes with their disks, all of them if none is named."""
        names = [self.container(node) for node in nodes or self.names]
        self.engine.docker("rm", "--force", "--volumes", *names, check=False)
        self.engine.docker("volume", "rm", "--force", *names, check=False)

    def down(self) -> None:
        """Remove the nodes, their disks, their network and their files."""
        self.remove()
        self.engine.docker("network", "rm", self.name, check=False)
        subprocess.run(["rm", "-rf", str(self.inventory)], check=True)


def cpu_cluster(image: str) -> dict:
    """The variables of a cluster of simulated nodes that have the trainer image with this ID, "" for any."""
    return {**CPU_CLUSTER, "cluster_image": {**CPU_CLUSTER["cluster_image"], "digest": image}}


def up(
    name: str,
    count: int,
    kind: str = "engine",
    image: bool = False,
    owner: str = PERSON,
    options: tuple[str, ...] = (),
    disks: str = "",
    tell: Callable[[str, float], object] = lambda stage, seconds: None,
) -> Nodes:
    """Bring up nodes, `bare`, with an `engine`, or as `hpc` with Slurm and Apptainer besides; with the trainer `image` if asked for.

    `options` are further ones for `docker run`, such as ("--ulimit", "memlock=65536"). `disks` are disks of such nodes
    that were kept, with the label THIRD, to start from. EngineError if the name is taken or this machine cannot do it.
    `tell` is called with each stage as it begins, and about how many seconds it and the rest take.
    """
    tell("the engine starts", 0)
    with exclusive():
        engine = start()
        if name in engine.clusters():
            raise SimulationEngineError(f"{name} is up already; `make sim-down NAME={name}` removes it")
        if (MACHINES / name).exists():
            raise SimulationEngineError(
                f"{name} is the name of virtual machines; `make sim-down KIND=vm NAME={name}` removes them"
            )
        if not 0 < count <= MOST:
            raise SimulationEngineError(f"{count} simulated nodes: from 1 to {MOST} fit into a network")
        ahead = count * NODE_S + (0 if has_node_image(engine, kind) else NODE_IMAGE_S)
        if image:
            tell("the trainer image is brought to the engine", ahead + (LOADED_S if trainer_layout() else BUILT_S))
        trainer = trainer_image(engine) if image else ""
        tell("the nodes' own image is made, unless it was before", ahead)
        node_image(engine, kind)
        nodes = Nodes(
            engine, name, third=_free_third(engine), count=count, kind=kind, image=trainer, options=options, disks=disks
        )
        make_key()
        what = json.dumps({"count": count, "kind": kind, "image": trainer, "options": options, "disks": disks})
        labels = {LABEL: name, f"{LABEL}.owner": owner, f"{LABEL}.nodes": what}
        engine.docker(
            *("network", "create", "--subnet", f"10.{engine.second}.{nodes.third}.0/24"),
            *("--opt", f"com.docker.network.bridge.name=sim{nodes.third}"),
            *(word for label, text in labels.items() for word in ("--label", f"{label}={text}")),
            name,
        )
    try:
        with ThreadPoolExecutor() as pool:
            for number, _ in enumerate(pool.map(nodes.start_node, nodes.names), 1):
                tell(f"{number} of {count} nodes are started", (count - number + 1) * NODE_S)
        tell(f"{count} nodes are waited for", NODE_S)
        nodes.wait()
        for node in nodes.names if disks else ():
            nodes._readdress(node, third_of(engine, f"{disks}:{node}"))
        nodes.write_ssh_config()
        leave_to_caller()
    except BaseException:
        nodes.down()
        raise
    return nodes


def third_of(engine: SimulationEngine, disk: str) -> int:
    """The third number of the address that the node of a kept disk had."""
    return int(engine.inspect("image", "inspect", disk)["Config"]["Labels"][THIRD])


def _free_third(engine: SimulationEngine) -> int:
    """A third number of addresses that no node has."""
    used = thirds(engine)
    return next(third for third in range(1, 255) if third not in used)


def thirds(engine: SimulationEngine) -> set[int]:
    """The third numbers of the addresses of all nodes that are up."""
    taken = engine.docker(
        "network",
        "inspect",
        "--format",
        "{{range .IPAM.Config}}{{.Subnet}}{{end}}",
        *engine.docker("network", "ls", "--quiet", "--filter", f"label={LABEL}").split() or ["host"],
    )
    return {int(subnet.split(".")[2]) for subnet in taken.split()}


def attach(name: str) -> Nodes:
    """The nodes that were brought up under a name."""
    engine = running()
    if engine is None or name not in engine.clusters():
        hint = f"; up are: {', '.join(engine.clusters())}" if engine and engine.clusters() else ""
        raise SimulationEngineError(f"{name} is not up{hint}")
    network = engine.inspect("network", "inspect", name)
    third = int(network["IPAM"]["Config"][0]["Subnet"].split(".")[2])
    what = json.loads(network["Labels"][f"{LABEL}.nodes"])
    return Nodes(engine, name, third, **{**what, "options": tuple(what["options"])})


def take_down(name: str) -> None:
    """Remove the nodes of a name, and end the engine around them if nobody else has nodes in it."""
    attach(name).down()
    with exclusive():
        engine = running()
        if engine and not engine.clusters():
            stop()


def main(argv: list[str]) -> None:
    verb, *rest = argv or ["help"]
    flags, rest = {word for word in rest if word.startswith("--")}, [w for w in rest if not w.startswith("--")]
    if verb == "up" and len(rest) == 2 and flags <= {"--bare", "--image"}:
        stages = Stages("the beginning")
        with said_meanwhile(stages.now):
            kind = "bare" if "--bare" in flags else "engine"
            nodes = up(rest[0], int(rest[1]), kind, "--image" in flags, tell=stages.begin)
        print(nodes.write_inventory())
    elif verb == "down" and len(rest) == 1:
        take_down(rest[0])
    elif verb == "engine-stop":
        with exclusive():
            stop()
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except SimulationEngineError as error:
        sys.exit(f"nodes: {error}")
