"""Simulated nodes for the tests: brought up once a session where that will do, and ended with it.

They need root and an engine; without these the tests are skipped. `make e2e LONG=1` runs those marked `long` too.

`make e2e` runs several modules at a time, as each often waits. Each process has nodes of its own, on networks of their own
in the one engine.
"""

import os
import shutil
from pathlib import Path

import pytest
from xdist.scheduler import LoadScopeScheduling

from repro.simulation import engine
from repro.simulation.nodes import up
from tests.e2e.provisioned import provisioned
from tests.support.simulated import process_label, remove_leftover_nodes

HERE = Path(__file__).resolve().parent
PROGRAMS = ("dpkg-deb", "apt-ftparchive", "gpg")
"""What makes the vendors' repositories."""


TOGETHER = ("test_whole", "test_reproduce")
"""Modules for one process, in this order, which has provisioned nodes for both."""
FIRST = (
    *("test_provision", "test_slurm", "test_runtimes", "test_rehearsal"),
    *(*TOGETHER, "test_faults", "test_vendor", "test_side_by_side", "test_locks", "test_launch"),
)
"""The modules that take longest, so that none of them begins last; the first keeps disks that TOGETHER starts from."""


class ByModules(LoadScopeScheduling):
    """Gives each process whole modules, so that what a module's tests share is brought up once."""

    def _split_scope(self, nodeid: str) -> str:
        module = nodeid.partition("::")[0]
        return TOGETHER[0] if Path(module).stem in TOGETHER else module


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    return ByModules(config, log)


def pytest_collection_modifyitems(items):
    mine, order = (
        [item for item in items if HERE in item.path.parents],
        {name: place for place, name in enumerate(FIRST)},
    )
    mine.sort(key=lambda item: order.get(item.path.stem, len(order)))
    items[:] = [*(item for item in items if HERE not in item.path.parents), *mine]
    absent = [name for name in PROGRAMS if shutil.which(name) is None]
    reason = engine.missing() or (f"needs {', '.join(absent)}" if absent else None)
    if reason:
        for item in mine:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def simulation():
    """The engine, without what crashed tests left; ended with the session unless somebody else has nodes in it."""
    with engine.exclusive():
        started = engine.start()
        remove_leftover_nodes()
    yield started
    with engine.exclusive():
        if not started.clusters():
            engine.stop()


@pytest.fixture(scope="session")
def make_nodes(simulation):
    """Brings up nodes as `repro.simulation.nodes.up` does, under names of this session; they end with it at the latest."""
    made = []

    def make(name, count, **options):
        nodes = up(f"{name}-{os.getpid()}", count, **{"owner": process_label(), **options})
        nodes.write_inventory()
        made.append(nodes)
        return nodes

    yield make
    for nodes in made:
        nodes.down()


@pytest.fixture(scope="session")
def two_nodes(make_nodes):
    """Two nodes with engines and the trainer image, for all tests that leave them as they were."""
    return make_nodes("two", 2, image=True)


@pytest.fixture(scope="module")
def bare_nodes(make_nodes):
    """Two freshly installed nodes without an engine, for the tests of provisioning; their addresses are free afterwards."""
    nodes = make_nodes("bare", 2, kind="bare")
    yield nodes
    nodes.down()


@pytest.fixture(scope="session")
def provisioned_nodes(make_nodes, simulation):
    """Two provisioned nodes with the trainer image, for all tests that leave them as they were."""
    return provisioned(make_nodes, simulation)
