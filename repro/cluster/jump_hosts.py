"""The jump hosts on the way to a node: which they are, and a connection through them that checks every host key.

Fabric would add any key of a jump host to those it knows, and takes a list of them in the wrong order; so the way is
built here, one host after the other.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

from repro.cluster.cluster import Cluster, Node
from repro.utils.errors import FAILED, ReproError

if TYPE_CHECKING:
    from fabric import Connection

CONNECT_S = 10


class Refused(ReproError):
    """A host on the way that could not be logged in to, and why; `reached` is whether it took the connection."""

    status = FAILED

    def __init__(self, host: Node, error: Exception, reached: bool) -> None:
        super().__init__(f"{host.name}: {error}")
        self.host, self.error, self.reached = host, error, reached


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
        connection.close()


def ssh_options(cluster: Cluster) -> list[str]:
    """The options with which OpenSSH takes the inventory's way to its nodes, and checks every key as `open_checked` does."""
    known = ["-o", f"UserKnownHostsFile={cluster.known_hosts}"]
    command = ""
    for position, host in enumerate(cluster.jump):
        following = cluster.jump[position + 1 :][:1]
        onward = f"[{following[0].address}]:{following[0].port}" if following else "[%h]:%p"
        words = ["ssh", *known, "-o", "StrictHostKeyChecking=yes", "-o", "BatchMode=yes"]
        words += ["-i", str(cluster.private_key)] if cluster.private_key else []
        words += ["-o", f"ProxyCommand={command}"] if command else ["-o", "ProxyJump=none"]
        command = shlex.join([*words, "-p", str(host.port), "-l", host.user, "-W", onward, host.address])
    return [*known, "-o", f"ProxyCommand={command}"] if command else known


def _configured(node: Node) -> Iterator[Node]:
    from fabric import Connection

    for hop in Connection(node.address, gateway=False).ssh_config.get("proxyjump", "none").split(","):
        if hop.strip().lower() != "none":
            found = Connection(hop.strip(), gateway=False)
            yield Node(hop.strip(), found.host, int(found.port), found.user, 0)


def _open(cluster: Cluster, host: Node, before: Connection | None) -> Connection:
    from fabric import Connection
    from paramiko import RejectPolicy

    keys = {"key_filename": str(cluster.private_key)} if cluster.private_key else {}
    connection = Connection(
        host.address,
        user=host.user,
        port=host.port,
        gateway=before,
        connect_timeout=CONNECT_S,
        forward_agent=False,
        connect_kwargs=keys,
    )
    if before is None and not isinstance(connection.gateway, str):  # a ProxyCommand is the user's own program
        connection.gateway = None
    try:
        connection.client.load_host_keys(str(cluster.known_hosts))
        connection.client.set_missing_host_key_policy(RejectPolicy())
        connection.open()
    except Exception as error:
        transport = connection.client.get_transport()
        reached = transport is not None and transport.is_active()
        connection.client.close()
        raise Refused(host, error, reached) from error
    return connection
