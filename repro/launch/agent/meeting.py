"""Lets the agents of an attempt's nodes meet where its ranks will, before they start any: a firewall shows at once.

Ranks that cannot reach rank 0 wait for it in silence. So the agent on rank 0's node listens on its port, and on one that
the system chooses, as OneFlow and NCCL do for their data; the others connect to both. Needs Python 3.8 and nothing else.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import threading
import time

from repro.launch.agent.patience import limit

PATIENCE_S = 20.0
"""How long nodes that cannot connect try: agents start within seconds of each other."""
LONGER_S = 40.0
"""How long rank 0's node waits for them: what a node says that cannot connect comes first."""
TALK_S = 2.0
AGAIN_S = 0.2
LINE = 200
PORTS = "/proc/sys/net/ipv4/ip_local_port_range"


def meet(order: dict, stopped: threading.Event) -> str:
    """Wait until all nodes of the order have met, or `stopped` is set; why they have not, "" if they have."""
    key = f"{order['key']} {order['index']}"
    if order["index"] == 0:
        return _gather(order["port"], order["key"], order["others"], stopped)
    return _visit(order["address"], order["port"], key, stopped)


def _gather(port: int, key: str, others: int, stopped: threading.Event) -> str:
    with contextlib.closing(_listen(port)) as first, contextlib.closing(_listen(0)) as second:
        met: set[str] = set()
        deadline = time.monotonic() + limit(LONGER_S)
        while len(met) < others and not stopped.is_set():
            if time.monotonic() > deadline:
                return f"only {len(met)} of {others} other nodes connected to port {port} here within {limit(LONGER_S):.0f} s"
            for listening in select.select([first, second], [], [], AGAIN_S)[0]:
                with contextlib.suppress(OSError):
                    met |= _receive(listening, second, key)
    return ""


def _receive(listening: socket.socket, second: socket.socket, key: str) -> set[str]:
    """Take one connection: on the first port, answer with the second; on the second, this node has been met."""
    connection = listening.accept()[0]
    with connection:
        # The other side closes first, so that no state of this port is left that would keep rank 0 from it.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.settimeout(limit(TALK_S))
        said = _line(connection)
        if said.rpartition(" ")[0] != key:
            return set()
        connection.sendall(f"{second.getsockname()[1]}\n".encode())
        connection.recv(1)
        return {said} if listening is second else set()


def _visit(address: str, port: int, key: str, stopped: threading.Event) -> str:
    deadline = time.monotonic() + limit(PATIENCE_S)
    while not stopped.is_set():
        tried = port
        try:
            tried = int(_ask(address, port, key, deadline))
            _ask(address, tried, key, deadline)
            return ""
        except (OSError, ValueError) as error:
            if time.monotonic() + AGAIN_S > deadline:
                return _why(address, port, tried, error)
            stopped.wait(AGAIN_S)
    return ""


def _ask(address: str, port: int, key: str, deadline: float) -> str:
    with socket.create_connection((address, port), max(0.1, deadline - time.monotonic())) as connection:
        connection.settimeout(limit(TALK_S))
        connection.sendall(f"{key}\n".encode())
        return _line(connection)


def _line(connection: socket.socket) -> str:
    data = b""
    while not data.endswith(b"\n") and len(data) < LINE:
        piece = connection.recv(LINE)
        if not piece:
            break
        data += piece
    return data.decode("utf-8", "replace").strip()


def _listen(port: int) -> socket.socket:
    listening = socket.socket()
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("0.0.0.0", port))
        listening.listen()
    except OSError:
        listening.close()
        raise
    return listening


def _why(address: str, port: int, tried: int, error: Exception) -> str:
    said = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error) or "no answer"
    if tried != port:
        with open(PORTS) as file:
            least, most = file.read().split()
        where = f"ports {least} to {most}, from which OneFlow and NCCL take theirs"
        said = f"port {tried} ({said}), only to port {port}"
    else:
        where, said = f"port {port}", f"port {port}: {said}"
    return (
        f"it cannot connect to the node of rank 0, {address}, {said}. Let the nodes reach each other on {where}: a "
        "firewall on one of them, or between them, may refuse it"
    )
