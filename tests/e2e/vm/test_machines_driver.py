"""The driver's role restarts a machine into what it has installed, and does nothing where that runs."""

import pytest

from repro.cluster.provision import provision
from tests.e2e.inventories import changed_inventory
from tests.e2e.vm.driver import driver_repository, headers

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("provisioned_machines"), pytest.mark.timeout(2 * 3600)]
VERSION = "535.183.06"


def test_a_driver_that_is_installed_runs_after_a_restart_and_is_then_left_alone(machines, tmp_path):
    kernel = machines.root("node2", "uname", "-r")
    if not headers(kernel).exists():
        pytest.skip(f"needs the headers of the machines' kernel: apt-get install linux-headers-{kernel}")
    repository = driver_repository(tmp_path, kernel, VERSION)
    variables = {
        "cluster_gpu": "NVIDIA A100-SXM4-40GB",
        "nvidia_driver_restart": True,
        "nvidia_driver_repository": repository.line,
        "nvidia_driver_key": repository.key,
        "nvidia_driver_fingerprint": repository.fingerprint,
    }
    cluster = changed_inventory(machines, tmp_path / "inventory", **variables)
    try:
        before = boot(machines)
        for changes in (True, False):
            done = provision(cluster, limit="node2", tags="nvidia_driver", quiet=True)
            assert done.succeeded, done
            assert bool(done.outcomes[0].changed) == changes
        assert boot(machines) != before
        assert machines.root("node2", "cat", "/sys/module/nvidia/version") == VERSION
    finally:
        repository.remove()
        machines.root("node2", "sh", "-c", "apt-mark unhold cuda-drivers; dpkg --purge cuda-drivers; rmmod nvidia")


def boot(machines) -> str:
    """What distinguishes one start of node2's kernel from another."""
    return machines.root("node2", "cat", "/proc/sys/kernel/random/boot_id")
