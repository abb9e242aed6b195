"""A pool of nodes: whatever goes wrong with one while they are opened, none of the others stays open."""

import os
import sys
import time

import pytest

from repro.cluster.inventory import ClusterError
from repro.cluster.ssh import RemoteError
from repro.launch.nodes.code_upload import UploadedCode
from repro.launch.ssh import nodes
from repro.launch.ssh.nodes import NodePool
from tests.support.clusters import V100
from tests.support.patience import patience

NAMES = [node.name for node in V100.nodes]


@pytest.fixture
def opened(monkeypatch):
    """Stand-ins for sessions: those that are open by the name of their node, and what else to raise for a node."""

    class Session:
        lost = False

        def __init__(self, cluster, node, *given):
            if error := self.errors.get(node.name):
                raise error
            self.node = node
            self.now.append(node.name)
            self.steps.append("locked")

        def check(self, port):
            self.steps.append("checked")
            if error := self.unfit.pop(self.node.name, None):
                raise error

        def release(self):
            self.now.remove(self.node.name)

        close = release

    Session.errors, Session.unfit, Session.now, Session.steps = {}, {}, [], []
    monkeypatch.setattr(nodes, "NodeSession", Session)
    return Session


def test_members_are_in_the_order_of_the_inventory(opened):
    with NodePool(V100, UploadedCode(), "tests") as pool:
        assert list(pool.members) == NAMES
        assert sorted(opened.now) == sorted(NAMES)
    assert opened.now == []


@pytest.mark.parametrize("which", [0, 1, -1])
@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RemoteError("n", "no route"), ClusterError),
        (ValueError("a defect"), ValueError),
        (KeyboardInterrupt(), KeyboardInterrupt),
    ],
)
def test_no_session_stays_open_where_one_cannot_be_opened(opened, which, error, expected):
    opened.errors = {NAMES[which]: error}
    with pytest.raises(expected):
        NodePool(V100, UploadedCode(), "tests").__enter__()
    assert opened.now == []


def test_what_was_opened_again_is_closed_with_the_pool_although_another_failed(opened):
    with NodePool(V100, UploadedCode(), "tests") as pool:
        for name in NAMES:
            pool.drop(name)
        opened.errors = {NAMES[0]: ValueError("a defect")}
        with pytest.raises(ValueError, match="a defect"):
            pool.recover()
        assert sorted(opened.now) == sorted(NAMES[1:])
    assert opened.now == []


def test_nodes_that_are_out_of_reach_are_named(opened):
    opened.errors = {NAMES[0]: RemoteError(NAMES[0], "no route")}
    with pytest.raises(ClusterError, match=f"cannot be used now:\n{NAMES[0]}: no route"):
        NodePool(V100, UploadedCode(), "tests").__enter__()


def test_nodes_are_checked_once_all_are_locked_and_one_that_is_unfit_is_given_back(opened):
    opened.unfit = {NAMES[1]: RemoteError(NAMES[1], "no OneFlow")}
    with pytest.raises(ClusterError, match=f"cannot be used now:\n{NAMES[1]}: no OneFlow"):
        NodePool(V100, UploadedCode(), "tests").__enter__()
    assert opened.now == []
    assert opened.steps == ["locked"] * len(NAMES) + ["checked"] * len(NAMES)


def test_one_machine_under_two_names_is_named_at_once(server, tmp_path):
    """Not after the lease that a lost connection would have left."""
    (tmp_path / "work").mkdir()
    cluster = server.cluster(
        2, work=str(tmp_path / "work"), runtime_name="venv", python=os.path.realpath(sys.executable)
    )
    began = time.monotonic()
    with pytest.raises(
        ClusterError, match=r"node[01] and node[01] are the same machine, .* leave one of them out of .*yml"
    ):
        NodePool(cluster, UploadedCode(), "tests").__enter__()
    assert time.monotonic() - began < patience(6)


def test_nodes_of_one_host_name_are_said(opened):
    with NodePool(V100, UploadedCode(), "tests") as pool:
        for name, member in pool.members.items():
            member.facts = {"host": "localhost" if name in NAMES[:2] else name}
        (said,) = pool.namesakes()
    assert said.startswith(f"{NAMES[0]}, {NAMES[1]} all have the host name localhost")
