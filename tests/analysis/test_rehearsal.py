"""What a rehearsal says of each training: ended, failed, or with other losses than one process."""

import json

import pytest

from repro.analysis.rehearsal import rehearsed
from repro.planning.rehearsal import make_rehearsal_plan
from repro.published.cases import load_catalogue
from repro.runs.attempts import AttemptRecord
from tests.support.attempts import recorded

LOSSES = [6.2, 6.1, 6.0, 5.9, 5.8]


@pytest.fixture
def plan():
    return make_rehearsal_plan(load_catalogue().select("gpt", "MP_1x8x1_16_1536x16"), most_ranks=2)


def attempt(unit, folder, losses=LOSSES, status="ok", failure=None) -> AttemptRecord:
    """What a run records of an attempt, whose ranks had 300 MiB each."""
    (folder / unit.name).mkdir()
    for rank in range(unit.world_size):
        row = {"event": "iteration", "iteration": 10, "time": 1.0, "throughput": 2.0, "latency_ms": 3.0, "loss": 6.2}
        row |= {"memory_mib": 250.0, "peak_memory_mib": 300.0}
        (folder / unit.name / f"metrics-rank{rank}.jsonl").write_text(json.dumps(row) + "\n")
    content = {"unit": unit.name, "status": status, "losses": losses, "folder": unit.name}
    return recorded(content, wall_s=12.5, failure=failure)


def test_a_training_that_ends_with_the_losses_of_one_process_holds(plan, tmp_path):
    found = rehearsed(plan, [attempt(unit, tmp_path) for unit in plan.units], tmp_path)
    (training,) = found.trainings
    assert training.cases == ("MP_1x8x1_16_1536x16",)
    assert (training.seconds, training.memory_mib) == (12.5, 600.0)
    assert found.problems == []
    assert found.summary() == "1 of 1 cases ran to their end; 1 of 1 layouts have the losses of one process"


def test_other_losses_are_a_problem(plan, tmp_path):
    reference, unit = plan.units
    attempts = [attempt(reference, tmp_path), attempt(unit, tmp_path, [loss * 1.001 for loss in LOSSES])]
    (problem,) = rehearsed(plan, attempts, tmp_path).problems
    assert problem == f"{unit.name}: its losses differ from those of {reference.name} by 1.0e-03"


def test_a_failure_is_said_in_its_own_words(plan, tmp_path):
    reference, unit = plan.units
    failure = {"message": "rank {rank} was killed by {signal}", "values": {"rank": 0, "signal": "SIGABRT"}}
    attempts = [attempt(reference, tmp_path), attempt(unit, tmp_path, [], "failed", failure)]
    found = rehearsed(plan, attempts, tmp_path)
    assert found.problems == [f"{unit.name}: rank 0 was killed by SIGABRT"]
    assert found.summary().startswith("0 of 1 cases ran to their end")


def test_a_reference_that_failed_is_a_problem_of_both(plan, tmp_path):
    reference, unit = plan.units
    failure = {"message": "rank 0 exited", "values": {}}
    attempts = [attempt(reference, tmp_path, [], "failed", failure), attempt(unit, tmp_path)]
    first, second = rehearsed(plan, attempts, tmp_path).problems
    assert first == f"{reference.name}: rank 0 exited"
    assert second.startswith(f"{unit.name}: its losses cannot be compared with those of {reference.name}")


def test_what_was_not_run_or_was_interrupted_does_not_hold(plan, tmp_path):
    reference, unit = plan.units
    assert f"{unit.name}: was not run" in rehearsed(plan, [], tmp_path).problems
    stopped = [attempt(reference, tmp_path), attempt(unit, tmp_path, [], "interrupted")]
    assert rehearsed(plan, stopped, tmp_path).problems == [f"{unit.name}: was interrupted"]
