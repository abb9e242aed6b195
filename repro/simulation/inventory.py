"""The inventory of simulated nodes, and the configuration for ssh with which whoever brought them up reaches them."""

import json
import os
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repro.simulation.places import HOME, simulated_inventory
from repro.utils.paths import CACHE, ssh_path

KEY = HOME / "id_ed25519"
WHEELS = CACHE / "wheels"
USER = "runner"
CONNECT_S = 5


@dataclass(frozen=True)
class SshEndpoint:
    """Where a node's sshd answers, the public key that it has, and further variables of this host."""

    address: str
    port: int
    host_key: str
    variables: tuple[tuple[str, str], ...] = ()


class SimulatedCluster(ABC):
    """Simulated nodes of one cluster, up or not: what is the same of containers and of virtual machines."""

    name: str

    @property
    @abstractmethod
    def names(self) -> list[str]:
        """The nodes' names."""

    @abstractmethod
    def _wait_for(self, node: str) -> None:
        """Until a node answers SSH and all its services have started; EngineError says why it does not."""

    @property
    def inventory(self) -> Path:
        return simulated_inventory(self.name)

    @property
    def ssh_config(self) -> Path:
        return self.inventory / "ssh_config"

    def ssh(self, node: str, *argv: str, **options: Any) -> subprocess.CompletedProcess:
        """Run something on a node as `runner` through SSH, its host key checked."""
        command = ["ssh", "-F", str(self.ssh_config), node, *argv]
        return subprocess.run(command, capture_output=True, text=True, **options)

    def wait(self, *nodes: str) -> None:
        """Until nodes, all of them if none is named, answer SSH and all their services have started."""
        with ThreadPoolExecutor() as pool:
            list(pool.map(self._wait_for, nodes or self.names))


def names_of(count: int) -> list[str]:
    """The names of this number of nodes."""
    return [f"node{number}" for number in range(1, count + 1)]


def number_of(node: str) -> int:
    """The number in a node's name, from 1 on."""
    return int(node.removeprefix("node"))


def make_key() -> None:
    """The key of whoever reaches the nodes, unless it is there."""
    if not KEY.exists():
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "simulated nodes", "-f", str(KEY)]
        subprocess.run(command, check=True)


def leave_to_caller() -> None:
    """Under sudo, what whoever called it goes on to use is theirs: the key, and the wheels that images are built of."""
    if owner := os.environ.get("SUDO_UID"):
        for path in (KEY, CACHE, WHEELS, *WHEELS.rglob("*")):
            if path.exists():
                os.chown(path, int(owner), int(os.environ.get("SUDO_GID", owner)), follow_symlinks=False)


def write_ssh_config(folder: Path, endpoints: Mapping[str, SshEndpoint], patience: int = 1) -> None:
    """The configuration for ssh, and known_hosts with the keys that the nodes have now, in an inventory's folder.

    `patience` is how many times as long as usual they may take to answer.
    """
    folder.mkdir(parents=True, exist_ok=True)
    host_keys = "".join(f"{_as_known(endpoint)} {endpoint.host_key}\n" for endpoint in endpoints.values())
    (folder / "known_hosts").write_text(host_keys)
    lines = [
        f"Host {node}\n  HostName {endpoint.address}\n  Port {endpoint.port}\n" for node, endpoint in endpoints.items()
    ]
    lines.append(
        f"Host *\n  User {USER}\n  IdentityFile {ssh_path(KEY)}\n  IdentitiesOnly yes\n  IdentityAgent none\n"
        f"  StrictHostKeyChecking yes\n  UserKnownHostsFile {ssh_path(folder / 'known_hosts')}\n"
        f"  GlobalKnownHostsFile none\n  ConnectTimeout {CONNECT_S * patience}\n  BatchMode yes\n"
    )
    (folder / "ssh_config").write_text("".join(lines))


def _as_known(endpoint: SshEndpoint) -> str:
    return endpoint.address if endpoint.port == 22 else f"[{endpoint.address}]:{endpoint.port}"


def write_inventory(folder: Path, endpoints: Mapping[str, SshEndpoint], variables: Mapping[str, Any]) -> Path:
    """The inventory itself: hosts.yml, and the cluster's variables; the folder."""
    hosts = {
        node: {
            "ansible_host": endpoint.address,
            "ansible_port": endpoint.port,
            "ansible_user": USER,
            "ansible_ssh_private_key_file": str(KEY),
            **dict(endpoint.variables),
        }
        for node, endpoint in endpoints.items()
    }
    (folder / "group_vars").mkdir(parents=True, exist_ok=True)
    # JSON is YAML
    (folder / "hosts.yml").write_text(json.dumps({"nodes": {"hosts": hosts}}, indent=1) + "\n")
    (folder / "group_vars/all.yml").write_text(json.dumps(dict(variables), indent=1) + "\n")
    return folder
