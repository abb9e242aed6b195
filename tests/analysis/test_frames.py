"""The tidy table over runs: a row per attempt, columns as documented, and what it refuses."""

import contextlib
import io
import json
import textwrap
import zipfile

import pandas as pd
import pytest

from repro.analysis import frames
from repro.analysis.results import result_frame, results_csv, results_of, summarise
from repro.published.cases import load_catalogue
from repro.runs.record import RecordError, Run, read_json, write_json
from tests.support.kept import bench_run
from tests.support.synthetic import add_attempt, published_run

SINGLE, EIGHT = "DP_1x1x1_2_1536x16", "DP_8x1x1_16_1536x16"
CASE = load_catalogue().case(EIGHT)


def dtypes(columns):
    return {name: dtype for name, (dtype, _meaning) in columns.items()}


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


def test_a_row_per_attempt_with_the_documented_columns(runs):
    found = frames.load(runs / "*")
    assert found.dtypes.astype(str).to_dict() == dtypes(frames.COLUMNS)
    assert list(found.run) == ["first"] * 6 + ["second"] * 3
    assert list(found.status[-3:]) == ["ok", "failed", "interrupted"]
    assert list(found.attempt[-3:]) == [1, 1, 2] and list(found.repeat[-3:]) == [1, 2, 2]
    row = found[(found.run == "second") & (found.status == "ok")].iloc[0]
    assert row.throughput_samples_per_s == pytest.approx(float(CASE.published.throughput) * 1.1)
    assert (row.gpu, row.host, row.case, row.framework, row.program) == (
        "Tesla V100-SXM2-16GB",
        "node1",
        EIGHT,
        "oneflow",
        "published",
    )
    assert (row.data_parallel, row.tensor_parallel, row.pipeline_parallel, row.world_size) == (8, 1, 1, 8)
    assert (row.micro_batch, row.global_batch, row.precision) == (CASE.micro_batch, CASE.global_batch, CASE.precision)
    assert json.loads(row.model_shape) == CASE.shape
    assert row.created == pd.Timestamp("2020-09-13 12:26:40", tz="UTC") and row.git_commit.startswith("0123456789")
    assert found.failure.dropna().tolist() == ["rank 0 exited with status 1"]
    assert found.throughput_samples_per_s.isna().tolist() == [False] * 7 + [True] * 2


def test_every_column_can_be_written_as_an_attribute():
    assert not {*frames.COLUMNS, *frames.ITERATION_COLUMNS} & set(dir(pd.DataFrame))


def test_baselines_are_named_by_their_variant(tmp_path):
    found = frames.load(bench_run(tmp_path, "kept"))
    pytorch = found[found.framework == "pytorch"]
    assert set(pytorch.baseline) == {"pytorch"} and set(pytorch.baseline_of) <= set(found.unit)
    assert found[found.framework == "oneflow"].baseline.isna().all()
    assert (
        set(found.gpu) == {"NVIDIA H200"}
        and set(found.host_gpus) == {4}
        and set(found.software_stack) == {"cu102-modern"}
    )


def test_runs_that_do_not_measure_speed_can_be_told_from_those_that_do(tmp_path):
    for label, kind in (("speed", "bench"), ("traced", "profile")):
        run = published_run(tmp_path, [SINGLE], (1.0,), label=label)
        description = read_json(run.folder / "run.json")
        description["plan"]["kind"] = kind
        write_json(run.folder / "run.json", description)
    found = frames.load(tmp_path / "*")
    assert list(found.kind) == ["bench", "profile"] and set(found.scale) == {"published"}


def test_the_gpus_of_a_run_are_those_that_it_could_use(tmp_path):
    run = published_run(tmp_path, [SINGLE], (1.0,))
    description = read_json(run.folder / "run.json")
    write_json(run.folder / "run.json", description | {"command": "make bench CUDA_VISIBLE_DEVICES=0,3"})
    assert list(frames.load(run).host_gpus) == [2]


def test_sources_are_folders_globs_and_runs(runs):
    by_folder = frames.load(runs / "first")
    pd.testing.assert_frame_equal(by_folder, frames.load(Run(runs / "first")))
    assert len(frames.load(runs / "f*", str(runs / "second"))) == 9
    with pytest.raises(RecordError, match="no run matches"):
        frames.load(runs / "compare-*")
    with zipfile.ZipFile(runs / "first-preflight.zip", "w") as archive:
        archive.writestr("environment.json", "{}")
    assert len(frames.load(runs / "first*")) == len(by_folder), "an archive of something else is no run"
    with pytest.raises(RecordError, match="no such run"):
        frames.load(runs / "third")


def test_errors_name_the_path_that_was_given_and_no_option_of_make(runs):
    (runs / "empty.zip").write_bytes(b"PK\5\6" + bytes(18))
    (runs / "a run").mkdir()
    (runs / "a run" / "run.json").write_text("{}")
    for name in ("third", "third.zip", "empty.zip", "a run", "x" * 300, "none*"):
        with pytest.raises(RecordError) as caught:
            frames.load(runs / name)
        assert str(caught.value).startswith(str(runs / name)[:40]) and "RUN" not in str(caught.value)


def test_a_run_without_attempts_has_the_same_columns_and_no_rows(tmp_path):
    run = published_run(tmp_path, [SINGLE], (), label="empty")
    for found, columns in ((frames.load(run), frames.COLUMNS), (frames.iterations(run), frames.ITERATION_COLUMNS)):
        assert len(found) == 0 and found.dtypes.astype(str).to_dict() == dtypes(columns)


def test_a_row_per_iteration(tmp_path):
    run = published_run(tmp_path, [SINGLE], (1.0,), label="run")
    metrics = next(run.folder.rglob("metrics-rank0.jsonl"))
    events = [
        {"event": "loss", "iteration": 1, "loss": 9.5, "time": 1.6e9},
        {"event": "loss", "iteration": 2, "loss": 9.0, "time": 1.6e9 + 1},
        {"event": "iteration", "iteration": 2, "loss": 9.0, "time": 1.6e9 + 2, "throughput": 4.0, "latency_ms": 250.0},
    ]
    start = metrics.read_text().partition("\n")[0] + "\n"
    metrics.write_text(start + "".join(json.dumps(event) + "\n" for event in events))
    found = frames.iterations(run)
    assert found.dtypes.astype(str).to_dict() == dtypes(frames.ITERATION_COLUMNS)
    assert found[["run", "unit", "repeat", "attempt", "iteration"]].values.tolist() == [
        ["run", SINGLE, 1, 1, 1],
        ["run", SINGLE, 1, 1, 2],
    ]
    assert found.loss.tolist() == [9.5, 9.0] and found.latency_ms[1] == 250.0 and found.latency_ms.isna()[0]
    merged = found.merge(frames.load(run), on=["run", "unit", "repeat", "attempt"])
    assert set(merged.model) == {"gpt"}


def test_fields_of_events_that_are_no_columns_are_not_read(tmp_path):
    path = tmp_path / "metrics-rank0.jsonl"
    path.write_text("".join(f'{{"event": "x", "iteration": {at}, "field {at}": 1}}\n' for at in range(100)))
    assert len(frames._metrics(path)) == 100 and set(frames._metrics(path)) <= frames.ITERATION_COLUMNS.keys()


def test_the_example_in_the_documentation_runs(runs, monkeypatch):
    example = textwrap.dedent(frames.__doc__.partition(":\n\n")[2].partition("\n\nOnly runs")[0])
    assert "frames.load" in example
    monkeypatch.chdir(runs.parent)
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(example, {})
    (row,) = [line for line in output.getvalue().splitlines() if EIGHT in line]
    assert row.split()[-1] == "4", "successful attempts of both runs"


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
