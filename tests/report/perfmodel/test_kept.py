"""The figures that the model is validated with are those of the kept runs."""

from statistics import median

import pytest

from repro.perfmodel.constants import load_calibration
from repro.perfmodel.hardware import from_devices
from repro.perfmodel.predict import expect_unit
from repro.perfmodel.validation import FILE, as_toml, check_frame, load_measurements
from repro.perfmodel.work import ModelJob
from repro.planning.derived import case_of
from repro.report.host.keep import keep
from repro.report.host.results import load
from repro.report.host.run import KeptRun
from repro.report.perfmodel.kept import kept_measurements
from tests.support.kept import CASES, H200, bench_run


@pytest.fixture(scope="module")
def measured(content):
    """Every host that has kept runs."""
    return content.hosts


@pytest.fixture(scope="module")
def kept(measured):
    """Every kept run that measured speed."""
    return [run for host in measured for run in host.measured]


def test_the_file_is_what_the_kept_runs_give(measured):
    found = as_toml(kept_measurements(measured))
    assert FILE.read_text(encoding="utf-8") == found, "run `make model` and commit what it writes"


def test_figures_are_the_medians_of_the_recorded_attempts(kept):
    """By another way than the results': straight from attempts.jsonl."""
    for each in load_measurements():
        (run,) = (run for run in kept if run.run.id == each.run)
        attempts = [attempt for attempt in run.attempts if attempt.unit == each.name and attempt.status == "ok"]
        throughputs = [attempt.throughput for attempt in attempts]
        assert len(throughputs) == each.repeats
        assert each.throughput == pytest.approx(median(throughputs), rel=1e-5)
        assert each.lowest <= each.throughput <= each.highest


def test_one_job_has_one_prediction(kept):
    """A run's page and the model's own page expect the same of the same training, whatever the case is called."""
    frame = check_frame(load_measurements(), load_calibration())
    keys = zip(frame["gpu"], frame["program"], frame["job"], strict=True)
    modelled = dict(zip(keys, frame["modelled"], strict=True))
    seen = 0
    for run in kept:
        for result in run.results:
            case = case_of(result.unit)
            if case is not None and result.throughputs:
                gpu = from_devices(run.gpus[0]["name"], result.unit.world_size).gpu.name
                program = result.unit.program
                expected = expect_unit(result.unit, run.gpus)
                known = modelled.get((gpu, program, ModelJob.of(case, program)))
                assert known is None or expected.throughput == pytest.approx(known, rel=1e-12)
                seen += known is not None
    assert seen > len(frame), "some trainings were measured more than once"


def test_a_training_of_several_runs_counts_once_with_the_newest(tmp_path):
    for number, speed in enumerate((1.0, 2.0)):
        name = f"2026112{number}-000000-gpt-published"
        original = bench_run(tmp_path / "runs", name, speed=lambda unit, speed=speed: 10 * speed)
        keep(original.path, tmp_path / "reproduced" / "h200" / "runs" / f"{name}.zip")
    found = kept_measurements([load("h200", tmp_path / "reproduced")])
    assert found
    for each in found:
        assert each.throughput > 1.5 * each.lowest
        assert len(each.runs) == 2


@pytest.mark.parametrize(("newer", "runs"), [("a", 2), ("b", 1)])
def test_a_training_stays_as_older_code_measured_it_until_newer_code_does(tmp_path, monkeypatch, newer, runs):
    codes = {"20261120-000000-gpt-published": "a", "20261121-000000-gpt-published": newer}
    for name, cases in zip(codes, (CASES, "DP_1x1x1_2_1536x16"), strict=True):
        original = bench_run(tmp_path / "runs", name, cases=cases)
        keep(original.path, tmp_path / "reproduced" / "h200" / "runs" / f"{name}.zip")
    monkeypatch.setattr(KeptRun, "code", lambda self, unit: codes[self.run.id])
    trainings = kept_measurements([load("h200", tmp_path / "reproduced")])
    assert len(trainings) > 1
    for training in trainings:
        again = training.job.layout.world_size == 1
        assert len(training.runs) == (runs if again else 1)
        assert training.run == [*codes][1 if again else 0]


def test_gpus_that_the_model_does_not_know_are_left_out(tmp_path, monkeypatch):
    monkeypatch.setitem(H200, "name", "GeForce GTX 1080")
    original = bench_run(tmp_path / "runs")
    keep(original.path, tmp_path / "reproduced" / "lab" / "runs" / f"{original.id}.zip")
    host = load("lab", tmp_path / "reproduced")
    assert host.measured
    assert kept_measurements([host]) == []
