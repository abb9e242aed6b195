"""Simulated nodes that boot: virtual machines with a kernel, systemd and an RDMA adapter in software (Soft-RoCE).

They are called node1, node2, … and reached as user `runner`, as the containers of `repro.simulation.nodes` are: through
a forwarded port of this machine. Among themselves they have a network that is made of multicast on this machine's
loopback, without root, and to the outside nothing but the archive of packages. On the command line:

    python -m repro.simulation.machines up NAME COUNT [DISTRIBUTION]        (prints the path of an inventory)
    python -m repro.simulation.machines down NAME
    python -m repro.simulation.machines lock [DISTRIBUTION]      (pins the packages that its archive has)

`make sim KIND=vm` and `make sim-down KIND=vm` are the first two for a cluster of the name sim-vm.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from repro.simulation import machine_disk, qemu
from repro.simulation.distributions import DISTRIBUTIONS
from repro.simulation.engine import NEEDED as ENGINE_NEEDED
from repro.simulation.engine import SimulationEngineError, exclusive, running, stop
from repro.simulation.images import trainer_layout
from repro.simulation.inventory import (
    KEY,
    SimulatedCluster,
    SshEndpoint,
    leave_to_caller,
    make_key,
    names_of,
    number_of,
    write_inventory,
    write_ssh_config,
)
from repro.simulation.machine_disk import (
    Disk,
    docker_disk,
    docker_disk_of,
    image_with_disk,
    system_disk,
    system_disk_of_these_files,
)
from repro.simulation.nodes import CPU_CLUSTER, STARTED
from repro.simulation.owners import PERSON
from repro.simulation.places import MACHINES, simulated_inventory
from repro.simulation.qemu import Hardware
from repro.utils.ports import free_port
from repro.utils.progress import Stages, said_meanwhile

MOST = 16
MEMORY_MIB, PROCESSORS = 3072, 1
READY_S = 300
"""What a start or a shutdown may take, not counting what the machine waits for a processor; emulated, a start takes 40 s."""
POLL_S = 1.0
SYSTEM_DISK_S, BUILT_S, LOADED_S = 130, 300, 45
"""About how many seconds these take, for the time left: the disk that machines boot from; that with the trainer image, built or
only loaded. Measured on two processors at a load of 3, but for the image's build, which is a guess."""
BOOT_S = {"kvm": 10, "tcg": 30}
"""Likewise a machine's boot, by what runs it; those of several share the processors. With KVM none was measured."""
PATIENCE = {"kvm": 1, "tcg": 6}
"""How much longer machines may take, by what runs them: emulated on two busy cores, each has 15% of one."""
NETWORK = "10.88.0"
ADAPTER = "rxe0"
RECORD = "machines.json"
ROCE_V2_IPV4 = 1
"""The index of the adapter's GID for RoCE v2 over IPv4: 0 is of its IPv6 link-local address."""
VM_CLUSTER: dict[str, Any] = {
    **{name: value for name, value in CPU_CLUSTER.items() if not name.startswith("base_")},
    "cluster_gpus_per_node": 1,
    "cluster_interface": "eth1",
    "cluster_hca": ADAPTER,
    "cluster_gid_index": ROCE_V2_IPV4,
    "cluster_network_gbits": 0.01,
}
"""The variables of an inventory of virtual machines: no GPU, and an adapter as fast as the cores are free.

Emulated on two busy cores, ib_write_bw measured 0.03 Gb/s.
"""


@dataclass(frozen=True)
class Machines(SimulatedCluster):
    """The virtual machines of one cluster, up or not.

    `disk` is the folder of the disk that they boot from, `image` the ID of the trainer image on their second one, `group`
    the multicast address and port that their network is made of, `ports` those of this machine that lead to their sshd,
    `shares` as `Hardware` has them.
    """

    name: str
    disk: str
    image: str
    group: str
    ports: tuple[int, ...]
    owner: str = PERSON
    memory_mib: int = MEMORY_MIB
    processors: int = PROCESSORS
    shares: tuple[tuple[str, str], ...] = ()

    @property
    def names(self) -> list[str]:
        return names_of(len(self.ports))

    @property
    def system(self) -> Disk:
        return Disk(Path(self.disk))

    @property
    def folder(self) -> Path:
        return MACHINES / self.name

    def address(self, node: str) -> str:
        """A node's address on the cluster's network."""
        return f"{NETWORK}.{10 + number_of(node)}"

    def root(self, node: str, *argv: object, check: bool = True, **options: Any) -> str:
        """Run something on a node as root, through its sshd; what it printed."""
        words = ["sudo", "-n", "--", *map(str, argv)]
        done = self.ssh(
            node, shlex.join(words), **{"stdin": None if "input" in options else subprocess.DEVNULL, **options}
        )
        if check and done.returncode:
            raise SimulationEngineError(f"{self.name}, {node}: {' '.join(map(str, argv[:6]))} …: {done.stderr.strip()}")
        return done.stdout.strip()

    def record(self) -> None:
        """Write down what `attach` reads."""
        (self.folder / RECORD).write_text(json.dumps(asdict(self)))

    def make_node(self, node: str) -> None:
        """A node's disks and keys, as it is before its first start."""
        qemu.make_overlay(self.system.image, self.folder / f"{node}.system.qcow2")
        qemu.make_overlay(docker_disk_of(self.image), self.folder / f"{node}.docker.qcow2")
        (self.folder / f"{node}.name").write_text(f"{node}\n")
        (self.folder / f"{node}.address").write_text(f"{self.address(node)}/24")
        key = self._host_key(node)
        key.unlink(missing_ok=True)
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(key)]
        subprocess.run(command, check=True)

    def start(self, *nodes: str) -> None:
        """Give nodes power, all of them if none is named, and do not wait for them."""
        for node in nodes or self.names:
            number, key = number_of(node), self._host_key(node)
            hardware = Hardware(
                number,
                self.memory_mib,
                processors=self.processors,
                ssh_port=self.ports[number - 1],
                group=self.group,
                shares=self.shares,
            )
            given = {
                "host_key": key,
                "host_key.pub": _public(key),
                "authorized_key": _public(KEY),
                "name": self.folder / f"{node}.name",
                "address": self.folder / f"{node}.address",
            }
            own = self.own_kernel(node)
            boots = own if own.folder.exists() else self.system
            command = qemu.command_line(node, hardware, boots, given, qemu.accelerator(self.system))
            qemu.start(command, self.folder, node)

    def own_kernel(self, node: str) -> Disk:
        """Where a kernel of a node's own is, with which it boots if it is there."""
        return Disk(self.folder / f"{node}.kernel")

    def _wait_for(self, node: str) -> None:
        may_still_take = self._time_limit(node)
        while may_still_take():
            if qemu.process_of(self.folder, node) is None:
                log = (self.folder / f"{node}.log").read_text().strip()
                raise SimulationEngineError(
                    f"{self.name}, {node} does not run any more: {log or 'its process was killed'}"
                )
            with contextlib.suppress(subprocess.TimeoutExpired):
                said = self.ssh(node, STARTED, stdin=subprocess.DEVNULL, timeout=READY_S)
                if (state := said.stdout.strip()) == "running":
                    return
                if state == "degraded":
                    failed = self.ssh(node, "systemctl --failed --no-pager").stdout
                    raise SimulationEngineError(
                        f"{self.name}, {node} has started, but not all of its services:\n{failed}"
                    )
            time.sleep(POLL_S)
        console = (self.folder / f"{node}.console").read_text(errors="replace")
        raise SimulationEngineError(f"{self.name}, {node} is not up after {READY_S} s; its console:\n{console[-3000:]}")

    def _time_limit(self, node: str) -> Callable[[], bool]:
        """Tells whether READY_S seconds from now are not over yet, without those that the node waits for a processor."""
        began, before_s = time.monotonic(), qemu.held_up_s(self.folder, node)
        return lambda: time.monotonic() - began - (qemu.held_up_s(self.folder, node) - before_s) < READY_S

    def restart(self, node: str) -> None:
        """Ask a node to restart, and return once it has begun to: its sshd is gone."""
        self.ssh(node, "sudo systemctl reboot", stdin=subprocess.DEVNULL)
        may_still_take = self._time_limit(node)
        while self.ssh(node, "systemctl is-system-running", stdin=subprocess.DEVNULL).stdout.strip() == "stopping":
            if not may_still_take():
                raise SimulationEngineError(f"{self.name}, {node} does not shut down")
            time.sleep(POLL_S)

    def kill(self, *nodes: str) -> None:
        """Take nodes' power away, that of all if none is named; their disks stay as they are."""
        for node in nodes or self.names:
            qemu.end(self.folder, node)

    @property
    def patience(self) -> int:
        """How many times as long as real ones these machines may take."""
        return PATIENCE[qemu.accelerator(self.system)]

    def write_ssh_config(self) -> None:
        """The configuration for ssh, and the inventory's known_hosts."""
        write_ssh_config(self.inventory, self._endpoints(), self.patience)

    def write_inventory(self, **variables: Any) -> Path:
        """An inventory folder of these nodes, a CPU cluster with RDMA unless `variables` say otherwise; its path."""
        image = {**VM_CLUSTER["cluster_image"], "digest": self.image}
        own = {**VM_CLUSTER, "cluster_image": image, "cluster_patience": self.patience}
        return write_inventory(self.inventory, self._endpoints(), {**own, **variables})

    def _endpoints(self) -> dict[str, SshEndpoint]:
        return {
            node: SshEndpoint(
                "127.0.0.1",
                port,
                _public(self._host_key(node)).read_text().strip(),
                (("node_address", self.address(node)),),
            )
            for node, port in zip(self.names, self.ports, strict=True)
        }

    def _host_key(self, node: str) -> Path:
        return self.folder / f"{node}.key"

    def down(self) -> None:
        """End the nodes, and remove their disks and files."""
        self.kill()
        for folder in (self.folder, self.inventory):
            shutil.rmtree(folder, ignore_errors=True)


def missing() -> str | None:
    """Why machines cannot be simulated here, with what to install; None if they can."""
    if os.geteuid():
        return "needs root"
    needed = {**dict.fromkeys(ENGINE_NEEDED, ""), **qemu.NEEDED, **machine_disk.NEEDED}
    absent = [name for name in needed if shutil.which(name) is None]
    packages = sorted({needed[name] for name in absent} - {""})
    if not absent:
        return None
    install = f"; sudo apt-get install {' '.join(packages)}" if packages else ""
    return f"needs {', '.join(absent)}{install}"


def up(
    name: str,
    count: int,
    owner: str = PERSON,
    memory_mib: int = MEMORY_MIB,
    processors: int = PROCESSORS,
    tell: Callable[[str, float], object] = lambda stage, seconds: None,
    distribution: str = "debian",
) -> Machines:
    """Bring up virtual machines; EngineError if the name is taken or this machine cannot do it.

    `tell` is called with each stage as it begins, and about how many seconds it and the rest take.
    """
    if reason := missing():
        raise SimulationEngineError(f"virtual machines: {reason}")
    if not 0 < count <= MOST:
        raise SimulationEngineError(f"{count} virtual machines: from 1 to {MOST} can be brought up")
    with exclusive():
        if (MACHINES / name).exists():
            raise SimulationEngineError(f"{name} is up already; `make sim-down KIND=vm NAME={name}` removes it")
        if simulated_inventory(name).exists():
            raise SimulationEngineError(f"{name} is the name of simulated nodes in containers; take another one")
        boots_s = count * BOOT_S["tcg"]  # whether KVM boots a guest is found out with the disk
        image_s = 0 if image_with_disk() else LOADED_S if trainer_layout() else BUILT_S
        boots = DISTRIBUTIONS[distribution]
        if not system_disk_of_these_files(boots).kernel.exists():
            tell("the disk that machines boot from is made", SYSTEM_DISK_S + image_s + boots_s)
        system = system_disk(boots)
        if image_s:
            tell("the disk with the trainer image is made", image_s + boots_s)
        image = docker_disk()
        _stop_unused_engine()
        make_key()
        group = f"239.255.88.1:{free_port()}"
        ports = tuple(free_port() for _ in range(count))
        machines = Machines(name, str(system.folder), image, group, ports, owner, memory_mib, processors)
        machines.folder.mkdir(parents=True)
        machines.record()
    try:
        for node in machines.names:
            machines.make_node(node)
        machines.write_ssh_config()
        machines.start()
        tell("1 machine boots" if count == 1 else f"{count} machines boot", count * BOOT_S[qemu.accelerator(system)])
        machines.wait()
        leave_to_caller()
    except BaseException:
        machines.down()
        raise
    return machines


def _stop_unused_engine() -> None:
    """End the engine that the trainer image was built in, unless it has nodes."""
    engine = running()
    if engine and not engine.clusters():
        stop()


def attach(name: str) -> Machines:
    """The machines that were brought up under a name."""
    try:
        recorded = json.loads((MACHINES / name / RECORD).read_text())
    except OSError:
        there = sorted(path.name for path in MACHINES.glob("*"))
        raise SimulationEngineError(f"{name} is not up" + (f"; up are: {', '.join(there)}" if there else "")) from None
    return Machines(**{**recorded, "ports": tuple(recorded["ports"]), "shares": tuple(map(tuple, recorded["shares"]))})


def _public(key: Path) -> Path:
    return Path(f"{key}.pub")


def main(argv: list[str]) -> None:
    verb, *rest = argv or ["help"]
    if verb == "up" and len(rest) in (2, 3):
        stages = Stages("the beginning")
        with said_meanwhile(stages.now):
            machines = up(rest[0], int(rest[1]), tell=stages.begin, distribution=(*rest[2:], "debian")[0])
        print(machines.write_inventory())
    elif verb == "down" and len(rest) == 1:
        attach(rest[0]).down()
    elif verb == "lock" and len(rest) < 2:
        machine_disk.lock(DISTRIBUTIONS[(*rest, "debian")[0]])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except SimulationEngineError as error:
        sys.exit(f"machines: {error}")
