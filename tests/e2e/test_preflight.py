"""The preflight over simulated nodes: sound ones pass, what is planted is named with its node and its remedy."""

import json
import shutil

import pytest
import yaml

from repro.cluster.cluster import load_cluster
from repro.preflight.framework import FAILED, OK, UNAVAILABLE, choose, of_cluster, run_checks
from repro.preflight.gpu import CHECKS as GPU
from repro.preflight.network import CHECKS as NETWORK
from repro.preflight.node import CHECKS as NODE
from tests.e2e import faults

WORK = "/var/lib/oneflow-preflight"
LISTEN = "import socket, time; s = socket.create_server(('', 29500)); time.sleep(600)"


@pytest.fixture
def inventory(two_nodes, tmp_path):
    """Copies the nodes' inventory, with other variables for all, and others for single hosts."""

    def copy(hosts=None, **variables):
        folder = tmp_path / "planted"
        shutil.copytree(two_nodes.inventory, folder, dirs_exist_ok=True)
        for path, changes in (
            (folder / "group_vars/all.yml", lambda content: content | variables),
            (folder / "hosts.yml", lambda content: _hosts(content, hosts or {})),
        ):
            path.write_text(yaml.safe_dump(changes(yaml.safe_load(path.read_text())), sort_keys=False))
        return folder

    return copy


def _hosts(content, changes):
    for host, variables in changes.items():
        content["nodes"]["hosts"].setdefault(host, {}).update(variables)
    return content


@pytest.fixture
def work_folder(two_nodes):
    """A folder for runs on each node, as provisioning makes it."""
    for node in two_nodes.names:
        two_nodes.root(node, "install", "-d", "-o", "runner", WORK)
    yield WORK
    for node in two_nodes.names:
        two_nodes.root(node, "rm", "-rf", WORK)


def check(folder, only):
    """(check, machine) -> finding."""
    machines, errors = of_cluster(load_cluster(folder))
    assert not errors
    try:
        found = list(run_checks(choose((*GPU, *NODE, *NETWORK), only), machines))
    finally:
        for machine in machines:
            machine.runner.close()
    return {(entry.check, entry.machine): entry.finding for entries in found for entry in entries}


def test_sound_nodes_pass(two_nodes, inventory):
    found = check(inventory(), "gpus,container,memlock,shared-memory,disk,clock,port,link,link-errors,names,bandwidth")
    assert not [(name, finding.facts) for name, finding in found.items() if finding.result == FAILED]
    for name in ("container", "port", "link", "names"):
        assert all(found[name, node].result == OK for node in two_nodes.names), name
    assert found["gpus", "node1"].facts == "a cluster without GPUs"
    missing = found["bandwidth", "all"]
    assert (missing.result, missing.facts) == (UNAVAILABLE, "iperf3 is not installed")


@pytest.fixture
def planted(two_nodes, work_folder):
    """Faults on node2: a port in use, a name that is not known, little memory to lock, a full disk, a wrong clock."""
    two_nodes.root("node2", "systemd-run", "--unit=planted", "python3", "-c", LISTEN)
    two_nodes.root("node2", "cp", "/etc/hosts", "/etc/hosts.sound")
    two_nodes.root("node2", "sed", "-i", "/node1/d", "/etc/hosts")
    two_nodes.root("node2", "sh", "-c", "echo '* - memlock 64' > /etc/security/limits.d/planted.conf")
    faults.small_disk(two_nodes, "node2", work_folder, 16)
    faults.skew_clock(two_nodes, "node2", 30)
    yield
    faults.mend_clock(two_nodes, "node2")
    faults.big_disk(two_nodes, "node2", work_folder)
    two_nodes.root("node2", "rm", "/etc/security/limits.d/planted.conf")
    two_nodes.root("node2", "mv", "/etc/hosts.sound", "/etc/hosts")
    two_nodes.root("node2", "systemctl", "stop", "planted")


def test_planted_faults_are_named(planted, inventory, work_folder):
    folder = inventory(cluster_work=work_folder, cluster_hca="mlx5_0", cluster_runtime="venv")
    found = check(folder, "memlock,disk,clock,port,names,link")
    findings = {
        "memlock": "64 KiB",
        "disk": f"0.0 of 0.0 GiB free on {work_folder}",
        "clock": "s from the controller",
        "port": "port 29500 is held by",
        "names": "cannot resolve node1",
        "link": "no mlx5_0 port 1",
    }
    for name, text in findings.items():
        assert found[name, "node2"].result == FAILED, name
        assert text in found[name, "node2"].facts
        assert found[name, "node2"].fix
    assert float(found["clock", "node2"].facts.split()[0]) == pytest.approx(30, abs=2)
    for name in ("disk", "port", "names"):
        assert found[name, "node1"].result != FAILED, name


def test_a_node_that_does_not_answer_is_named_and_the_others_are_checked(task, tmp_path, inventory):
    done = task("preflight", CLUSTER=inventory({"node2": {"ansible_port": 2222}}), ONLY="port")
    assert done.returncode == 1
    (kept,) = (tmp_path / "runs").glob("preflight-*/preflight.json")
    found = {(each["check"], each["machine"]): each["result"] for each in json.loads(kept.read_text())["findings"]}
    assert found == {("reach", "node2"): FAILED, ("port", "node1"): OK}
    assert "port 2222" in done.stdout


def test_collectives_over_the_nodes(task, tmp_path, inventory, work_folder):
    folder = inventory(cluster_work=work_folder, cluster_gpus_per_node=1)
    done = task("preflight", CLUSTER=folder, ONLY="allreduce,allreduce-nodes")
    assert done.returncode == 0, done.stdout + done.stderr
    (measured,) = (tmp_path / "runs").glob("preflight-*/allreduce-all-nodes/allreduce.json")
    table = json.loads(measured.read_text())
    assert table["ranks"] == 2
    assert table["bus_gbs"] > 0
    assert [(pair["from"], pair["to"]) for pair in table["pairs"]] == [(0, 1)]


@pytest.mark.long
def test_bandwidth_between_nodes(make_nodes):
    nodes = make_nodes("bandwidth", 2, kind="bare")
    for node in nodes.names:
        nodes.root(node, "sh", "-ec", "apt-get -qq update; DEBIAN_FRONTEND=noninteractive apt-get -qqy install iperf3")
    found = check(nodes.inventory, "bandwidth")["bandwidth", "all"]
    assert "Gb/s (node1-node2)" in found.facts
    assert float(found.facts.split()[0]) > 0
