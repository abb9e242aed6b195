"""Fingerprints: what is gathered and parsed, what counts as a difference, and that no output makes it crash."""

import ast
import copy
import json
import platform
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from repro.cluster import node_probe as node_facts
from repro.cluster.fingerprint import (
    CLOCK,
    SCRIPT,
    Fingerprint,
    FingerprintError,
    as_json,
    differences,
    differences_table,
    fingerprint_of,
    gather,
    write,
)
from repro.cluster.node_fields import NodeFields
from tests.support.clusters import V100
from tests.support.paths import HARDWARE, ROOT

RECORDED = HARDWARE
IMAGE = "oneflow-reproduction:cu102"
RELEASES = ROOT / "tests/data/os-release"
ADAPTER = "/sys/class/infiniband/mlx5_0"


@pytest.fixture(scope="module")
def facts_here():
    """What the script prints on this machine."""
    done = subprocess.run(
        [sys.executable, "-", "60", "lo", "", "libc6"],
        input=SCRIPT.read_text(),
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


@pytest.fixture
def facts(facts_here):
    """The same as if no vendor's tool were installed here; to be changed by a test."""
    facts = copy.deepcopy(facts_here)
    for name in (
        "nvidia-smi -q",
        "nvidia-smi topo -m",
        "ibstat",
        "ibv_devinfo",
        "ofed_info",
        "chronyc tracking",
        "docker info",
        "docker images",
        "nvidia-ctk",
    ):
        facts["commands"][name] = {"status": None, "output": "", "errors": "not found"}
    return facts


def answer(facts, name, output, status=0):
    facts["commands"][name] = {"status": status, "output": output, "errors": ""}


def read(facts):
    return NodeFields(facts, "lo", IMAGE)


def node(name, fields=None, offset=0.0, uncertainty=0.01):
    readings = {"time.offset_s": offset, "time.uncertainty_s": uncertainty, "load": len(name)}
    return Fingerprint(name, fields or {"system.kernel": "6.1"}, readings, None, ())


def nodes(*each):
    return {one.node: one for one in each}


def test_script_is_python_3_6_of_the_standard_library():
    tree = ast.parse(SCRIPT.read_text(), feature_version=(3, 6))
    imported = {name.name for each in ast.walk(tree) if isinstance(each, ast.Import) for name in each.names}
    assert imported <= sys.stdlib_module_names
    assert not [each for each in ast.walk(tree) if isinstance(each, ast.ImportFrom)]
    assert not {"capture_output", "text"} & {word.arg for word in ast.walk(tree) if isinstance(word, ast.keyword)}


def test_what_this_machine_is(facts):
    fingerprint = read(facts)
    assert fingerprint.fields["system.kernel"] == platform.release()
    assert fingerprint.fields["system.python"] == platform.python_version()
    assert fingerprint.fields["interface.mtu"] == Path("/sys/class/net/lo/mtu").read_text().strip()
    somaxconn = Path("/proc/sys/net/core/somaxconn").read_text().strip()
    assert fingerprint.fields["sysctl.net.core.somaxconn"] == somaxconn
    assert fingerprint.fields["memory.total"].endswith("iB")
    assert not [name for name in fingerprint.fields if name.startswith(("gpu.", "hca.", "docker."))]
    assert fingerprint.notes == []
    assert "root=" not in fingerprint.fields.get("system.boot", "")


@pytest.mark.parametrize("release", sorted(RELEASES.iterdir()), ids=lambda path: path.name)
def test_every_distribution_has_a_name_and_packages(facts, release):
    """Those with dpkg and those with rpm; `rpm -qa` prints nothing where it is installed beside dpkg."""
    facts["files"]["/etc/os-release"] = release.read_text()
    listed = {"dpkg": "installed libc6 2.39-0ubuntu8.3\n", "rpm": ""}
    if release.name.startswith(("rhel", "rocky")):
        listed = {"dpkg": None, "rpm": "installed glibc 2.34-100.el9\ninstalled nvidia-driver 550.54.14-1.el9\n"}
    for tool, output in listed.items():
        answer(facts, tool, output or "", None if output is None else 0)
    found = read(facts).fields
    name, version = release.name.split("-")
    assert found["system.distribution"].lower().startswith({"rhel": "red hat"}.get(name, name))
    assert version in found["system.distribution"]
    packages = {name: value for name, value in found.items() if name.startswith("package.")}
    if listed["rpm"]:
        assert packages == {"package.glibc": "2.34-100.el9", "package.nvidia-driver": "550.54.14-1.el9"}
    else:
        assert packages == {"package.libc6": "2.39-0ubuntu8.3"}


def test_gpus_and_their_topology(facts):
    answer(facts, "nvidia-smi -q", (RECORDED / "v100-driver-550/nvidia-smi-q.txt").read_text())
    answer(facts, "nvidia-smi topo -m", (RECORDED / "published/nvidia-smi-topo.txt").read_text())
    fingerprint = read(facts)
    assert (fingerprint.fields["gpu.count"], fingerprint.fields["gpu.driver"]) == ("2", "550.127.05")
    assert fingerprint.fields["gpu.model"] == "Tesla V100-SXM2-16GB"
    assert fingerprint.fields["gpu.vbios"] == "88.00.4F.00.09, 88.00.13.00.02"
    assert fingerprint.fields["gpu.topology.GPU2"] == "NV1 NV2 X NV2 SYS SYS NV1 SYS PIX"
    assert fingerprint.fields["gpu.affinity.GPU7"] == "12-23,36-47"
    assert fingerprint.topology["devices"][-1] == "mlx5_0"


def adapter_files(rate):
    return {
        f"{ADAPTER}/hca_type": "MT4115",
        f"{ADAPTER}/fw_ver": "12.23.1020",
        f"{ADAPTER}/ports/1/rate": rate,
        f"{ADAPTER}/ports/1/state": "4: ACTIVE",
        f"{ADAPTER}/ports/1/phys_state": "5: LinkUp",
        f"{ADAPTER}/ports/1/link_layer": "InfiniBand",
    }


def test_adapters_by_files_are_those_by_ibstat(facts):
    answer(facts, "ibstat", (RECORDED / "edr/ibstat.txt").read_text())
    by_ibstat = read(facts).fields
    answer(facts, "ibstat", "", status=None)
    facts["files"] |= adapter_files("100 Gb/sec (4X EDR)")
    assert read(facts).fields == by_ibstat
    assert by_ibstat["hca.mlx5_0.rate"] == "100 Gb/s"
    assert by_ibstat["hca.mlx5_0.state"] == "Active, LinkUp"


def test_a_link_below_what_it_could_be_says_so(facts):
    answer(facts, "iblinkinfo mlx5_0", (RECORDED / "ibsim/iblinkinfo-line.txt").read_text().splitlines()[0])
    assert read(facts).fields["hca.mlx5_0.link"] == "4X at 2.5 Gb/s, Could be 12X Could be 10.0 Gbps"


def test_engine_image_and_packages(facts):
    info = {
        "ServerVersion": "26.1.5",
        "Driver": "overlay2",
        "CgroupDriver": "systemd",
        "CgroupVersion": "2",
        "Runtimes": {"runc": {}, "nvidia": {}},
        "DefaultRuntime": "runc",
    }
    answer(facts, "docker info", json.dumps(info))
    answer(facts, "docker images", f"other:1 sha256:{'1' * 64}\n{IMAGE} sha256:{'2' * 64}\n")
    answer(facts, "nvidia-ctk", "NVIDIA Container Toolkit CLI version 1.17.8\ncommit: f202b80\n")
    answer(facts, "dpkg", "installed runc 1.1.5\nnot-installed cuda-drivers \nconfig-files libnccl2 2.7\n", status=1)
    fields = read(facts).fields
    assert (fields["docker.version"], fields["docker.cgroup"]) == ("26.1.5", "systemd v2")
    assert (fields["docker.runtimes"], fields["docker.nvidia_toolkit"]) == ("nvidia, runc", "1.17.8")
    assert fields["image.id"] == f"sha256:{'2' * 64}"
    assert {name: value for name, value in fields.items() if name.startswith("package.")} == {"package.runc": "1.1.5"}


@pytest.mark.parametrize(
    ("engine", "fields"),
    [
        ("docker-26-overlay2", ("26.1.5+dfsg1", "overlay2", "cgroupfs v1", "runc")),
        ("docker-26-containerd", ("26.1.5+dfsg1", "overlayfs", "cgroupfs v1", "runc")),
        ("podman-5", ("podman 5.4.2", "vfs", "cgroupfs v1", "crun")),
    ],
)
def test_engines_of_other_kinds(facts, engine, fields):
    recorded = json.loads((ROOT / f"tests/data/engines/{engine}.json").read_text())["commands"]
    answer(facts, "docker info", recorded["info --format {{json .}}"]["stdout"])
    found = read(facts).fields
    assert tuple(found[f"docker.{name}"] for name in ("version", "storage", "cgroup", "runtime")) == fields


def test_a_clock_by_chrony(facts):
    answer(facts, "chronyc tracking", "System time     : 0.000250 seconds slow of NTP time\nLeap status     : Normal\n")
    fingerprint = read(facts)
    assert (fingerprint.readings["time.chrony_offset_s"], fingerprint.fields["time.chrony"]) == (-0.00025, "Normal")


@pytest.mark.parametrize("garbage", ["", "gibberish\n", "CA 'x'\n\n: :\n", "{", "GPU 00:0\n\tGPU0\nhca_id: a\n"])
def test_no_output_makes_it_crash(facts, garbage):
    for name in [*facts["commands"], "iblinkinfo mlx5_0"]:
        answer(facts, name, garbage)
    notes = read(facts).notes
    for tool in ("nvidia-smi -q", "nvidia-smi topo -m", "ibstat", "iblinkinfo"):
        assert [note for note in notes if note.startswith(f"{tool}: its output has no known form")], tool


def test_a_tool_that_fails_is_a_note(facts):
    facts["commands"]["nvidia-smi -q"] = {"status": 9, "output": "NVIDIA-SMI has failed\n", "errors": ""}
    facts["commands"]["docker info"] = {"status": 1, "output": '{"ServerVersion":""}', "errors": "no daemon\n"}
    assert read(facts).notes == ["nvidia-smi -q: status 9: NVIDIA-SMI has failed", "docker info: status 1: no daemon"]


def test_offset_of_a_clock_by_halving_the_way_there_and_back(facts):
    facts["times"] = [1002.2, 1003.2]
    readings = fingerprint_of("a", read(facts), 1000.0, 1001.4).readings
    assert (readings["time.offset_s"], readings["time.uncertainty_s"]) == (2.0, 0.2)


def test_equal_nodes_have_no_differences():
    assert differences(nodes(node("a"), node("bb", offset=0.05), node("ccc", offset=-0.03))) == []


def test_no_nodes_at_all_are_no_difference():
    """As where a scheduler grants nodes that nobody could ask before."""
    assert differences({}) == []
    assert as_json(V100, {})["nodes"] == {}


def test_a_difference_names_nodes_and_puts_the_majority_first():
    found = differences(nodes(node("a", {"x": "1", "y": "1"}), node("b", {"x": "2", "y": "1"}), node("c", {"x": "2"})))
    assert [(each.field, each.values, each.accepted) for each in found] == [
        ("x", {"2": ["b", "c"], "1": ["a"]}, False),
        ("y", {"1": ["a", "b"], "absent": ["c"]}, False),
    ]


@pytest.mark.parametrize(
    ("accepted", "expected"),
    [([], False), (["gpu.vbios"], True), (["gpu"], True), (["gpu.vb", "g", "vbios"], False)],
)
def test_differences_are_accepted_by_name_or_by_what_stands_before_a_dot(accepted, expected):
    (found,) = differences(nodes(node("a", {"gpu.vbios": "1"}), node("b", {"gpu.vbios": "2"})), accepted)
    assert found.accepted is expected


def test_clocks_differ_beyond_what_the_measurement_may_be_wrong_by():
    (found,) = differences(nodes(node("a"), node("b", offset=2.0), node("c", offset=-0.02)))
    assert (found.field, found.values) == (CLOCK, {"within 0.1 s": ["a", "c"], "+2.00 s": ["b"]})
    assert differences(nodes(node("a"), node("b", offset=2.0, uncertainty=1.95), node("c"))) == []
    assert differences(nodes(node("a"), node("b", offset=2.0)), [CLOCK])[0].accepted


def test_table_cuts_long_values():
    found = differences(nodes(node("a", {"x": "1" * 90}), node("b", {"x": "1" * 90}), node("c", {"x": "2"})), ["x"])
    assert differences_table(found, 10)[1] == [["x (accepted)", "111111111… [2]", "c: 2"]]


def test_gathered_over_ssh_and_written(server, tmp_path):
    cluster = server.cluster(2, python=sys.executable, accepted=frozenset({"system.kernel"}))
    found = gather(cluster)
    assert list(found) == ["node0", "node1"]
    assert found["node0"].fields == found["node1"].fields
    assert abs(found["node0"].readings["time.offset_s"]) <= found["node0"].readings["time.uncertainty_s"]
    found["node1"] = replace(found["node1"], fields=found["node1"].fields | {"system.kernel": "4.4"})
    write(tmp_path / "fingerprint.json", cluster, found)
    kept = json.loads((tmp_path / "fingerprint.json").read_text())
    assert (kept["schema"], kept["cluster"], list(kept["nodes"])) == (1, "loopback", ["node0", "node1"])
    assert set(kept["nodes"]["node0"]) == {"node", "fields", "readings", "topology", "notes"}
    (difference,) = kept["differences"]
    assert (difference["field"], difference["accepted"]) == ("system.kernel", True)
    assert difference["values"] == {platform.release(): ["node0"], "4.4": ["node1"]}


def test_a_node_that_cannot_be_looked_at_is_named(server):
    with pytest.raises(
        FingerprintError, match=r"not every node could be probed:\nnode0: `/nothing/python3 -I -B - 60 lo"
    ):
        gather(server.cluster(python="/nothing/python3"))


def test_a_node_that_answers_nonsense_is_named(server, tmp_path):
    (tmp_path / "python").write_text("#!/bin/sh\necho welcome\n")
    (tmp_path / "python").chmod(0o755)
    with pytest.raises(FingerprintError, match=r"node0: the output of node_probe\.py cannot be read: JSON"):
        gather(server.cluster(python=str(tmp_path / "python")))


def test_a_tool_that_hangs_is_ended_and_named():
    results = node_facts.run_all({"slow": ["sleep", "30"], "none": ["/nothing"], "quick": ["echo", "x"]}, 0.2)
    assert (results["slow"]["status"], results["slow"]["errors"]) == (-9, "took longer than 0.2 s\n")
    assert (results["none"]["status"], results["quick"]["output"]) == (None, "x\n")
