"""An SSH server on this machine, whose keys no agent and no file of the user's home holds."""

import pytest

from tests.support.ssh_server import SshServer


@pytest.fixture
def server(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    server = SshServer(tmp_path)
    yield server
    server.stop()
