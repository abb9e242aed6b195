"""The host keys of machines, as their SSH servers show them, and their fingerprints for the user to verify."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import socket
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from repro.cluster.inventory import ClusterError
from repro.cluster.ssh import AT_ONCE

if TYPE_CHECKING:
    from fabric import Connection

TIMEOUT_S = 8
KINDS = (
    ("ssh-ed25519",),
    ("ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521"),
    ("rsa-sha2-512", "rsa-sha2-256"),
)
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


def scan(hosts: Iterable[tuple[str, str, int]], before: Connection | None = None) -> list[HostKey]:
    """The keys of hosts, given as (name, address, port); ClusterError names those that show none.

    `before` is an open connection to the jump host that alone reaches them. No login is tried.
    """
    hosts = list(hosts)
    with ThreadPoolExecutor(min(len(hosts), AT_ONCE)) as pool:
        shown = dict(zip(hosts, pool.map(partial(_scan_one, before), hosts), strict=True))
    silent = [f"{name} ({address} port {port})" for (name, address, port), keys in shown.items() if not keys]
    if silent:
        way, advice = "", "check the address and that it runs"
        if before:
            way = f" through {before.host}"
            advice = "check the address, and that the jump host may forward connections to it"
        raise ClusterError(f"no SSH server shows a host key on {', '.join(silent)}{way}; {advice}")
    return [key for keys in shown.values() for key in keys]


def _scan_one(before: Connection | None, host: tuple[str, str, int]) -> list[HostKey]:
    from paramiko import SSHException, Transport

    name, address, port = host
    where = address if port == 22 else f"[{address}]:{port}"
    keys = []
    for kinds in KINDS:
        try:
            if before:
                way = before.transport.open_channel("direct-tcpip", (address, port), ("", 0), timeout=TIMEOUT_S)
            else:
                way = socket.create_connection((address, port), TIMEOUT_S)
        except (SSHException, EOFError, OSError):
            break
        with contextlib.closing(Transport(way)) as transport, contextlib.suppress(SSHException, EOFError, OSError):
            transport.get_security_options().key_types = kinds
            transport.start_client(timeout=TIMEOUT_S)
            key = transport.get_remote_server_key()
            keys.append(HostKey(name, f"{where} {key.get_name()} {key.get_base64()}"))
    return keys


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
