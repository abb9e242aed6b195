"""What several tests share: the stand-in trainer, and a task run as `make` runs it."""

import os
from functools import cache
from pathlib import Path

import pytest
from xdist.scheduler.loadfile import LoadFileScheduling

from repro.cli import make
from tests.support import tasks
from tests.support.paths import STANDIN, TRAINER_PYTHON
from tests.support.patience import PATIENCE_S, patience

for name in (
    "COLUMNS",
    "LINES",
):  # readline, which pytest imports, sets them for what tests start, without any terminal
    os.environ.pop(name, None)
    os.unsetenv(name)

HANGS_S = 300
"""After which a test hangs, on a machine that does nothing else."""


HERE = Path(__file__).resolve().parent
ALL_KEPT_RUNS = (
    *("tests/report/host/", "tests/report/site/", "tests/report/perfmodel/", "tests/report/published/"),
    *("tests/browser/test_site.py", "tests/test_wording.py"),
)
"""Tests that one process runs, since they share what is read of all kept runs, and the figures drawn for all pages."""
FIRST = (
    "report/host/test_results.py",
    "launch/slurm/test_jobs.py",
    "trainers/test_flat_parameters.py",
    "trainers/test_clipping.py",
    "trainers/test_fused_attention.py",
    "trainers/test_parity.py",
    "trainers/test_real_data.py",
    "trainers/test_census.py",
    "launch/ssh/test_attempt.py",
    "launch/slurm/test_attempt.py",
    "launch/nodes/test_kernels.py",
)
"""The files that take longest, so that none of them begins last where several processes take a file each."""


def pytest_collection_modifyitems(items):
    """Begin with FIRST, and give each test a limit that follows what the machine does besides: HANGS_S, or its own."""
    order = {HERE / name: place for place, name in enumerate(FIRST)}
    items.sort(key=lambda item: order.get(item.path, len(order)))
    limit = cache(patience)
    for item in items:
        marker = item.get_closest_marker("timeout")
        item.add_marker(pytest.mark.timeout(limit(marker.args[0] if marker else HANGS_S)), append=False)


class Scheduling(LoadFileScheduling):
    """Each process takes the tests of a file at a time, and one takes all of ALL_KEPT_RUNS."""

    def _split_scope(self, nodeid: str) -> str:
        return ALL_KEPT_RUNS[0] if nodeid.startswith(ALL_KEPT_RUNS) else super()._split_scope(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    return Scheduling(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.fixture(scope="session")
def content():
    """What the site shows, read once per process for all tests of its pages and for the renderings that they start."""
    from repro.report.site import build

    return build.content()


@pytest.fixture
def standin():
    """The stand-in trainer's command. The launcher comes from the trainer environment."""
    if not TRAINER_PYTHON.exists():
        pytest.fail(f"{TRAINER_PYTHON} is missing: `make setup` builds the trainer environment")
    return str(TRAINER_PYTHON), str(STANDIN)


@pytest.fixture
def task(tmp_path):
    """Runs a task with the stand-in trainer, and with runs in a temporary folder; returns the completed process."""

    def run(name, **settings):
        given = {"TRAINER_COMMAND": tasks.STANDIN_COMMAND}
        if name != "compare" and tasks.has(name, "RUNS"):
            given["RUNS"] = tmp_path / "runs"
        return tasks.run(name, PATIENCE_S, **given | settings)

    return run


@pytest.fixture
def refused(tmp_path, monkeypatch, capsys):
    """Runs a task that has to refuse its settings before there is a run, in this process; returns what it says."""

    def run(name, **settings):
        monkeypatch.setenv(tasks.SEAMS["TRAINER_COMMAND"], tasks.STANDIN_COMMAND)
        given = {"RUNS": tmp_path / "runs"} if tasks.has(name, "RUNS") else {}
        before = list(tmp_path.glob("runs/*"))
        status = make.run(name, [(key, str(value)) for key, value in (given | settings).items()])
        said = capsys.readouterr()
        assert (status, said.out) == (2, ""), said.err
        assert list(tmp_path.glob("runs/*")) == before
        return said.err

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
