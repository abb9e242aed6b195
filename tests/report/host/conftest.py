"""A host with one kept run and one kept preflight, as they are committed."""

import shutil
from contextlib import contextmanager
from dataclasses import replace

import pytest

from repro.report.host import page, results
from repro.report.host.keep import keep
from repro.report.host.results import load
from tests.support.kept import bench_run, preflight_folder


@contextmanager
def targets_for_any_program():
    """The runs of these tests are the published program's, to which the targets for ratios do not apply."""
    original = results.targets_of

    def for_any_program(file):
        found = original(file)
        return tuple(
            replace(each, where={key: value for key, value in each.where.items() if key != "program"}) for each in found
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(results, "targets_of", for_any_program)
        yield


@pytest.fixture(autouse=True)
def _targets_for_any_program():
    with targets_for_any_program():
        yield


@pytest.fixture(scope="package")
def reproduced(tmp_path_factory):
    """The folder of hosts, with h200's archives and page."""
    folder = tmp_path_factory.mktemp("tree") / "reports" / "reproduced"
    runs = folder / "h200" / "runs"
    originals = tmp_path_factory.mktemp("original")
    original = bench_run(originals)
    keep(original.path, runs / f"{original.id}.zip")
    keep(preflight_folder(originals / "preflight-1"), runs / "preflight-1.zip")
    with targets_for_any_program():
        page.render(load("h200", folder))
    return folder


@pytest.fixture(scope="package")
def host(reproduced):
    """What is kept of h200."""
    with targets_for_any_program():
        return load("h200", reproduced)


@pytest.fixture
def altered(reproduced, tmp_path):
    """A copy of the folder of hosts, to change."""
    shutil.copytree(reproduced, tmp_path / "reproduced")
    return tmp_path / "reproduced"
