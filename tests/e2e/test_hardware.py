"""Hardware laid into simulated nodes: tools repeat records, and an adapter is where the kernel would show it."""

import pytest

from tests.docker.surroundings import ROOT
from tests.e2e import hardware
from tests.e2e.ib_network import lay_network

RECORDS = ROOT / "tests/data/hardware"


def test_tools_repeat_what_was_recorded_and_refuse_what_was_not(two_nodes):
    topology = (RECORDS / "published/nvidia-smi-topo.txt").read_text()
    hardware.lay_tools(two_nodes, "node1", {"nvidia-smi topo -m": topology, "nvidia-smi -q": "whole\n"})
    try:
        assert two_nodes.ssh("node1", "nvidia-smi topo -m").stdout == topology
        assert two_nodes.ssh("node1", "nvidia-smi -q").stdout == "whole\n"
        refused = two_nodes.ssh("node1", "nvidia-smi --list-gpus")
        assert (refused.returncode, refused.stderr) == (1, "nvidia-smi: nothing is recorded for: --list-gpus\n")
    finally:
        hardware.remove_tools(two_nodes, "node1")
    assert two_nodes.ssh("node1", "nvidia-smi -q").returncode == 127


@pytest.mark.parametrize(("state", "physical"), [("4: ACTIVE", "LinkUp"), ("1: DOWN", "Polling")])
def test_an_adapter_is_in_sys_and_goes_again(two_nodes, state, physical):
    hardware.lay_infiniband(two_nodes, "node2", hca="mlx5_1", state=state)
    try:
        output = two_nodes.ssh("node2", "cd /sys/class/infiniband/*/ports/1 && pwd && cat state phys_state rate").stdout
        assert output.splitlines()[:2] == ["/sys/class/infiniband/mlx5_1/ports/1", state]
        assert physical in output
        assert "100 Gb/sec" in output
        assert "eth0" in two_nodes.ssh("node2", "ls /sys/class/net /dev/infiniband/uverbs0").stdout
    finally:
        hardware.remove_infiniband(two_nodes, "node2")
    assert two_nodes.ssh("node2", "ls -d /sys/class/infiniband /dev/infiniband").stdout == ""


@pytest.mark.long
def test_real_tools_see_a_simulated_network(make_nodes):
    nodes = make_nodes("ib", 2, kind="bare")
    lay_network(nodes)
    for node in nodes.names:
        assert "State: Active" in nodes.ssh(node, "sudo ibstat").stdout
        links = [line for line in nodes.ssh(node, "sudo iblinkinfo").stdout.splitlines() if "LinkUp" in line]
        assert {name for name in nodes.names if any(f'"{name}"' in line for line in links)} == set(nodes.names)
    nodes.down()
