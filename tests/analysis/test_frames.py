"""The tables of a run's units and attempts."""

import json

import pandas as pd
import pytest

from repro.analysis import frames
from repro.analysis.results import result_frame, results_csv, results_of, summarise
from repro.published.cases import load_catalogue
from repro.runs.record import Run
from tests.support.synthetic import add_attempt, published_run

SINGLE, EIGHT = "DP_1x1x1_2_1536x16", "DP_8x1x1_16_1536x16"
CASE = load_catalogue().case(EIGHT)


@pytest.fixture
def runs(tmp_path):
    """Two runs side by side in `runs/`, one with a failed and an interrupted attempt, and a folder that is no run."""
    folder = tmp_path / "runs"
    published_run(folder, [SINGLE, EIGHT], (1.0, 1.001, 0.999), label="first")
    second = published_run(folder, [EIGHT], (1.1,), label="second")
    add_attempt(second, CASE, 2, status="failed")
    add_attempt(second, CASE, 2, status="interrupted")
    (folder / "compare-first-second").mkdir()
    return folder


def test_a_row_per_unit_and_per_attempt(runs):
    run = Run(runs / "second")
    (unit,) = frames.records(frames.unit_frame(run.description().plan.units))
    assert list(unit) == list(frames.UNIT_COLUMNS)
    assert (unit["case"], unit["framework"], unit["program"], unit["baseline"]) == (EIGHT, "oneflow", "published", None)
    assert [unit[f"{axis}_parallel"] for axis in ("data", "tensor", "pipeline")] == [8, 1, 1] and unit[
        "world_size"
    ] == 8
    assert (unit["micro_batch"], unit["global_batch"], unit["precision"]) == (
        CASE.micro_batch,
        CASE.global_batch,
        CASE.precision,
    )
    assert json.loads(unit["model_shape"]) == CASE.shape
    attempts = frames.attempt_frame(run.attempts())
    assert list(attempts.status) == ["ok", "failed", "interrupted"] and list(attempts.repeat) == [1, 2, 2]
    assert attempts.failure.dropna().tolist() == ["rank 0 exited with status 1"]
    assert attempts.throughput_samples_per_s[0] == pytest.approx(float(CASE.published.throughput) * 1.1)
    assert attempts.throughput_samples_per_s.isna().tolist() == [False, True, True]
    assert len(frames.attempt_frame([])) == 0 and list(frames.attempt_frame([])) == list(attempts)


def test_rows_are_plain_values():
    table = pd.DataFrame({"a": [1, 2], "b": [0.5, None], "c": [("x",), ()]})
    assert list(frames.records(table)) == [{"a": 1, "b": 0.5, "c": ("x",)}, {"a": 2, "b": None, "c": ()}]
    assert [type(value) for value in next(frames.records(table)).values()] == [int, float, tuple]


def test_results_are_rows_of_the_table_that_the_csv_is(runs):
    run = Run(runs / "second")
    plan, attempts = run.description().plan, run.attempts()
    table = result_frame(plan, attempts)
    (result,) = results_of(plan, table)
    assert (result.failed, result.interrupted, result.planned) == (1, 1, 1)
    assert [result] == summarise(plan, attempts)
    header, row, end = results_csv(table).split("\n")
    assert header.split(",") == list(table) and end == ""
    assert row.startswith(f"{EIGHT},oneflow,published,,,gpt,{EIGHT},,8,16,1,{result.throughput!r},,")
