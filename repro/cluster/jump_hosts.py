"""The jump hosts on the way to a node: which they are, and a connection through them that checks every host key.

Fabric would add any key of a jump host to those it knows, and takes a list of them in the wrong order; so the way is
built here, one host after the other.
"""

from __future__ import annotations

import contextlib
import functools
import shlex
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from repro.cluster.cluster import Cluster, Node
from repro.utils.errors import FAILED, ReproError
from repro.utils.paths import ssh_path

if TYPE_CHECKING:
    from fabric import Connection
    from paramiko import PKey

CONNECT_S, NEGOTIATE_S, LOGIN_S = 10, 15, 30
"""How long a host may take to open a connection or a session of it, to agree on keys, and to take the login."""
SSH_PORT = 22
REVOKED = "@revoked"
_parsing = threading.Lock()


class Refused(ReproError):
    """A host on the way that could not be logged in to, and why.

    `reached` is whether it took the connection, and `left` whether that ended in the middle of the login.
    """

    status = FAILED

    def __init__(self, host: Node, error: Exception, reached: bool, left: bool = False) -> None:
        super().__init__(f"{host.name}: {error}")
        self.host, self.error, self.reached, self.left = host, error, reached, left


def jump_hosts(cluster: Cluster, node: Node) -> tuple[Node, ...]:
    """The hosts on the way to a node, this machine's neighbour first.

    They are the inventory's group `jump`, or else what the user's SSH configuration names as ProxyJump.
    """
    if node in cluster.jump:
        return cluster.jump[: cluster.jump.index(node)]
    return cluster.jump or tuple(_configured(node))


def open_checked(cluster: Cluster, node: Node) -> list[Connection]:
    """Open connections to each host on the way and, the last of them, to the node; Refused names the one that fails.

    Each host key has to be in the cluster's known_hosts.
    """
    opened: list[Connection] = []
    try:
        for host in (*jump_hosts(cluster, node), node):
            opened.append(_open(cluster, host, opened[-1] if opened else None))
    except BaseException:
        close(opened)
        raise
    return opened


def close(opened: list[Connection]) -> None:
    """Close connections, the farthest first."""
    for connection in reversed(opened):
        sock = connection.transport.sock if connection.transport else None
        if isinstance(sock, socket.socket):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RD)  # or its thread would wait out its time
        with contextlib.suppress(EOFError):  # of an SFTP session whose connection has ended
            connection.close()
        connection.client.close()


def ssh_options(cluster: Cluster) -> list[str]:
    """The options with which OpenSSH takes the inventory's way to its nodes, and checks every key as `open_checked` does."""
    options = ["-o", f"UserKnownHostsFile={ssh_path(cluster.known_hosts)}"]
    command = ""
    for position, host in enumerate(cluster.jump):
        following = cluster.jump[position + 1 :][:1]
        onward = f"[{_escaped(following[0].address)}]:{following[0].port}" if following else "[%h]:%p"
        words = [*options, "-o", "StrictHostKeyChecking=yes", "-o", "BatchMode=yes"]
        words += ["-o", f"IdentityFile={ssh_path(cluster.private_key)}"] if cluster.private_key else []
        words += ["-o", f"ProxyCommand={command}"] if command else ["-o", "ProxyJump=none"]
        words += ["-p", str(host.port), "-l", host.user, host.address]
        command = f"ssh -W {shlex.quote(onward)} {_escaped(shlex.join(words))}"
    return [*options, "-o", f"ProxyCommand={command}"] if command else options


def _escaped(text: str) -> str:
    """A text in a ProxyCommand, in which OpenSSH replaces what follows a %."""
    return text.replace("%", "%%")


def _known_as(host: Node) -> str:
    """The name of a host in a known_hosts file."""
    return host.address if host.port == SSH_PORT else f"[{host.address}]:{host.port}"


def _known_keys(file: Path, host: Node) -> Iterator[PKey]:
    """The keys that a known_hosts file has for a host. Every connection with the keys of all nodes would take long."""
    from paramiko import HostKeys

    text, name = file.read_text(encoding="utf-8", errors="replace"), _known_as(host)
    with _parsing:
        by_name = _keys_by_name(text)
    for entry_name, keys in by_name.items():
        if entry_name == name or (entry_name.startswith("|1|") and HostKeys.hash_host(name, entry_name) == entry_name):
            yield from keys


@functools.lru_cache(maxsize=2)
def _keys_by_name(text: str) -> dict[str, list[PKey]]:
    """The keys of a known_hosts file by the names there, hashed or not.

    Keys of authorities that sign hosts' keys are left out, and so are lines that cannot be read. A key that is marked as
    revoked is no host's.
    """
    from paramiko import SSHException
    from paramiko.hostkeys import HostKeyEntry, InvalidHostKey

    by_name: dict[str, list[PKey]] = {}
    revoked: list[PKey] = []
    for line in map(str.strip, text.splitlines()):
        marker, _, rest = line.partition(" ") if line.startswith("@") else ("", "", line)
        if not rest or rest.startswith("#") or marker not in ("", REVOKED):
            continue
        with contextlib.suppress(SSHException, InvalidHostKey, ValueError):
            entry = HostKeyEntry.from_line(rest.strip())
            if entry and entry.key:
                if marker:
                    revoked.append(entry.key)
                    continue
                for name in entry.hostnames or []:
                    by_name.setdefault(name, []).append(entry.key)
    return {name: [key for key in keys if key not in revoked] for name, keys in by_name.items()}


def _configured(node: Node) -> Iterator[Node]:
    from fabric import Connection

    for hop in Connection(node.address, gateway=False).ssh_config.get("proxyjump", "none").split(","):
        if hop.strip().lower() != "none":
            connection = Connection(hop.strip(), gateway=False)
            yield Node(hop.strip(), connection.host, port=int(connection.port), user=connection.user, gpus=0)


def _open(cluster: Cluster, host: Node, before: Connection | None) -> Connection:
    from fabric import Connection
    from paramiko import RejectPolicy

    keys = {"key_filename": str(cluster.private_key)} if cluster.private_key else {}
    connection = Connection(
        host.address,
        user=host.user,
        port=host.port,
        gateway=before,
        connect_timeout=round(CONNECT_S * cluster.patience),
        forward_agent=False,
        connect_kwargs={**keys, **_limits(cluster.patience)},
    )
    if before is None and not isinstance(connection.gateway, str):  # a ProxyCommand is the user's own program
        connection.gateway = None
    try:
        for key in _known_keys(cluster.known_hosts, host):
            connection.client.get_host_keys().add(_known_as(host), key.get_name(), key)
        connection.client.set_missing_host_key_policy(RejectPolicy())
        connection.open()
    except Exception as error:
        transport = connection.client.get_transport()
        reached = transport is not None and transport.is_active()
        left = transport is not None and transport.initial_kex_done and not reached
        connection.client.close()
        raise Refused(host, error, reached, left) from error
    return connection


def _limits(patience: float) -> dict[str, Any]:
    """The arguments of paramiko's `connect` with its own limits for what follows the connection."""
    from paramiko import Transport

    def transport(*args: Any, **options: Any) -> Transport:
        made = Transport(*args, **options)
        made.handshake_timeout = NEGOTIATE_S * patience
        return made

    return {
        "transport_factory": transport,
        "banner_timeout": NEGOTIATE_S * patience,
        "auth_timeout": LOGIN_S * patience,
    }
