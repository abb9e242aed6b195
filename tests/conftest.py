"""What several tests share: the repository, a run folder, and a whole `bench` with the stand-in trainer."""

import os
import subprocess
import sys

import pytest

from repro.cli.tasks import SETTINGS
from tests.support.paths import ROOT, STANDIN, TRAINER_PYTHON


@pytest.fixture
def standin():
    """The stand-in trainer's command. The launcher comes from the trainer environment."""
    if not TRAINER_PYTHON.exists():
        pytest.fail(f"{TRAINER_PYTHON} is missing: `make setup` builds the trainer environment")
    return str(TRAINER_PYTHON), str(STANDIN)


@pytest.fixture
def task(tmp_path):
    """Runs a task as `make` does, with runs in a temporary folder; returns the completed process."""

    def run(name, timeout=120, **settings):
        names = (*SETTINGS, "MAKEFLAGS", "STANDIN")
        environment = {key: value for key, value in os.environ.items() if key not in names}
        environment["RUNS"] = str(tmp_path / "runs")
        environment["TRAINER_COMMAND"] = f"{TRAINER_PYTHON} {STANDIN}"
        environment.update({key: str(value) for key, value in settings.items()})
        return subprocess.run(
            [sys.executable, "-m", "repro", name],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    return run
