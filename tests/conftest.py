"""What several tests share: the stand-in trainer, and a task run as `make` runs it."""

import pytest

from tests.support import tasks
from tests.support.paths import STANDIN, TRAINER_PYTHON


@pytest.fixture
def standin():
    """The stand-in trainer's command. The launcher comes from the trainer environment."""
    if not TRAINER_PYTHON.exists():
        pytest.fail(f"{TRAINER_PYTHON} is missing: `make setup` builds the trainer environment")
    return str(TRAINER_PYTHON), str(STANDIN)


@pytest.fixture
def task(tmp_path):
    """Runs a task with the stand-in trainer, and with runs in a temporary folder; returns the completed process."""

    def run(name, timeout=120, **settings):
        given = {"TRAINER_COMMAND": tasks.STANDIN_COMMAND}
        if name != "compare" and tasks.has(name, "RUNS"):
            given["RUNS"] = tmp_path / "runs"
        return tasks.run(name, timeout, **given | settings)

    return run


@pytest.fixture
def server(tmp_path, monkeypatch):
    """An SSH server on this machine, whose keys no agent and no file of the user's home holds."""
    from tests.support.ssh_server import SshServer

    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    server = SshServer(tmp_path)
    yield server
    server.stop()
