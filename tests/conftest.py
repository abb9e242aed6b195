"""What several tests share: the stand-in trainer, and a task run as `make` runs it."""

import os

import pytest

from tests.support import tasks
from tests.support.paths import STANDIN, TRAINER_PYTHON
from tests.support.patience import patience

for name in (
    "COLUMNS",
    "LINES",
):  # readline, which pytest imports, sets them for what tests start, without any terminal
    os.environ.pop(name, None)
    os.unsetenv(name)

HANGS_S = 300
"""After which a test hangs, on a machine that does nothing else."""


def pytest_collection_modifyitems(items):
    """Give each test a limit that follows what the machine does besides: HANGS_S, or what the test sets in its place."""
    for item in items:
        marker = item.get_closest_marker("timeout")
        item.add_marker(pytest.mark.timeout(patience(marker.args[0] if marker else HANGS_S)), append=False)


@pytest.fixture
def standin():
    """The stand-in trainer's command. The launcher comes from the trainer environment."""
    if not TRAINER_PYTHON.exists():
        pytest.fail(f"{TRAINER_PYTHON} is missing: `make setup` builds the trainer environment")
    return str(TRAINER_PYTHON), str(STANDIN)


@pytest.fixture
def task(tmp_path):
    """Runs a task with the stand-in trainer, and with runs in a temporary folder; returns the completed process."""

    def run(name, timeout=None, **settings):
        given = {"TRAINER_COMMAND": tasks.STANDIN_COMMAND}
        if name != "compare" and tasks.has(name, "RUNS"):
            given["RUNS"] = tmp_path / "runs"
        return tasks.run(name, timeout or patience(), **given | settings)

    return run


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """The folder of the site's pages, rendered once per run of pytest."""
    from tests.support.site import rendered

    base = tmp_path_factory.getbasetemp()
    return rendered(base.parent if "PYTEST_XDIST_WORKER" in os.environ else base)


@pytest.fixture
def server(tmp_path, monkeypatch):
    """An SSH server on this machine, whose keys no agent and no file of the user's home holds."""
    from tests.support.ssh_server import SshServer

    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    server = SshServer(tmp_path)
    yield server
    server.stop()
