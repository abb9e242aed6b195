"""A run's figures are read again from what its ranks wrote; tests/attacks bends every part of a kept run."""

import json
import time

import pytest

from repro.analysis.evidence import examine, require
from repro.analysis.measurement import METRICS
from repro.analysis.verification import verify
from repro.published.cases import load_catalogue
from repro.report.host.keep import REPRODUCED
from repro.runs.history import History
from repro.runs.manifest import record
from repro.runs.record import RecordError, Run
from tests.support.synthetic import add_attempt, published_run

KEPT = sorted(REPRODUCED.glob("*/runs/[0-9]*.zip"))
CASE = load_catalogue().case("DP_8x1x1_16_1536x16")


@pytest.fixture
def run(tmp_path):
    return published_run(tmp_path, [CASE.name], (1.0, 1.01))


@pytest.mark.parametrize("archive", KEPT, ids=lambda path: path.stem)
def test_every_kept_run_is_what_its_raw_output_gives(archive):
    began = time.process_time()
    found = examine(Run(archive))
    assert found.lines() == [] and found.attempts > 0
    assert time.process_time() - began < 10, "reading a run again must not make its pages slow"


@pytest.mark.parametrize("name", ["resnet50_0808_1n8g_bs160", "bert_1n8g_bs96", "gpt2_small_1n8g_bs4_zero1"])
def test_every_generation_of_log_is_read_again(tmp_path, name):
    run = published_run(tmp_path, [name], (1.0, 1.001, 0.999))
    assert examine(run).holds and examine(run).attempts == 3


def test_an_older_run_that_lacks_a_newer_figure_is_read(run):
    lines = [json.loads(line) for line in run.attempts_file.read_text().splitlines()]
    without = [{name: value for name, value in line.items() if name != "memory_allocated_mib"} for line in lines]
    run.attempts_file.write_text("".join(json.dumps(line) + "\n" for line in without))
    assert examine(run).holds
    none = [{name: value for name, value in line.items() if name != "throughput"} for line in lines]
    run.attempts_file.write_text("".join(json.dumps(line) + "\n" for line in none))
    assert [line.partition(": ")[2].partition(" in ")[0] for line in examine(run).lines()] == ["throughput: None"] * 2


def test_fewer_losses_than_a_run_records_are_named(run):
    lines = [json.loads(line) for line in run.attempts_file.read_text().splitlines()]
    lines[0]["losses"] = lines[0]["losses"][:3]
    run.attempts_file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (found,) = examine(run).lines()
    assert "losses: [" in found


def test_an_unreadable_file_is_named(run):
    metrics = next(run.folder.rglob(METRICS.format(3)))
    metrics.write_text("{\n")
    (found,) = examine(run).lines()
    assert found.startswith(f"{metrics.parent.relative_to(run.folder)}: files: whole in attempts.jsonl, unreadable")


def test_a_failed_attempt_claims_nothing_and_a_killed_one_is_no_contradiction(run):
    add_attempt(run, CASE, 1, status="failed")
    add_attempt(run, CASE, 2, status="interrupted")
    assert examine(run).holds
    killed = run.attempt_folder(CASE.name, 3)
    found = examine(run)
    assert found.differences == () and found.unrecorded == (killed.relative_to(run.folder).as_posix(),)
    assert "it was killed with its run" in found.lines()[0]
    require(run)


def test_a_unit_of_another_plan_is_named(run):
    lines = run.attempts_file.read_text().splitlines(keepends=True)
    run.attempts_file.write_text(lines[0] + lines[1].replace(CASE.name, "another"))
    assert any(
        "line 2: unit: another in the record, none of this name in the plan" in each for each in examine(run).lines()
    )
    with pytest.raises(RecordError, match="is not as it was recorded"):
        require(run)


def test_a_commit_is_there_absent_or_unknown_and_each_is_said(run):
    record(run)
    commit = run.description()["environment"]["git_commit"]

    def said(past):
        found = verify(run, past)
        return [line for line in (*found.holds, *found.faults) if "commit" in line], bool(found.faults)

    assert said(History(frozenset({commit}))) == ([f"commit {commit[:12]} is in the history"], False)
    (absent,), faulty = said(History(frozenset()))
    assert faulty and absent.startswith(f"commit {commit[:12]} is in no branch or tag here")
    (unknown,), faulty = said(History(frozenset(), "the clone is shallow"))
    assert not faulty and "NOT checked: the clone is shallow" in unknown
