"""Recorded outputs of nvidia-smi, of drivers from 384 to 580, are read; what is none of them is refused."""

import pytest

from repro.cluster.nvidia_smi import GPU_FIELDS, NOT_SHOWN, parse_report, parse_topology
from repro.published.figures import load_published_cluster
from repro.utils.errors import FormatError
from tests.support.paths import HARDWARE

RECORDED = HARDWARE


def recorded(name):
    return (RECORDED / name).read_text()


def test_report_of_a_new_driver():
    report = parse_report(recorded("h200/nvidia-smi-q.txt"))
    (gpu,) = report.gpus
    assert (report.driver, report.cuda, gpu.bus_id) == ("580.159.04", "13.0", "00000000:00:06.0")
    assert {name: gpu.field(name) for name in GPU_FIELDS} == {
        "model": "NVIDIA H200",
        "vbios": "96.00.A5.00.1A",
        "memory": "143771 MiB",
        "clock_sm_max": "1980 MHz",
        "clock_memory_max": "3201 MHz",
        "clock_graphics_application": "1980 MHz",
        "clock_memory_application": "3201 MHz",
        "power_limit": "700.00 W",
        "ecc": "Enabled",
        "mig": "Disabled",
        "persistence": "Enabled",
        "compute_mode": "Default",
        "pcie_generation_max": "5",
        "pcie_width": "16x",
    }
    assert gpu.values["Clocks Event Reasons/HW Slowdown"] == "Not Active"


def test_report_of_the_driver_before_cuda_versions():
    report = parse_report(recorded("v100-driver-384/nvidia-smi-q.txt"))
    (gpu,) = report.gpus
    assert (report.driver, report.cuda) == ("384.145", "")
    assert (gpu.field("model"), gpu.field("persistence")) == ("Tesla V100-SXM2-32GB", "Disabled")
    assert (gpu.field("power_limit"), gpu.field("clock_graphics_application")) == ("300.00 W", "1290 MHz")
    assert gpu.field("mig") == NOT_SHOWN


def test_gpus_of_one_node_may_differ():
    first, second = parse_report(recorded("v100-driver-550/nvidia-smi-q.txt")).gpus
    assert (first.field("vbios"), second.field("vbios")) == ("88.00.4F.00.09", "88.00.13.00.02")
    assert (first.field("power_limit"), first.field("pcie_generation_max")) == ("300.00 W", "3")
    apart = {path for path in first.values if first.values[path] != second.values[path]}
    assert apart == {
        "Minor Number",
        "VBIOS Version",
        "GPU Power Readings/Power Draw",
        "GPU Power Readings/Min Power Limit",
    }


def test_topology_of_the_published_cluster_is_the_described_one():
    topology = parse_topology(recorded("published/nvidia-smi-topo.txt"))
    described = load_published_cluster("v100x32")["topology"]
    assert list(topology.devices) == described["devices"]
    assert [list(row) for row in topology.links] == described["links"]
    assert list(topology.affinity.values()) == described["cpu_affinity"][:8]


def test_topology_with_network_devices_by_their_names():
    topology = parse_topology(recorded("h100-eight/nvidia-smi-topo.txt"))
    assert topology.devices == tuple(f"GPU{i}" for i in range(8)) + tuple(f"mlx5_{i}" for i in range(8))
    assert topology.links[0][1] == "NV18"
    assert topology.links[7][15] == topology.links[15][7] == "PIX"
    assert topology.affinity["GPU4"] == "48-95,144-191"


def test_topology_of_one_gpu_with_a_coloured_header():
    topology = parse_topology(recorded("h200/nvidia-smi-topo.txt"))
    assert (topology.devices, topology.links, topology.affinity) == (("GPU0",), (("X",),), {"GPU0": "0-15"})


@pytest.mark.parametrize(
    ("parse", "text", "message"),
    [
        (parse_report, "No devices were found\n", "nvidia-smi -q: .* begins: No devices were found"),
        (parse_report, "", "begins: nothing"),
        (parse_report, "==============NVSMI LOG==============\nDriver Version : 1.0\n", "NVSMI LOG"),
        (parse_topology, "Failed to initialize NVML: Driver/library version mismatch", "begins: Failed to initialize"),
        (parse_topology, "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV1\t0-3\n", "begins: GPU0"),
    ],
)
def test_what_is_none_of_them_is_named(parse, text, message):
    with pytest.raises(FormatError, match=message):
        parse(text)
