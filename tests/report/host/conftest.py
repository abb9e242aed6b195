"""A host with one kept run and one kept preflight, as they are committed."""

import shutil

import pytest

from repro.report.host import page
from repro.report.host.keep import keep
from repro.report.host.results import load
from tests.support.kept import bench_run, preflight_folder


@pytest.fixture(scope="package")
def reproduced(tmp_path_factory):
    """The folder of hosts, with h200's archives and page."""
    folder = tmp_path_factory.mktemp("tree") / "reports" / "reproduced"
    runs = folder / "h200" / "runs"
    originals = tmp_path_factory.mktemp("original")
    original = bench_run(originals)
    keep(original.path, runs / f"{original.id}.zip")
    keep(preflight_folder(originals / "preflight-1"), runs / "preflight-1.zip")
    page.render(load("h200", folder))
    return folder


@pytest.fixture(scope="package")
def host(reproduced):
    """What is kept of h200."""
    return load("h200", reproduced)


@pytest.fixture
def altered(reproduced, tmp_path):
    """A copy of the folder of hosts, to change."""
    shutil.copytree(reproduced, tmp_path / "reproduced")
    return tmp_path / "reproduced"
