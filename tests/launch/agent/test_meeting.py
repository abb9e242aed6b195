"""The nodes of an attempt meet before its ranks start, or say which way is closed."""

import errno
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from repro.launch.agent import meeting
from repro.launch.agent.node import port_is_free
from repro.utils.ports import free_port
from tests.support.patience import patience, slowness


def order(index, port, others=2, key="k"):
    return {"address": "127.0.0.1", "port": port, "key": key, "index": index, "others": others}


def all_meet(orders, stopped=None):
    stopped = stopped or threading.Event()
    with ThreadPoolExecutor(len(orders)) as pool:
        return list(pool.map(lambda each: meeting.meet(each, stopped), orders))


@pytest.fixture
def hurried(monkeypatch):
    slower = slowness()
    monkeypatch.setattr(meeting, "PATIENCE_S", 0.6 * slower)
    monkeypatch.setattr(meeting, "LONGER_S", 1.2 * slower)


def test_nodes_meet_and_leave_the_port_to_rank_0():
    port, began = free_port(), time.monotonic()
    assert all_meet([order(index, port) for index in (1, 2, 0)]) == [""] * 3
    assert time.monotonic() - began < patience(3)
    assert port_is_free(port)
    with socket.socket() as plain:  # as a program binds that does not ask for the reuse of an address
        plain.bind(("0.0.0.0", port))


def test_a_node_that_comes_late_is_waited_for():
    port = free_port()
    late = threading.Timer(1.0, lambda: meeting.meet(order(0, port, others=1), threading.Event()))
    late.start()
    assert meeting.meet(order(1, port), threading.Event()) == ""
    late.join()


def test_where_nobody_listens_the_address_and_port_are_named(hurried):
    port = free_port()
    (said,) = all_meet([order(1, port)])
    assert said.startswith(f"it cannot connect to the node of rank 0, 127.0.0.1, port {port}: Connection refused")
    assert f"on port {port}: a firewall" in said


def test_a_way_that_is_open_to_one_port_only_is_named(hurried, monkeypatch):
    port, connect = free_port(), socket.create_connection

    def firewall(address, timeout):
        if address[1] != port:
            raise OSError(errno.EHOSTUNREACH, "No route to host")
        return connect(address, timeout)

    monkeypatch.setattr(meeting.socket, "create_connection", firewall)
    said = all_meet([order(0, port, others=1), order(1, port)])
    assert said[0] == f"only 0 of 1 other nodes connected to port {port} here within {meeting.LONGER_S:.0f} s"
    assert "(No route to host), only to port" in said[1] and "from which OneFlow and NCCL take theirs" in said[1]


def test_others_who_connect_are_not_counted(hurried):
    port = free_port()
    orders = [order(0, port, others=1), order(1, port, key="of another run")]
    assert all_meet(orders)[0].startswith("only 0 of 1 other nodes")


def test_an_attempt_that_is_stopped_waits_no_longer():
    stopped, port = threading.Event(), free_port()
    threading.Timer(0.3, stopped.set).start()
    began = time.monotonic()
    assert all_meet([order(0, port), order(1, free_port())], stopped) == ["", ""]
    assert time.monotonic() - began < patience(3)
