"""Two virtual machines for all tests here, in the order in which a site would use them; `make e2e KIND=vm` runs these."""

import os
from pathlib import Path

import pytest

from repro.cluster.cluster import load_cluster
from repro.cluster.provision import provision
from repro.simulation.machines import missing, up
from tests.support.simulated import process_label, remove_leftover_machines

HERE = Path(__file__).resolve().parent
SET_UP, *REST = (
    f"test_machines{name}" for name in ("", "_runtimes", "_kernels", "_faults", "_driver", "_taken_back", "_ubuntu")
)
"""The order of the modules: what all of them need is set up by the first, and taken back by the last but one."""


def pytest_collection_modifyitems(items):
    order = {HERE / f"{name}.py": place for place, name in enumerate((SET_UP, *REST))}
    items.sort(key=lambda item: order.get(item.path, -1))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """End with the first test that fails of those that set the machines up; the others do not need one another."""
    report = yield
    if report.failed and item.path == HERE / f"{SET_UP}.py":
        item.session.shouldfail = f"{item.name} failed, which all that follows needs"
    return report


@pytest.fixture(scope="session")
def machines():
    """Two freshly installed machines with the trainer image for their engines, which are not installed yet."""
    if reason := missing():
        pytest.skip(reason)
    remove_leftover_machines()
    made = up(f"vm-{os.getpid()}", 2, process_label())
    made.write_inventory()
    yield made
    made.down()


@pytest.fixture(scope="session")
def provisioned_machines(machines):
    """The same, provisioned: by the tests of the first module, or here where ONLY= leaves them out."""
    if any(machines.ssh(node, "test -e /etc/oneflow-reproduction").returncode for node in machines.names):
        done = provision(load_cluster(machines.inventory), quiet=True)
        assert done.succeeded, done
    return machines
