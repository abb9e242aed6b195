"""The simulated nodes themselves: they are what other tests take them for, and faults do to them what they say."""

import subprocess
import time

import pytest

from tests.e2e import faults
from tests.support.patience import slowness
from tests.support.simulated import containers_asked_for, remove_leftover_nodes

PROBE = "docker run --rm --network host --ipc host --pull never --gpus all --ulimit memlock=-1 --device {} {}"
IMAGE = "oneflow-reproduction:cu102"


def test_nodes_are_reached_as_runner_with_the_true_host_keys(two_nodes):
    for node in two_nodes.names:
        done = two_nodes.ssh(node, "hostname; id -un; sudo -n id -u; systemctl is-system-running")
        assert done.stdout.split() == [node, "runner", "0", "running"], done.stderr


def test_nodes_know_and_reach_each_other_and_nobody_else(two_nodes):
    done = two_nodes.ssh("node1", "getent hosts node2 && ping -c 1 -W 2 node2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split()[0] == two_nodes.address("node2")
    started = time.monotonic()
    stranger = two_nodes.ssh("node1", "ping -c 1 -W 5 192.0.2.1")
    assert "Unreachable" in stranger.stdout
    assert time.monotonic() - started < 4 * slowness()


def test_an_engine_in_a_node_runs_the_trainer_image_with_all_that_production_asks_for(two_nodes):
    two_nodes.root("node2", "sh", "-c", "mkdir -p /dev/infiniband; mknod /dev/infiniband/uverbs0 c 231 192 || true")
    started = time.time()
    line = PROBE.format("/dev/infiniband/uverbs0", IMAGE)
    done = two_nodes.ssh("node2", f"{line} python -c 'import oneflow; print(oneflow.__version__)'")
    assert (done.stdout.strip(), done.returncode) == ("0.8.0", 0), done.stderr
    (asked,) = (each for each in containers_asked_for(two_nodes, "node2") if each["time"] >= started)
    assert asked["rlimits"]["RLIMIT_MEMLOCK"] >= 2**63
    assert any("nvidia" in hook for hook in asked["gpu_hooks"])
    assert "/dev/infiniband/uverbs0" in asked["devices"]
    assert "network" not in asked["namespaces"]


def test_debian_packages_can_be_installed(two_nodes):
    done = two_nodes.ssh("node1", "sudo apt-get -qq update && apt-get -qq download hello && ls hello_*.deb")
    assert done.returncode == 0, done.stderr


def test_a_paused_node_is_silent_and_comes_back(two_nodes):
    faults.pause(two_nodes, "node2")
    try:
        with pytest.raises(subprocess.TimeoutExpired):
            two_nodes.ssh("node2", "true", timeout=3)
    finally:
        faults.unpause(two_nodes, "node2")
    assert two_nodes.ssh("node2", "true").returncode == 0


def test_a_pulled_cable_loses_packets_without_a_word(two_nodes):
    faults.link_down(two_nodes, "node2")
    try:
        assert "100% packet loss" in two_nodes.root("node1", "ping", "-c", 1, "-W", 1, "node2", check=False)
    finally:
        faults.link_up(two_nodes, "node2")
    assert two_nodes.ssh("node1", "ping -c 1 -W 5 node2").returncode == 0


def test_a_small_disk_is_full_soon(two_nodes):
    faults.small_disk(two_nodes, "node1", "/srv/small", 2)
    try:
        done = two_nodes.ssh("node1", "sudo dd if=/dev/zero of=/srv/small/file bs=1M count=3")
        assert "No space left on device" in done.stderr
    finally:
        faults.big_disk(two_nodes, "node1", "/srv/small")
    assert two_nodes.ssh("node1", "ls /srv/small").stdout == ""


@pytest.mark.parametrize("seconds", [90, -3600])
def test_a_clock_goes_wrong_for_what_starts_afterwards(two_nodes, seconds):
    faults.skew_clock(two_nodes, "node1", seconds)
    try:
        for command in ("date +%s", "python3 -c 'import time; print(int(time.time()))'"):
            assert int(two_nodes.ssh("node1", command).stdout) - time.time() == pytest.approx(seconds, abs=3)
        assert two_nodes.ssh("node1", "python3 -c 'import time; time.sleep(0.1)'").returncode == 0
    finally:
        faults.mend_clock(two_nodes, "node1")
    assert int(two_nodes.ssh("node1", "date +%s").stdout) == pytest.approx(time.time(), abs=3)


def test_a_stopped_engine_does_not_answer(two_nodes):
    faults.stop_engine(two_nodes, "node1")
    try:
        assert two_nodes.ssh("node1", "docker info").returncode != 0
    finally:
        faults.start_engine(two_nodes, "node1")
    assert two_nodes.ssh("node1", "docker info").returncode == 0


def test_a_killed_node_ends_connections_at_once_and_starts_as_it_was(two_nodes):
    with subprocess.Popen(["ssh", "-F", str(two_nodes.ssh_config), "node2", "sleep 60"]) as connection:
        time.sleep(1)
        faults.kill(two_nodes, "node2")
        assert connection.wait(10 * slowness()) != 0
    faults.start(two_nodes, "node2")
    assert IMAGE in two_nodes.ssh("node2", "docker image ls --format '{{.Repository}}:{{.Tag}}'").stdout


def test_a_replaced_node_has_another_host_key_which_ssh_refuses(make_nodes):
    nodes = make_nodes("one", 1, kind="bare")
    faults.replace(nodes, "node1")
    done = nodes.ssh("node1", "true")
    assert done.returncode == 255
    assert "HOST IDENTIFICATION HAS CHANGED" in done.stderr
    nodes.write_ssh_config()
    assert nodes.ssh("node1", "command -v docker || echo none").stdout.strip() == "none"
    nodes.down()


def test_what_a_crashed_process_left_is_removed_and_nothing_else(make_nodes, two_nodes):
    left = make_nodes("left", 1, kind="bare", owner="process 999999999 1")
    assert remove_leftover_nodes() == [left.name]
    assert left.name not in left.engine.clusters()
    assert two_nodes.name in left.engine.clusters()
