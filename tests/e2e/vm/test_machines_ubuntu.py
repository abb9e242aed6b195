"""A second distribution: Ubuntu 22.04, from its first boot to a training over verbs."""

import os
import time

import pytest

from repro.cluster.cluster import load_cluster
from repro.cluster.provision import provision
from repro.simulation.machines import up
from tests.e2e.launching import note
from tests.e2e.vm.training import trained_over_verbs
from tests.support.simulated import process_label

pytestmark = [pytest.mark.long, pytest.mark.timeout(4 * 3600)]


@pytest.fixture(scope="module")
def ubuntu():
    made = up(f"ubuntu-{os.getpid()}", 2, process_label(), distribution="ubuntu")
    made.write_inventory()
    yield made
    made.down()


def test_ubuntu_is_provisioned_and_trains_over_verbs(ubuntu, tmp_path):
    release = "VERSION_ID=" + '"22.04"'
    assert release in ubuntu.ssh("node1", "cat /etc/os-release").stdout
    started = time.monotonic()
    done = provision(load_cluster(ubuntu.inventory), quiet=True)
    assert done.succeeded, done
    note("Ubuntu on virtual machines: provisioning", time.monotonic() - started, "")
    started = time.monotonic()
    trained_over_verbs(ubuntu, tmp_path, ubuntu.inventory, "on Ubuntu")
    note("Ubuntu on virtual machines: a training over verbs", time.monotonic() - started, "")
