"""Machines that boot, the whole way: provisioned, restarted, checked, and a training over verbs that counters prove.

The tests build on one another, in this order.
"""

import time

import pytest

from repro.cluster.cluster import load_cluster
from repro.cluster.fingerprint import differences, gather
from repro.cluster.provision import provision
from repro.preflight.framework import OK, choose, of_cluster, run_checks
from repro.preflight.network import BANDWIDTH_LEAST
from repro.preflight.network import CHECKS as NETWORK
from repro.preflight.node import CHECKS as NODE
from tests.e2e.launching import note
from tests.e2e.vm.training import trained_over_verbs
from tests.support import tasks
from tests.support.patience import slowness

pytestmark = pytest.mark.timeout(3 * 3600)
SERVICES = ("ssh", "chrony", "docker")


@pytest.fixture(scope="module")
def cluster(machines):
    return load_cluster(machines.inventory)


def provisioned(cluster, **options) -> dict[str, int]:
    """Provision; how many tasks changed something on each node."""
    done = provision(cluster, quiet=True, **options)
    assert done.succeeded, done
    return {outcome.node: outcome.changed for outcome in done.outcomes}


def test_machines_boot_with_an_adapter_and_reach_each_other_and_nobody_else(machines):
    for node, other in zip(machines.names, reversed(machines.names), strict=True):
        state = machines.ssh(node, "hostname; id -un; sudo -n id -u; systemctl is-system-running").stdout.split()
        assert state == [node, "runner", "0", "running"]
        assert machines.root(node, "cat", "/sys/class/infiniband/rxe0/ports/1/state") == "4: ACTIVE"
        assert machines.ssh(node, f"ping -c 1 -W 9 {machines.address(other)}").returncode == 0
        assert "unreachable" in machines.ssh(node, "ping -c 1 -W 2 192.0.2.1").stderr.lower()


def test_a_dry_run_installs_nothing(machines, cluster):
    assert provisioned(cluster, check=True, limit="node1")["node1"] > 5
    assert machines.ssh("node1", "command -v docker").returncode != 0


def test_provisioning_sets_up_real_machines(cluster):
    started = time.monotonic()
    assert all(provisioned(cluster).values())
    note("virtual machines: provisioning", time.monotonic() - started, "")


def test_everything_comes_up_again_after_a_restart(machines):
    started = time.monotonic()
    boots = {node: boot(machines, node) for node in machines.names}
    for node in machines.names:
        machines.restart(node)
    machines.wait()
    note("virtual machines: restart", time.monotonic() - started, "")
    for node in machines.names:
        assert boot(machines, node) != boots[node]
        for service in SERVICES:
            assert machines.root(node, "systemctl", "is-active", service) == "active"
        for module in ("ib_uverbs", "ib_umad", "rdma_ucm", "ib_ipoib"):
            assert machines.root(node, "test", "-d", f"/sys/module/{module}") == ""
        assert machines.ssh(node, "ulimit -l").stdout.strip() == "unlimited"
        assert machines.root(node, "sysctl", "--values", "net.core.rmem_max") == "67108864"
        assert machines.root(node, "cat", "/sys/class/infiniband/rxe0/ports/1/state") == "4: ACTIVE"
        assert (
            machines.root(node, "docker", "image", "inspect", "--format", "{{.Id}}", machines.image) == machines.image
        )


def test_provisioning_again_changes_nothing_not_even_after_the_restart(cluster):
    started = time.monotonic()
    assert set(provisioned(cluster).values()) == {0}
    note("virtual machines: provisioning again", time.monotonic() - started, "")
    assert set(provisioned(cluster, check=True, limit="node1").values()) == {0}
    assert [each for each in differences(gather(cluster)) if not each.accepted] == []


def boot(machines, node: str) -> str:
    """What distinguishes one start of a machine's kernel from another."""
    return machines.root(node, "cat", "/proc/sys/kernel/random/boot_id")


def test_the_preflight_measures_verbs_between_the_machines(machines, cluster):
    found, errors = of_cluster(cluster)
    assert not errors
    try:
        checks = choose((*NODE, *NETWORK), "memlock,link,gid,names,ssh,bandwidth")
        entries = [entry for each in run_checks(checks, found) for entry in each]
    finally:
        for machine in found:
            machine.runner.close()
    results = {(entry.check, entry.machine): entry.finding for entry in entries}
    rate = str(results.pop(("bandwidth", "all")).facts)
    assert {key: str(each.facts) for key, each in results.items() if each.result != OK} == {}
    assert float(rate.split()[0]) > BANDWIDTH_LEAST * cluster.network_gbits / slowness()
    assert "rxe0: 1" in results["gid", "node1"].facts
    note("virtual machines: ib_write_bw", 0, rate)


def test_a_training_over_verbs_is_recorded_and_proved_by_the_adapters_counters(machines, tmp_path):
    """One rank on each machine, in Docker, over SSH."""
    started = time.monotonic()
    run = trained_over_verbs(machines, tmp_path, machines.inventory, "in Docker over SSH")
    note("virtual machines: a training over verbs", time.monotonic() - started, "")
    assert tasks.run("verify", 300, RUN=run, RUNS=tmp_path / "runs").returncode == 0
    report = (run / "report.en.md").read_text()
    assert "Traffic of the RDMA adapters" in report and "OneFlow RDMA" in report
