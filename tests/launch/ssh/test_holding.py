"""Nodes that are held for their provisioning: nobody else changes them or runs there meanwhile, and nothing is left."""

import os
import sys
import time

import pytest

from repro.cluster.inventory import ClusterError
from repro.launch.nodes.code_upload import UploadedCode
from repro.launch.ssh.holding import held
from repro.launch.ssh.nodes import NodePool
from tests.support.patience import patience


@pytest.fixture
def cluster(server, tmp_path):
    (tmp_path / "work").mkdir()
    return server.cluster(work=str(tmp_path / "work"), runtime_name="venv", python=os.path.realpath(sys.executable))


def test_who_provisions_has_the_nodes_alone(cluster, tmp_path):
    with held(cluster, ["node0"], "make provision CLUSTER=x"):
        began = time.monotonic()
        with pytest.raises(
            ClusterError, match=r"(?s)nothing was done: .*node0: in use by .* for `make provision CLUSTER=x`"
        ):
            held(cluster, ["node0"], "make deprovision").__enter__()
        with pytest.raises(ClusterError, match=r"node0: in use by .* for `make provision CLUSTER=x`"):
            NodePool(cluster, UploadedCode(), "tests").__enter__()
        assert time.monotonic() - began < patience(8)
    with held(cluster, ["node0"], "again"):
        pass
    assert [path.name for path in (tmp_path / "work").iterdir()] == ["code"], (
        "only the run that was refused brought code"
    )


def test_a_node_that_cannot_be_reached_is_left_to_what_is_to_be_done(server, cluster):
    server.stop()
    with held(cluster, ["node0"], "make provision"):
        pass


def test_a_node_without_python_is_left_to_what_is_to_be_done(server):
    with held(server.cluster(python="/usr/bin/no-python"), ["node0"], "make provision"):
        pass


def test_only_the_nodes_that_are_named_are_held(cluster):
    with held(cluster, [], "make provision"), held(cluster, ["node0"], "another"):
        pass
