"""Packages of vendors: a wrong key, an index that nobody signed, a changed package, a version that is not there."""

import dataclasses

import pytest

from repro.cluster.provision import deprovision, provision
from tests.e2e.inventories import changed_inventory
from tests.e2e.vendor import repository

VERSION = "535.183.06"


@pytest.fixture(scope="module")
def described(bare_nodes, tmp_path_factory):
    """One node of a GPU cluster is enough here."""
    folder = tmp_path_factory.mktemp("vendor") / "inventory"
    cluster = changed_inventory(bare_nodes, folder, cluster_gpu="NVIDIA A100-SXM4-40GB")
    yield dataclasses.replace(cluster, nodes=cluster.nodes[:1])
    assert deprovision(cluster, limit="node1", quiet=True).succeeded


@pytest.fixture
def install(described, simulation, bare_nodes):
    """Installs the driver from a repository of its own, after something was done to that; what came of it."""
    made = repository(simulation, "nvidia-driver")
    made.add("cuda-drivers", f"{VERSION}-1")
    made.publish()

    def run(**variables):
        given = {
            "nvidia_driver_repository": made.line,
            "nvidia_driver_key": made.key,
            "nvidia_driver_fingerprint": made.fingerprint,
            **variables,
        }
        done = provision(described, limit="node1", tags="nvidia_driver", extra=given, quiet=True)
        (outcome,) = done.outcomes
        return outcome

    run.repository = made
    yield run
    made.remove()
    bare_nodes.root("node1", "dpkg", "--purge", "cuda-drivers")
    bare_nodes.root("node1", "apt-get", "clean")  # apt checks a package that it has fetched before by its size alone


def nothing_installed(nodes):
    return "nvidia" not in nodes.root("node1", "dpkg-query", "--show", "--showformat", "${Package}\n")


def test_a_key_that_is_not_the_pinned_one(install, bare_nodes):
    pinned = install.repository.fingerprint
    install.repository.publish("another")
    outcome = install(nvidia_driver_fingerprint=pinned)
    assert f"has the fingerprint {install.repository.fingerprint}, pinned is {pinned}" in outcome.message
    assert nothing_installed(bare_nodes)
    assert "oneflow" not in bare_nodes.root("node1", "ls", "/etc/apt/sources.list.d", "/usr/share/keyrings")


def test_an_index_that_is_signed_with_another_key(install, bare_nodes):
    """The key is the right one, the index is not its work: apt-get only warns if it has read this repository before."""
    pinned = install.repository.fingerprint
    key = (install.repository.folder / "key.asc").read_bytes()
    assert install().failed == 0
    bare_nodes.root("node1", "dpkg", "--purge", "cuda-drivers")
    install.repository.publish("another")
    (install.repository.folder / "key.asc").write_bytes(key)
    outcome = install(nvidia_driver_fingerprint=pinned)
    assert "apt does not accept the index" in outcome.message
    assert "NO_PUBKEY" in outcome.message or "not signed" in outcome.message
    assert "cuda-drivers" not in bare_nodes.root("node1", "dpkg-query", "--show", "--showformat", "${Package}\n")


def test_a_package_that_was_changed(install, bare_nodes):
    install.repository.tamper("cuda-drivers")
    outcome = install()
    assert f"cuda-drivers={VERSION}-1 cannot be installed" in outcome.message
    assert "Hash Sum mismatch" in outcome.message
    assert nothing_installed(bare_nodes)


def test_a_version_that_is_not_there(install, bare_nodes):
    outcome = install(nvidia_driver_version="545.23.08")
    assert "cuda-drivers=545.23.08-1 cannot be had" in outcome.message
    assert f"cuda-drivers={VERSION}-1" in outcome.message
    assert nothing_installed(bare_nodes)


def test_a_driver_that_this_kernel_cannot_have(install, bare_nodes):
    kernel = bare_nodes.root("node1", "uname", "-r")
    outcome = install(cluster_gpu="Tesla V100-SXM2-16GB")
    assert "driver 440.33.01, the published one, cannot be installed" in outcome.message
    assert f"on debian 12 with Linux {kernel}: it needs a kernel before 5.6" in outcome.message
    assert "set nvidia_driver_version to a newer driver" in outcome.message


def test_a_driver_that_no_longer_drives_the_gpu(install):
    outcome = install(cluster_gpu="Tesla V100-SXM2-16GB", nvidia_driver_version="590.44.01")
    assert "does not drive Tesla V100-SXM2-16GB (Volta): it takes 440.33 or later, up to series 580" in outcome.message
