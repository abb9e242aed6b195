"""The steady state: windows of which it is the median, what is left out of it, and that it decides nothing."""

import json
from dataclasses import replace

import pytest

from repro.analysis import frames, steady
from repro.analysis.relations import baseline_relations
from repro.analysis.results import summarise
from repro.analysis.verdict import judge
from tests.support.kept import bench_run
from tests.support.synthetic import published_run

SINGLE, EIGHT = "DP_1x1x1_2_1536x16", "DP_8x1x1_16_1536x16"
BATCH, INTERVAL = 8, 10


def written(file, latencies_ms, after_s=0.07):
    """Rank 0's metrics of a training with these windows, which ended so many seconds after its last row."""
    events, now = [{"event": "start", "time": 0.0}, {"event": "loss", "iteration": 1, "loss": 1.0, "time": 0.5}], 1.0
    for number, latency in enumerate(latencies_ms, 1):
        now += latency * INTERVAL / 1000
        row = {"event": "iteration", "iteration": number * INTERVAL, "time": now, "loss": 1.0}
        events.append({**row, "throughput": 1000 * BATCH / latency, "latency_ms": latency})
    events.append({"event": "end", "iterations": len(latencies_ms) * INTERVAL, "time": now + after_s})
    file.write_text("".join(json.dumps(event) + "\n" for event in events))
    return file


def test_the_first_two_windows_and_single_later_ones_do_not_move_it(tmp_path):
    found = steady.windows(written(tmp_path / "metrics", [900.0, 93.0, 100.0, 400.0, 100.0]))
    assert found.steady_samples_per_s == pytest.approx(80.0)
    assert found.second_window_s == pytest.approx(-0.07), "ten iterations, each 7 ms shorter"
    assert found.after_last_row_s == pytest.approx(0.07)
    longer = steady.windows(written(tmp_path / "metrics", [900.0, 103.0, 100.0]))
    assert longer.second_window_s == pytest.approx(0.03) and longer.steady_samples_per_s == pytest.approx(80.0)


@pytest.mark.parametrize("latencies_ms", [[], [900.0], [900.0, 100.0]])
def test_a_run_of_two_windows_has_none(tmp_path, latencies_ms):
    assert steady.windows(written(tmp_path / "metrics", latencies_ms)) is None
    assert steady.windows(tmp_path / "missing") is None


def test_attempts_that_succeeded_have_it_and_what_is_recorded_stays(tmp_path):
    run = bench_run(tmp_path, "kept")
    recorded, found = run.attempts(), steady.attempts(run)
    for before, after in zip(recorded, found, strict=True):
        assert replace(after, windows=None) == before and after.as_json() == before.as_json()
        assert (after.windows is not None) == (before.status == "ok")
        assert not after.windows or after.windows.steady_samples_per_s == pytest.approx(before.throughput)
    loaded = frames.load(run)
    assert loaded.steady_samples_per_s.isna().tolist() == (loaded.status != "ok").tolist()


def times(attempt, factor):
    """The attempt, in its steady state this many times as fast."""
    if attempt.windows is None:
        return attempt
    speed = attempt.windows.steady_samples_per_s * factor
    return replace(attempt, windows=replace(attempt.windows, steady_samples_per_s=speed))


def test_ratios_have_it_beside_the_rules_figure(tmp_path):
    run = bench_run(tmp_path, "kept")
    plan, attempts = run.description().plan, steady.attempts(run)
    relation = baseline_relations(summarise(plan, attempts))[0]
    base = relation.base.unit.name
    halved = [times(each, 0.5) if each.unit == base else each for each in attempts]
    changed = baseline_relations(summarise(plan, halved))[0]
    assert changed.steady == pytest.approx(2 * relation.steady) and changed.ratio == relation.ratio
    assert baseline_relations(summarise(plan, run.attempts()))[0].steady is None, "not known without metrics"


def test_no_verdict_is_drawn_from_it(tmp_path):
    run = published_run(tmp_path, [SINGLE, EIGHT], (1.0, 1.001, 0.999, 1.002, 0.998, 1.0), label="run")
    plan, attempts = run.description().plan, steady.attempts(run)
    doubled = [times(each, 2.0) for each in attempts]
    found = [judge(run, plan, each, summarise(plan, each)).as_json() for each in (run.attempts(), attempts, doubled)]
    assert found[0]["verdicts"] and found[0] == found[1] == found[2]


def test_a_training_ends_with_its_last_event(tmp_path):
    file = written(tmp_path / "metrics", [100.0] * 4)
    last_row = [json.loads(line)["time"] for line in file.read_text().splitlines() if "latency_ms" in line][-1]
    file.write_text(file.read_text() + json.dumps({"event": "end", "time": last_row + 2.5}) + "\n")
    assert steady.windows(file).after_last_row_s == pytest.approx(2.5)
