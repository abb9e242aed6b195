"""Provisioning taken back in the end, on machines that had all the rest done to them."""

import time

import pytest

from repro.cluster.cluster import load_cluster
from repro.cluster.provision import deprovision
from tests.e2e.launching import note

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("provisioned_machines"), pytest.mark.timeout(2 * 3600)]
PACKAGES = ("docker.io", "chrony", "perftest", "rdma-core")


def test_what_was_provisioned_is_taken_back_and_the_machines_restart_without_it(machines):
    cluster, started = load_cluster(machines.inventory), time.monotonic()
    done = deprovision(cluster, quiet=True)
    assert done.succeeded and all(outcome.changed for outcome in done.outcomes), done
    note("virtual machines: deprovisioning", time.monotonic() - started, "")
    for node in machines.names:
        machines.restart(node)
    machines.wait()
    for node in machines.names:
        assert machines.ssh(node, "command -v dockerd").returncode != 0
        known = machines.ssh(
            node, f"dpkg-query --show --showformat='${{db:Status-Status}} ' {' '.join(PACKAGES)}"
        ).stdout
        assert set(known.split()) <= {"not-installed"}, "nothing is left but names"
        assert machines.ssh(node, "ulimit -l").stdout.strip() != "unlimited"
        assert machines.root(node, "sysctl", "--values", "net.core.rmem_max") != "67108864"
        assert machines.ssh(node, "ls /etc/oneflow-reproduction").returncode != 0
        assert machines.root(node, "cat", "/sys/class/infiniband/rxe0/ports/1/state") == "4: ACTIVE"
    assert [outcome.changed for outcome in deprovision(cluster, quiet=True).outcomes] == [0, 0]
