"""Fingerprints of simulated nodes: equal ones are equal, what is planted is found and named, and can be accepted."""

import shutil
from contextlib import ExitStack
from dataclasses import replace

import pytest
import yaml

from repro.cluster.cluster import load_cluster
from repro.cluster.fingerprint import CLOCK, differences, gather
from repro.simulation.nodes import KEY
from tests.docker.surroundings import ROOT
from tests.e2e import faults, hardware
from tests.support import tasks

RECORDS = ROOT / "tests/data/hardware"
IMAGE = "oneflow-reproduction:cu102"
VBIOS = "88.00.13.00.02"
PACKAGE = """set -e; mkdir -p /tmp/deb/DEBIAN; cd /tmp
printf 'Package: libnccl2\\nVersion: %s\\nArchitecture: all\\n' "$1" > deb/DEBIAN/control
printf 'Maintainer: test <test@localhost>\\nDescription: test\\n' >> deb/DEBIAN/control
dpkg-deb --build deb one.deb >/dev/null; dpkg -i one.deb >/dev/null; rm -rf deb one.deb"""
PLANTED = ["gpu.vbios", "hca.mlx5_0.rate", "image.id", "package.libnccl2", "sysctl.net.core.somaxconn"]


@pytest.fixture
def hardware_laid(two_nodes):
    """GPUs, an InfiniBand port and a package on both nodes, the same; all of it goes again."""
    report = (RECORDS / "v100-driver-550/nvidia-smi-q.txt").read_text()
    topology = (RECORDS / "published/nvidia-smi-topo.txt").read_text()
    with ExitStack() as remedies:
        for node in two_nodes.names:
            remedies.callback(hardware.remove_tools, two_nodes, node)
            hardware.lay_tools(two_nodes, node, {"nvidia-smi -q": report, "nvidia-smi topo -m": topology})
            remedies.callback(hardware.remove_infiniband, two_nodes, node)
            hardware.lay_infiniband(two_nodes, node)
            remedies.callback(two_nodes.root, node, "dpkg", "--purge", "libnccl2")
            two_nodes.root(node, "sh", "-c", PACKAGE, "sh", "2.7.8-1+cuda10.2")
        yield remedies


def run(task, **settings):
    return tasks.run(task, 120, **settings)


def inventory(nodes, folder, **variables):
    shutil.copytree(nodes.inventory, folder)
    path = folder / "group_vars/all.yml"
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | variables))
    return folder


def test_equal_nodes_then_planted_differences_by_name(two_nodes, hardware_laid, tmp_path):
    cluster = replace(load_cluster(two_nodes.inventory), hca="mlx5_0")
    found = gather(cluster)
    assert differences(found) == []
    fields = found["node1"].fields
    assert (fields["image.id"], fields["docker.storage"]) == (cluster.image.digest, "overlay2")
    assert fields["hca.mlx5_0.rate"] == "100 Gb/s"
    assert fields["gpu.topology.GPU0"] == "X NV1 NV1 NV2 NV2 SYS SYS SYS NODE"
    assert found["node1"].notes == found["node2"].notes == ()

    plant(two_nodes, "node2", hardware_laid)
    apart = differences(gather(cluster))
    assert [each.field for each in apart] == PLANTED
    values = {each.field: each.values for each in apart}
    assert values["hca.mlx5_0.rate"] == {"100 Gb/s": ["node1"], "40 Gb/s": ["node2"]}
    assert values["package.libnccl2"] == {"2.7.8-1+cuda10.2": ["node1"], "2.7.3-1+cuda10.2": ["node2"]}
    assert values["image.id"] == {cluster.image.digest: ["node1"], "not there": ["node2"]}

    runs = {"RUNS": str(tmp_path / "runs"), "CHECK": "1"}
    refused = run("fingerprint", CLUSTER=str(inventory(two_nodes, tmp_path / "strict", cluster_hca="mlx5_0")), **runs)
    assert refused.returncode == 1, refused.stdout + refused.stderr
    assert "nodes differ in 5 fields" in refused.stderr
    assert all(name in refused.stdout for name in PLANTED)
    lenient = inventory(
        two_nodes, tmp_path / "lenient", cluster_hca="mlx5_0", cluster_accepted_differences=["gpu", *PLANTED[1:]]
    )
    passed = run("fingerprint", CLUSTER=str(lenient), **runs)
    assert passed.returncode == 0, passed.stdout + passed.stderr
    assert "gpu.vbios (accepted)" in passed.stdout
    assert len(list((tmp_path / "runs").glob("fingerprint-*.json"))) == 2


def plant(nodes, node, remedies):
    """On one node: another VBIOS, adapter rate, image, package version and kernel parameter."""
    report = (RECORDS / "v100-driver-550/nvidia-smi-q.txt").read_text()
    hardware.lay_tools(nodes, node, {"nvidia-smi -q": report.replace(VBIOS, "88.00.00.00.00")})
    hardware.lay_infiniband(nodes, node, rate="40 Gb/sec (4X QDR)")
    nodes.root(node, "sh", "-c", PACKAGE, "sh", "2.7.3-1+cuda10.2")
    remedies.callback(nodes.root, node, "sh", "-c", f"docker tag kept:1 {IMAGE}; docker rmi kept:1")
    nodes.root(node, "sh", "-ec", f"docker tag {IMAGE} kept:1; docker rmi {IMAGE}")
    before = nodes.root(node, "sysctl", "-n", "net.core.somaxconn").strip()
    remedies.callback(nodes.root, node, "sysctl", "-q", f"net.core.somaxconn={before}")
    nodes.root(node, "sysctl", "-q", "net.core.somaxconn=1024")


def test_a_clock_that_is_wrong_is_found(two_nodes):
    faults.skew_clock(two_nodes, "node2", 30)
    try:
        (found,) = differences(gather(load_cluster(two_nodes.inventory)))
    finally:
        faults.mend_clock(two_nodes, "node2")
    assert found.field == CLOCK
    (_, right), (wrong, nodes) = found.values.items()
    assert (right, nodes) == (["node1"], ["node2"])
    assert 29 < float(wrong.removesuffix(" s")) < 31


def test_a_new_inventory_is_usable_at_once(two_nodes, tmp_path):
    hosts = " ".join(f"{node}={two_nodes.address(node)}" for node in two_nodes.names)
    printed = [
        two_nodes.root(node, "ssh-keygen", "-lf", "/etc/ssh/ssh_host_ed25519_key.pub") for node in two_nodes.names
    ]
    given = {"NAME": f"{tmp_path}/mine", "HOSTS": hosts, "LOGIN": "runner", "KEY": str(KEY), "GPUS": "2"}
    refused = run("new-cluster", **given)
    assert refused.returncode == 2
    assert "FINGERPRINTS is missing" in refused.stderr
    done = run("new-cluster", **given, FINGERPRINTS=" ".join(line.split()[1] for line in printed))
    assert done.returncode == 0, done.stdout + done.stderr
    cluster = load_cluster(tmp_path / "mine")
    assert (cluster.interface, cluster.network_gbits, cluster.image.digest) == ("eth0", 10, two_nodes.image)
    assert list(gather(cluster)) == two_nodes.names
