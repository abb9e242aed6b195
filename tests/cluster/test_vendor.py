"""The stand-in for the vendors' repositories: apt takes what is signed, and refuses what is not."""

import pytest

from tests.cluster.vendor import repository


@pytest.fixture(scope="module")
def node(make_nodes):
    nodes = make_nodes("vendor", 1, kind="bare")
    yield lambda *words: nodes.root("node1", "sh", "-c", *words, check=True)
    nodes.down()


def source(made, key):
    """A script that makes apt know one repository and nothing else."""
    fetch = f"import urllib.request as u; print(u.urlopen('{key}').read().decode())"
    return (f'python3 -c "{fetch}" > /etc/apt/key.asc; rm -f /etc/apt/sources.list; '
            f"echo 'deb [signed-by=/etc/apt/key.asc] {made.line}' > /etc/apt/sources.list.d/one.list; "
            "rm -rf /var/lib/apt/lists/*; apt-get -q update 2>&1; ")  # fmt: skip


def test_signed_packages_of_an_exact_version_are_installed(vendor, node):
    exact = "nvidia-container-toolkit=1.17.7-1 nvidia-container-toolkit-base=1.17.7-1"
    install = f"apt-get -qq -y install {exact} 2>&1; dpkg-query --show nvidia-container-toolkit"
    told = node(source(vendor.container, vendor.container.key) + install)
    assert told.splitlines()[-1].split() == ["nvidia-container-toolkit", "1.17.7-1"]


def test_a_repository_signed_with_another_key_is_refused(simulation, vendor, node):
    made = repository(simulation, "stranger")
    made.add("cuda-drivers", "535.183.06-1")
    made.publish("stranger")
    assert made.fingerprint != vendor.driver.fingerprint
    assert "NO_PUBKEY" in node(source(made, vendor.driver.key) + "true")
    made.remove()


def test_a_package_changed_after_signing_is_refused(simulation, node):
    made = repository(simulation, "tampered")
    made.add("cuda-drivers", "535.183.06-1")
    made.publish()
    made.tamper("cuda-drivers")
    told = node(source(made, made.key) + "apt-get -q -y install cuda-drivers 2>&1 || true")
    assert "Hash Sum mismatch" in told
    made.remove()
