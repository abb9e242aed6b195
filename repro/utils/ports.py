"""Ports of this machine at which programs that start later meet."""

from __future__ import annotations

import random
import socket
from collections import deque
from contextlib import suppress
from pathlib import Path

from repro.utils.errors import ReproError

OUTGOING = Path("/proc/sys/net/ipv4/ip_local_port_range")
"""First and last of the ports that the kernel gives to sockets that name none."""
LINUX_DEFAULT = (32768, 60999)
FIRST, LAST = 10_000, 65_535
"""Services have those below."""
MOST_GIVEN = 100
_given: deque[int] = deque(maxlen=MOST_GIVEN)


def free_port() -> int:
    """A port that is free for TCP and UDP on every address of this machine.

    No outgoing connection can take it before its user binds it, unless all ports of this kernel are for those. It is drawn
    at random, so that processes side by side hardly get the same, and is none of the last hundred given in this process.

    Raises
    ------
    ReproError : if none is free.
    """
    ports, drawn = _not_outgoing(), random.Random()
    while ports:
        port = ports.pop(drawn.randrange(len(ports)))
        with suppress(OSError), socket.socket() as tcp, socket.socket(type=socket.SOCK_DGRAM) as udp:
            tcp.bind(("", port))
            udp.bind(("", port))
            if port not in _given:
                _given.append(port)
                return port
    raise ReproError(
        f"no port from {FIRST} to {LAST} is free on this machine: end programs that hold them (`ss -ltnp`)"
    )


def _not_outgoing() -> list[int]:
    """The ports outside of the kernel's range; all where fewer are than there may be given."""
    try:
        first, last = map(int, OUTGOING.read_text().split())
    except (OSError, ValueError):
        first, last = LINUX_DEFAULT
    every = range(FIRST, LAST + 1)
    outside = [port for port in every if not first <= port <= last]
    return outside if len(outside) > MOST_GIVEN else list(every)
