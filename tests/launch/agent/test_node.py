"""How an agent removes containers from an engine that may be failing, and finds the address of an interface."""

import ctypes
import socket
import struct
import subprocess

import pytest

from repro.launch.agent import node


@pytest.fixture
def engine(monkeypatch):
    """A Docker engine: how many questions it does not answer, how many removals fail, what it has, how often it was asked."""
    has = {"down": 0, "failing": 0, "containers": [], "asked": 0}

    def docker(verb, *arguments):
        if verb == "rm" and has["failing"]:
            has["failing"] -= 1
            return subprocess.CompletedProcess([], 1, "", "could not kill container: did not receive an exit event")
        if verb == "rm":
            has["containers"] = [each for each in has["containers"] if each not in arguments]
            return subprocess.CompletedProcess([], 0, "", "")
        has["asked"] += 1
        if has["asked"] <= has["down"]:
            return subprocess.CompletedProcess([], 1, "", "Cannot connect to the Docker daemon")
        return subprocess.CompletedProcess([], 0, "\n".join(has["containers"]), "")

    monkeypatch.setattr(node, "docker", docker)
    return has


@pytest.mark.parametrize("down", [0, 2])
def test_containers_are_removed_also_by_an_engine_that_is_restarted_meanwhile(engine, down):
    engine |= {"down": down, "containers": ["one", "two"]}
    node.remove_containers("name=any")
    assert engine["containers"] == []
    assert engine["asked"] == down + 2, "the last time to see that none is left"


def test_containers_that_an_engine_fails_to_remove_at_first_are_removed_later(engine):
    engine |= {"failing": 8, "containers": ["one"]}
    node.remove_containers("name=any")
    assert engine["containers"] == []


def test_an_engine_that_stays_away_is_not_waited_for_long(engine, monkeypatch):
    monkeypatch.setattr(node, "PATIENCE_S", 0.5)
    engine |= {"down": 1000, "containers": ["one"]}
    node.remove_containers("name=any")
    assert 2 <= engine["asked"] <= 4


def test_an_interface_has_its_address_where_no_tool_is_installed(monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    assert node.address("lo") == "127.0.0.1"
    assert node.address("missing0") == ""


@pytest.mark.parametrize("name", ["ib0", "ib0:1"])
def test_an_address_may_have_a_label_behind_the_interface_s_name(monkeypatch, name):
    def ioctl(any_socket, request, argument):
        place = struct.unpack("iP", argument)[1]
        entries = b"".join(
            struct.pack("16sHH4s16x", each.encode(), socket.AF_INET, 0, socket.inet_aton(has))
            for each, has in (("lo", "127.0.0.1"), ("ib01", "10.0.0.9"), (name, "10.0.0.1"), ("ib0", "10.0.0.2"))
        )
        ctypes.memmove(place, entries, len(entries))
        return struct.pack("iP", len(entries), place)

    monkeypatch.setattr(node.fcntl, "ioctl", ioctl)
    assert node.address("ib0") == "10.0.0.1"
