"""Planning: which configurations a choice of cases becomes."""

import math
from dataclasses import astuple

import pytest

from repro.planning.derived import shrink
from repro.planning.plan import Wanted, make_plan
from repro.planning.trainer_config import SMOKE_GLOBAL_BATCH, SMOKE_PROCESSES
from repro.published.cases import Layout, load_catalogue
from repro.runs.plan import Plan
from repro.utils.errors import PlanError
from repro.utils.sequential import Look

CATALOGUE = load_catalogue()


@pytest.mark.parametrize(
    ("published", "small"),
    [
        ((1, 1, 1), (1, 1, 1)),
        ((2, 1, 1), (2, 1, 1)),
        ((32, 1, 1), (4, 1, 1)),
        ((1, 32, 1), (1, 4, 1)),
        ((4, 8, 1), (2, 2, 1)),
        ((8, 1, 4), (2, 1, 2)),
        ((1, 8, 4), (1, 2, 2)),
        ((2, 4, 4), (1, 2, 2)),
        ((2, 8, 2), (1, 2, 2)),
    ],
)
def test_shrinking_keeps_the_kind_of_layout(published, small):
    assert shrink(Layout(*published), SMOKE_PROCESSES) == Layout(*small)


@pytest.mark.parametrize("model", ["gpt", "bert", "resnet50"])
def test_smoke_runs_every_case_once(model):
    cases = CATALOGUE.select(model, None)
    plan = make_plan(cases, gpus=0)
    assert plan.scale == "smoke"
    assert sorted(name for unit in plan.units for name in unit.stands_for) == sorted(case.name for case in cases)
    names = [unit.name for unit in plan.units]
    assert len(set(names)) == len(names)
    for unit in plan.units:
        layout = unit.config.layout
        assert unit.world_size <= SMOKE_PROCESSES
        assert unit.config.micro_batch * layout.data * unit.config.accumulation_steps == SMOKE_GLOBAL_BATCH
        assert unit.config.iterations >= unit.rule.parameters.get("last_row", unit.rule.repeats)
        assert unit.reference is None or names.index(unit.reference) < names.index(unit.name)


def test_smoke_covers_each_kind_of_parallelism():
    layouts = {astuple(unit.config.layout) for unit in make_plan(CATALOGUE.select("gpt", None), 0).units}
    assert layouts == {(1, 1, 1), (4, 1, 1), (1, 4, 1), (2, 2, 1), (2, 1, 2), (1, 2, 2)}
    assert any(u.config.optimizer_sharding for u in make_plan(CATALOGUE.select("gpt", None), 0).units)


def test_the_published_scale_runs_what_fits_and_says_what_does_not():
    cases = CATALOGUE.select("gpt", None)
    plan = make_plan(cases, gpus=8)
    assert plan.scale == "published"
    assert {unit.name for unit in plan.units} == {case.name for case in cases if case.layout.world_size <= 8}
    assert len(plan.units) + len(plan.skipped) == len(cases)
    assert all(skip.reason.values["needed"] > 8 for skip in plan.skipped)


def test_published_shapes_reach_the_trainer_unchanged():
    case = next(case for case in CATALOGUE.cases if case.name == "2D_2x4x1_16_1536x16")
    unit = make_plan([case], gpus=8).units[0]
    assert unit.config.layout == Layout(2, 4, 1)
    assert unit.config.shape["hidden_size"] == 1536
    assert unit.config.precision == "amp"
    assert unit.config.activation_checkpointing is True
    assert unit.config.iterations == 100
    assert unit.global_batch == math.prod((2, unit.config.micro_batch)) == 16


@pytest.mark.parametrize("model", ["bert", "gpt", "resnet50"])
def test_the_default_number_of_repeats_can_reach_a_verdict(model):
    """However often the report ran its cases: GPT's were run once."""
    found = make_plan(CATALOGUE.select(model, None), gpus=1)
    assert (found.repeats, found.looks) == (12, (Look(6, 1), Look(12, 2)))


def test_repeats_that_are_asked_for_are_run_and_a_smoke_run_has_two():
    assert make_plan(CATALOGUE.select("bert", None), 1, Wanted(repeats=3)).looks == ()
    assert make_plan(CATALOGUE.select("bert", None), gpus=0).looks == ()
    assert make_plan(CATALOGUE.select("bert", None), gpus=0).repeats == 2
    assert make_plan(CATALOGUE.select("bert", None), 1, Wanted(repeats=3)).repeats == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"scale": "full"}, "smoke or published"),
        ({"scale": "published"}, "needs a GPU"),
        ({"repeats": 0}, "REPEATS=0"),
    ],
)
def test_what_cannot_be_planned_is_said(arguments, message):
    with pytest.raises(PlanError, match=message):
        make_plan(CATALOGUE.select("gpt", None), 0, Wanted(**arguments))


def test_nothing_fits():
    with pytest.raises(PlanError, match="smallest needs 32"):
        make_plan(CATALOGUE.select("gpt", "MP_1x32x1*"), gpus=4)


def test_a_plan_survives_its_file():
    plan = make_plan(CATALOGUE.select("gpt", None), gpus=0)
    assert Plan.from_json(plan.as_json()) == plan
