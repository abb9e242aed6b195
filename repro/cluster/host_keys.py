"""The host keys of machines, from ssh-keyscan, and their fingerprints for the user to verify."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import shutil
import subprocess
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from repro.cluster.inventory import ClusterError
from repro.cluster.ssh import AT_ONCE

if TYPE_CHECKING:
    from fabric import Connection

TIMEOUT_S = 8
TYPES = "ed25519,ecdsa,rsa"
KINDS = (("ssh-ed25519",), ("ecdsa-sha2-nistp256",), ("rsa-sha2-512", "rsa-sha2-256"))
"""The types of keys as paramiko asks for them, one after the other."""
AT_THE_MACHINE = "for f in /etc/ssh/ssh_host_*.pub; do ssh-keygen -lf $f; done"


@dataclass(frozen=True)
class HostKey:
    """A key that a machine showed: the line that known_hosts takes, and its fingerprint as ssh-keygen prints it."""

    node: str
    line: str

    @property
    def kind(self) -> str:
        return self.line.split()[1]

    @property
    def fingerprint(self) -> str:
        """`SHA256:` and the digest in base 64 without padding."""
        digest = hashlib.sha256(base64.b64decode(self.line.split()[2])).digest()
        return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def scan(hosts: Iterable[tuple[str, str, int]]) -> list[HostKey]:
    """The keys of hosts, given as (name, address, port); ClusterError names those that show none."""
    if not shutil.which("ssh-keyscan"):
        raise ClusterError("ssh-keyscan is missing here; install the OpenSSH client (Debian: openssh-client)")
    hosts = list(hosts)
    with ThreadPoolExecutor(min(len(hosts), AT_ONCE)) as pool:
        shown = dict(zip(hosts, pool.map(_scan_one, hosts), strict=True))
    silent = [f"{name} ({address} port {port})" for (name, address, port), keys in shown.items() if not keys]
    if silent:
        raise ClusterError(f"no SSH server shows a host key on {', '.join(silent)}; check the address and that it runs")
    return [key for keys in shown.values() for key in keys]


def scan_behind(before: Connection, host: tuple[str, str, int]) -> list[HostKey]:
    """The keys of a host that only a jump host reaches, over an open connection to that; ClusterError if it shows none.

    No login is tried.
    """
    from paramiko import SSHException, Transport

    name, address, port = host
    where = address if port == 22 else f"[{address}]:{port}"
    by_kind: dict[str, HostKey] = {}
    for kinds in KINDS:
        try:
            channel = before.transport.open_channel("direct-tcpip", (address, port), ("", 0), timeout=TIMEOUT_S)
            with contextlib.closing(Transport(channel)) as transport:
                transport.get_security_options().key_types = kinds
                transport.start_client(timeout=TIMEOUT_S)
                key = transport.get_remote_server_key()
        except (SSHException, EOFError, OSError):
            continue
        by_kind[key.get_name()] = HostKey(name, f"{where} {key.get_name()} {key.get_base64()}")
    if not by_kind:
        raise ClusterError(
            f"no SSH server shows a host key on {name} ({address} port {port}) through {before.host}; check the address, "
            "and that the jump host may forward connections to it"
        )
    return list(by_kind.values())


def _scan_one(host: tuple[str, str, int]) -> list[HostKey]:
    name, address, port = host
    argv = ["ssh-keyscan", "-T", str(TIMEOUT_S), "-p", str(port), "-t", TYPES, "--", address]
    done = subprocess.run(argv, capture_output=True, text=True, errors="replace")
    return [HostKey(name, line) for line in sorted(done.stdout.splitlines()) if line and not line.startswith("#")]


def confirmed(keys: list[HostKey], fingerprints: Iterable[str]) -> list[HostKey]:
    """The keys whose fingerprints the user gave; ClusterError for a node without such a key."""
    trusted = set(fingerprints)
    trusted_keys = [key for key in keys if key.fingerprint in trusted]
    for node in dict.fromkeys(key.node for key in keys):
        if node not in {key.node for key in trusted_keys}:
            shown = ", ".join(key.fingerprint for key in keys if key.node == node)
            raise ClusterError(
                f"FINGERPRINTS: {node} shows {shown}, none of which was given; read the right ones at "
                f"the machine itself: {AT_THE_MACHINE}"
            )
    return trusted_keys
