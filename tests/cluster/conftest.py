"""Ansible, imported once for the inventories of all tests."""

from types import SimpleNamespace

import pytest

from tests.support.ansible_inventory import Imported


@pytest.fixture(scope="session")
def imported_ansible(tmp_path_factory):
    imported = Imported(tmp_path_factory.mktemp("ansible"))
    yield imported
    imported.end()


@pytest.fixture
def inventories_in_forks(imported_ansible, monkeypatch):
    """For tests that read many inventories; others start `ansible-inventory` itself."""
    monkeypatch.setattr("repro.cluster.inventory.subprocess", SimpleNamespace(run=imported_ansible.run))
