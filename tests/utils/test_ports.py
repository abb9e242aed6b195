"""Ports that programs are given before they bind them."""

import socket
from collections import deque
from pathlib import Path

import pytest

from repro.utils import ports
from repro.utils.errors import ReproError
from repro.utils.ports import free_port


def test_no_outgoing_connection_can_take_it():
    """A socket that names no port gets one of the kernel's range."""
    first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    with socket.socket() as unnamed:
        unnamed.bind(("127.0.0.1", 0))
        assert first <= unnamed.getsockname()[1] <= last
    assert not [port for port in (free_port() for _ in range(100)) if first <= port <= last]


def test_the_same_is_not_given_again():
    given = [free_port() for _ in range(100)]
    assert len(set(given)) == 100


@pytest.mark.parametrize(
    ("text", "some"),
    [
        ("10200\t65535\n", range(10000, 10200)),
        ("1024\t65300\n", range(65301, 65536)),
        ("20000\t50000\n", [*range(10000, 20000), *range(50001, 65536)]),
        ("1024\t65535\n", range(10000, 65536)),
        ("10002\t65535\n", range(10000, 65536)),  # two are outside
        ("a range\n", [*range(10000, 32768), *range(61000, 65536)]),
        (None, [*range(10000, 32768), *range(61000, 65536)]),
    ],
)
def test_it_is_outside_the_range_that_the_kernel_says(tmp_path, monkeypatch, text, some):
    monkeypatch.setattr(ports, "OUTGOING", tmp_path / "range")
    if text:
        (tmp_path / "range").write_text(text)
    assert {free_port() for _ in range(60)} <= set(some)


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])
def test_a_port_that_a_program_holds_is_not_given(monkeypatch, kind, address):
    free, other = free_port(), free_port()
    monkeypatch.setattr(ports, "_given", deque(maxlen=2))
    monkeypatch.setattr(ports, "_not_outgoing", lambda: [free, other])
    with socket.socket(type=kind) as holds:
        holds.bind((address, free))
        assert free_port() == other
        with pytest.raises(ReproError, match="no port from 10000 to 65535 is free on this machine"):
            free_port()
