"""What is planned to show that models learn: precisions, goals, and enough fresh samples."""

import math

import pytest

from repro.planning.convergence import make_convergence_plan, training_of
from repro.utils.errors import PlanError
from tests.support.datasets import without_files


def test_goals_follow_from_the_data():
    goals = make_convergence_plan(0, {"gpt": without_files(), "resnet50": without_files("digits")}).goals
    assert goals["learn_gpt_fp32"].limit == pytest.approx(3.5 * math.log(2))
    assert goals["learn_resnet50_fp32"].limit == pytest.approx(math.log(10) / 2)


def test_gpus_learn_in_both_precisions():
    planned = make_convergence_plan(1, {"gpt": without_files(), "resnet50": without_files("digits")})
    assert [unit.name for unit in planned.plan.units] == list(planned.goals)
    assert {(unit.model, unit.config.precision) for unit in planned.plan.units} == {
        (model, precision) for model in ("gpt", "resnet50") for precision in ("fp32", "amp")
    }


def test_too_few_iterations_are_refused():
    with pytest.raises(PlanError, match="19 iterations are too few"):
        make_convergence_plan(0, {"gpt": without_files()}, iterations=19)


def test_a_text_is_not_read_twice():
    training = training_of("gpt", "cpu")[2]
    needed = training.iterations * training.global_batch * training.shape["seq_length"]
    make_convergence_plan(0, {"gpt": without_files(tokens=needed + 1)})
    with pytest.raises(PlanError, match=r"more than the .* samples that the text has"):
        make_convergence_plan(0, {"gpt": without_files(tokens=needed)})


def test_a_model_that_learns_nothing_is_refused():
    with pytest.raises(PlanError, match="bert: its specification does not say what it learns"):
        make_convergence_plan(0, {"bert": without_files()})
