"""Two nodes that have booted with different kernels are not one cluster."""

import pytest

from tests.e2e.launching import note, wait_until
from tests.support import tasks
from tests.support.simulated import use_kernel

pytestmark = [pytest.mark.long, pytest.mark.timeout(2 * 3600)]
BOOT_S = 1200


def started(machines, node: str) -> str:
    """A node's kernel, once it has started; not all of its services do with one that lacks modules."""
    up = "systemctl is-system-running --wait; uname -r"
    wait_until(lambda: machines.ssh(node, up, timeout=BOOT_S).stdout.startswith(("running", "degraded")), BOOT_S)
    return machines.ssh(node, "uname -r").stdout.strip()


def test_a_node_with_another_kernel_is_named(machines, tmp_path):
    """Debian's kernel for clouds has neither Soft-RoCE nor InfiniBand."""
    usual = machines.ssh("node1", "uname -r").stdout.strip()
    release = usual.replace("-amd64", "-cloud-amd64")
    install = f"apt-get -q update && apt-get -q -y --no-install-recommends install linux-image-{release}"
    machines.root("node2", "env", "DEBIAN_FRONTEND=noninteractive", "sh", "-ec", install)
    use_kernel(machines, "node2", release)
    try:
        machines.kill("node2")
        machines.start("node2")
        assert started(machines, "node2") == release
        done = tasks.run("fingerprint", 1800, CLUSTER=machines.inventory, RUNS=tmp_path, CHECK=1)
        assert done.returncode == 1, done.stdout + done.stderr
        (said,) = (line for line in done.stdout.splitlines() if "system.kernel" in line)
        assert usual in said and release in said
        note("virtual machines: two kernels", 0, said.strip())
    finally:
        use_kernel(machines, "node2", "")
        machines.kill("node2")
        machines.start("node2")
        machines.wait("node2")
        machines.root("node2", "dpkg", "--purge", f"linux-image-{release}")
