"""What models learned: the losses that count, outcomes, and a small GPT that really learns a real text."""

import json
import math
from dataclasses import replace

import pytest

from repro.analysis.convergence import ConvergenceResult, learned, tail_mean
from repro.launch.attempt import Limits
from repro.launch.local_attempt import local_attempts
from repro.launch.progress import Progress
from repro.launch.runner import Bench
from repro.planning.convergence import make_convergence_plan
from repro.runs.description import Goal
from repro.runs.failures import Failure
from repro.runs.record import Run
from tests.support.attempts import recorded
from tests.support.configs import configured
from tests.support.datasets import small_text, without_files
from tests.support.metrics import row
from tests.support.synthetic import described

ITERATIONS, SAMPLES = 40, 12


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return small_text(tmp_path_factory.mktemp("datasets"))


def outcome(tmp_path, losses, limit=1.0):
    """What `learned` says of one unit with these losses."""
    planned = make_convergence_plan(0, {"resnet50": without_files("digits")}, iterations=20)
    ((name, goal),) = planned.goals.items()
    rows = [row(n, loss, top_1=0.5) for n, loss in enumerate(losses, 1)]
    (tmp_path / "metrics-rank0.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return learned(
        planned.plan, [recorded({"unit": name, "folder": "."})], tmp_path, {name: replace(goal, limit=limit)}
    )


def test_the_last_losses_count(tmp_path):
    assert tail_mean((9.0,) * 18 + (1.0, 2.0)) == 1.5
    found = outcome(tmp_path, [9.0] * 18 + [0.5, 0.7])
    assert (found.problems, found.results[0].reached, found.results[0].top_1) == ([], 0.6, 0.5)


def test_what_was_not_learned_is_named(tmp_path):
    found = outcome(tmp_path, [2.0] * 20)
    assert found.problems == ["learn_resnet50_fp32: its last losses are 2.000 on average, they must be below 1.000"]


def test_a_repeat_whose_last_losses_are_no_number_is_the_worst(tmp_path):
    unit = make_convergence_plan(0, {"resnet50": without_files("digits")}, iterations=20).plan.units[0]
    repeats = ((0.5,) * 20, (math.nan,) * 20, (0.6,) * 20)
    goal = Goal(1.0, Failure("a goal"))
    for losses in (repeats, repeats[::-1], (repeats[1], repeats[0])):
        found = ConvergenceResult(unit, goal, losses)
        assert math.isnan(found.reached) and not found.holds
    assert ConvergenceResult(unit, goal, (repeats[0], repeats[2])).reached == pytest.approx(0.6)


def test_a_training_that_was_cut_short_does_not_count(tmp_path):
    assert outcome(tmp_path, [0.1] * 19).problems == ["learn_resnet50_fp32: no repeat ran to its end"]


def test_a_small_gpt_learns_more_than_how_often_each_byte_occurs(text, tmp_path):
    """The goal is the entropy of single bytes; the same model that is not allowed to learn must miss it."""
    planned = make_convergence_plan(0, {"gpt": text}, iterations=ITERATIONS)
    (given,) = planned.plan.units
    unit = replace(configured(given, micro_batch=SAMPLES), global_batch=SAMPLES)
    goal = replace(planned.goals[unit.name], limit=text.facts["entropies_bits"][0] * math.log(2))
    optimizer = {**unit.config.optimizer, "lr": 1e-9}
    idle = configured(unit, iterations=8, optimizer=optimizer, schedule={"kind": "constant"})
    goals = {unit.name: goal, "idle": goal}
    plan = replace(planned.plan, units=(unit, replace(idle, name="idle")))
    run = Run.create("learn", described(plan, goals=goals), tmp_path / "runs")
    attempts = Bench(run, plan, Progress(), local_attempts(Limits(), None, None)).run_all()
    learning, idling = learned(plan, attempts, run.folder, goals).results
    assert learning.holds, (learning.reached, learning.goal.limit)
    assert idling.reached == pytest.approx(math.log(257), rel=0.05), "an idle model guesses"
    assert not idling.holds
