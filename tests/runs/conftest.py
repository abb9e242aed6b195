"""A recorded run of one case with its report: made once, and copied for each test, which may change it."""

import shutil

import pytest

from repro.report.run.page import render
from repro.runs.manifest import record, verify
from repro.runs.record import Run
from tests.support.synthetic import published_run

CASE = "DP_1x1x1_2_1536x16"


@pytest.fixture(scope="session")
def recorded_run(tmp_path_factory):
    """The run that tests copy."""
    made = published_run(tmp_path_factory.mktemp("recorded"), [CASE], (1.0, 1.001))
    (made.folder / f"units/{CASE}/repeat-1.attempt-1/launcher.log").write_text("what the launcher printed\n")
    render(made)
    record(made)
    assert verify(made.folder).holds
    return made


@pytest.fixture
def run(recorded_run, tmp_path):
    """A copy of it."""
    return Run(shutil.copytree(recorded_run.folder, tmp_path / recorded_run.folder.name, symlinks=True))
