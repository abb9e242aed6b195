"""Networks of this machine that are apart: each host is a network namespace with the real sshd in it.

`chain` makes a row of hosts of which each reaches only its neighbours, and this machine only the first.
"""

import os
import shutil
import socket
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.patience import wait_until

NEEDED = ("ip", "sshd", "ssh-keygen")
PORT = 2222


def missing() -> str | None:
    """Why there can be no such networks here; None if there can."""
    if os.geteuid():
        return "needs root"
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    absent = [name for name in NEEDED if shutil.which(name, path=path) is None]
    return f"needs {', '.join(absent)}" if absent else None


@dataclass
class Host:
    """One host: where its neighbour before it reaches it, and its key."""

    name: str
    address: str
    folder: Path

    @property
    def key(self) -> str:
        """The public key, as `TYPE KEY`."""
        return " ".join((self.folder / "host_key.pub").read_text().split()[:2])

    @property
    def known(self) -> str:
        """Its line of a known_hosts file."""
        return f"[{self.address}]:{PORT} {self.key}\n"

    @property
    def fingerprint(self) -> str:
        """As ssh-keygen prints it."""
        return _run("ssh-keygen", "-lf", str(self.folder / "host_key.pub")).split()[1]


def _run(*argv: str) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


@contextmanager
def chain(folder: Path, count: int):
    """So many hosts, and the private key that logs in to each of them as this user."""
    key = folder / "login"
    _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key))
    mark, hosts, servers = os.getpid(), [], []
    names = [f"jump{mark}-{number}" for number in range(count)]
    everything = ["blackhole", f"198.18.{mark % 200}.0/24", "metric", "9999"]
    _run("ip", "route", "add", *everything)  # what is for a host behind the first does not leave this machine
    os.makedirs("/run/sshd", exist_ok=True)
    try:
        for number, name in enumerate(names):
            _run("ip", "netns", "add", name)
            _run("ip", "-n", name, "link", "set", "lo", "up")
            before = [] if number == 0 else ["-n", names[number - 1]]
            near, far = f"v{mark % 10000}{number}a", f"v{mark % 10000}{number}b"
            _run("ip", *before, "link", "add", near, "type", "veth", "peer", "name", far, "netns", name)
            network = f"198.18.{mark % 200}.{4 * number}"
            base = network.rpartition(".")[0]
            _run("ip", *before, "address", "add", f"{base}.{4 * number + 1}/30", "dev", near)
            _run("ip", *before, "link", "set", near, "up")
            _run("ip", "-n", name, "address", "add", f"{base}.{4 * number + 2}/30", "dev", far)
            _run("ip", "-n", name, "link", "set", far, "up")
            hosts.append(Host(name, f"{base}.{4 * number + 2}", folder / name))
            servers.append(_serve(hosts[-1], key))
        for host in hosts:
            _wait(host)
        yield hosts, key
    finally:
        for server in servers:
            server.kill()
            server.wait()
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)
        subprocess.run(["ip", "route", "delete", *everything], capture_output=True)


def _serve(host: Host, key: Path) -> subprocess.Popen:
    host.folder.mkdir()
    _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(host.folder / "host_key"))
    configuration = host.folder / "sshd_config"
    configuration.write_text(
        f"Port {PORT}\nListenAddress {host.address}\nHostKey {host.folder}/host_key\n"
        f"AuthorizedKeysFile {key}.pub\nStrictModes no\nUsePAM no\nPermitRootLogin yes\nPidFile none\n"
    )
    sshd = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
    argv = ["ip", "netns", "exec", host.name, sshd, "-D", "-e", "-f", str(configuration)]
    with open(host.folder / "log", "wb") as log:
        return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def _wait(host: Host) -> None:
    """Until its server answers on its own network."""
    wait_until(lambda: "Server listening" in (host.folder / "log").read_text())


def reached_directly(host: Host) -> bool:
    """Whether this machine reaches a host by itself."""
    try:
        socket.create_connection((host.address, PORT), 0.5).close()
    except OSError:
        return False
    return True
