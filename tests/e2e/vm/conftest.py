"""Two virtual machines for all tests here, in the order in which a site would use them; `make e2e KIND=vm` runs these."""

import os

import pytest

from repro.simulation.machines import missing, remove_leftovers, up
from repro.simulation.owners import process_label


@pytest.fixture(scope="session")
def machines():
    """Two freshly installed machines with the trainer image for their engines, which are not installed yet."""
    if reason := missing():
        pytest.skip(reason)
    remove_leftovers()
    made = up(f"vm-{os.getpid()}", 2, process_label())
    made.write_inventory()
    yield made
    made.down()
