"""Descriptions of GPUs, nodes and clusters."""

import pytest

from repro.perfmodel.hardware import HardwareError, describe, from_devices


def test_published_cluster():
    cluster = describe("v100x32")
    assert (cluster.nodes, cluster.node.gpus, cluster.gpus) == (4, 8, 32)
    assert (cluster.gpu.name, cluster.node.ports, cluster.node.port_gbs) == ("v100-16", 1, 12.5)


def test_cube_is_the_published_topology():
    assert describe("v100-16-edrx4").node == describe("v100x32").node


def test_nodes_are_counted():
    assert describe("dgx-a100-80x128").gpus == 1024
    assert describe("dgx-a100-80x128").node.links is None


@pytest.mark.parametrize("name", ["nothing", "dgx-a100-80", "dgx-a100-80x0", "fabricx2", "../v100x32", "x"])
def test_unknown_cluster_names_what_there_is(name):
    with pytest.raises(HardwareError, match=r"v100x32, .*dgx-h100xN"):
        describe(name)


def test_devices_by_their_printed_name():
    assert from_devices("NVIDIA H200", 4).gpu.name == "h200-141"
    with pytest.raises(HardwareError, match=r"GeForce.*gpus\.toml.*H200"):
        from_devices("GeForce", 1)


def test_fp32_uses_no_tensor_cores():
    gpu = describe("v100x32").gpu
    assert gpu.peak_flops("amp") == 125e12
    assert gpu.peak_flops("fp32") == 15.7e12


@pytest.mark.parametrize("nodes", ["4097", "1000000000000"])
def test_a_cluster_has_a_number_of_nodes_that_can_be_searched(nodes):
    with pytest.raises(HardwareError, match="at most 4096 nodes"):
        describe(f"dgx-h100x{nodes}")
    assert describe("dgx-h100x4096").nodes == 4096
