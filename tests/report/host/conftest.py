"""A host with one kept run and one kept preflight, as they are committed."""

import shutil
from contextlib import contextmanager, nullcontext
from dataclasses import replace

import pytest

from repro.perfmodel.work import ModelJob
from repro.planning.derived import shrunk_case
from repro.published.cases import Layout, load_catalogue
from repro.report.host import page, results
from repro.report.host.keep import keep
from repro.report.host.results import load
from tests.support.kept import bench_run, preflight_folder


@contextmanager
def goals_for_any_program():
    """The runs of these tests are the published program's, to which the goals for ratios do not apply."""
    original = results.goals_of

    def for_any_program(file):
        found = original(file)
        return tuple(
            replace(each, where={key: value for key, value in each.where.items() if key != "program"}) for each in found
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(results, "goals_of", for_any_program)
        yield


@contextmanager
def settled_model():
    """A performance model that was fitted on one training and judges, whatever the runs in the repository make of it."""
    case = shrunk_case(load_catalogue().case("MP_1x8x1_16_1536x16"), Layout(1, 2, 1))
    fitted = frozenset({("published", ModelJob.of(case, "published"))})
    original = results.expect_unit

    def judging(unit, gpus, nodes):
        expectation = original(unit, gpus, nodes)
        return expectation and replace(expectation, uncertainty=0.2)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(results, "fitted_trainings", lambda: fitted)
        patch.setattr(results, "expect_unit", judging)
        yield


@pytest.fixture(autouse=True)
def _not_what_is_committed(request):
    with goals_for_any_program(), nullcontext() if "committed" in request.fixturenames else settled_model():
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
    with goals_for_any_program(), settled_model():
        page.render(load("h200", folder))
    return folder


@pytest.fixture(scope="package")
def host(reproduced):
    """What is kept of h200."""
    with goals_for_any_program():
        return load("h200", reproduced)


@pytest.fixture
def altered(reproduced, tmp_path):
    """A copy of the folder of hosts, to change."""
    shutil.copytree(reproduced, tmp_path / "reproduced")
    return tmp_path / "reproduced"


LAYOUTS = "DP_1x1x1_2_1536x16,DP_8x1x1_16_1536x16,MP_1x8x1_16_1536x16,DP_PP_8x1x4_512_1536x16"
EVERY_BASELINE = ("pytorch", "pytorch-unfused", "pytorch-compiled", "megatron", "megatron-unfused")
SPEEDS = {
    "published": 19.0,
    "tuned": 26.0,
    "pytorch": 20.0,
    "pytorch-unfused": 12.0,
    "pytorch-compiled": 24.0,
    "megatron": 18.0,
    "megatron-unfused": 14.0,
}
"""Samples/s per GPU by program or baseline."""
LATER = {"published": 1.01, "tuned": 1.02, "megatron": 1.005}
"""The factor of each in the later session."""


@pytest.fixture(scope="package")
def megatron_host(tmp_path_factory):
    """A host with GPT in every layout on 1 to 4 GPUs beside every baseline, in two sessions."""
    folder = tmp_path_factory.mktemp("megatron") / "reports" / "reproduced"
    originals = tmp_path_factory.mktemp("original")
    for day in (21, 23):

        def speed(unit, later=day > 21):
            name = unit.variant or unit.program
            return SPEEDS[name] * unit.world_size * (LATER.get(name, 1.0) if later else 1.0)

        run = bench_run(
            originals,
            f"202611{day}-080000-gpt-published",
            LAYOUTS,
            speed,
            repeats=(1.0, 1.01),
            failed=False,
            baselines=EVERY_BASELINE,
            programs=("published", "tuned"),
        )
        keep(run.path, folder / "h200" / "runs" / f"{run.id}.zip")
    with goals_for_any_program():
        return load("h200", folder)
