"""A plan agrees with the catalogue and with itself, or what does not is named."""

from dataclasses import asdict, replace

import pytest

from repro.analysis.planned import contradictions
from repro.planning.plan import Wanted, make_plan
from repro.published.cases import load_catalogue
from repro.published.rules import MeanRows
from repro.runs.unit import Unit

NAME = "resnet50_0808_1n2g_bs128"
PLAN = make_plan(
    [load_catalogue().case(NAME)],
    2,
    Wanted(scale="published", repeats=2, baselines=("pytorch",), programs=("published", "tuned")),
)
RULE = asdict(PLAN.units[0].rule)


def said(plan, command="make bench"):
    return [(each.where, each.what, *each.says) for each in contradictions(plan, command)]


def bent(at, **changes):
    """The plan with a unit recorded otherwise, by its place."""
    units = [
        Unit.from_json({**unit.as_json(), **changes}) if number == at else unit
        for number, unit in enumerate(PLAN.units)
    ]
    return replace(PLAN, units=tuple(units))


def trained(at, **changes):
    """The plan with the configuration of a unit changed, by its place."""
    return bent(at, config={**PLAN.units[at].config.as_json(), **changes})


@pytest.mark.parametrize("options", [{}, {"max_gpus": (1, 2)}, {"precision": "amp"}, {"iterations": 60}])
def test_what_is_planned_contradicts_nothing(options):
    cases = load_catalogue().select(
        None, "DP_8x1x1_16_1536x16,bert_1n1g_bs24,DP_1x1x1_2_1536x16,gpt2_small_1n8g_bs4_zero1"
    )
    plan = make_plan(
        cases,
        8,
        Wanted(
            scale="published",
            repeats=1,
            baselines=("pytorch", "pytorch-tf32"),
            programs=("published", "tuned"),
            **options,
        ),
    )
    assert said(plan) == []
    assert said(make_plan(cases, 0, Wanted(scale="smoke", repeats=1))) == []


@pytest.mark.parametrize("key", ["skip_first", "repeats"])
def test_a_rule_is_that_of_the_report(key):
    plan = bent(0, rule={**RULE, key: 7})
    found = said(plan)
    if key == "repeats":
        assert found == [], "how many repeats were published changes no figure"
        return
    assert [(where, what) for where, what, *_ in found] == [(NAME, "measuring rule")] + [
        (f"{NAME}{end}", "measuring rule") for end in (".tuned", ".pytorch")
    ]
    assert found[0][2:] == (
        ("run.json", "mean_rows {'skip_first': 7}"),
        (f"the report of {NAME}", "mean_rows {'skip_first': 1}"),
    )
    assert found[1][3] == (NAME, "mean_rows {'skip_first': 7}")


def test_the_rule_of_a_baseline_is_that_of_its_unit():
    (found,) = said(bent(2, rule={**RULE, "skip_first": 0}))
    assert found[:2] == (f"{NAME}.pytorch", "measuring rule") and found[3] == (NAME, "mean_rows {'skip_first': 1}")


def test_other_kinds_of_runs_and_models_from_outside_have_rules_of_their_own():
    every = tuple(replace(unit, rule=MeanRows(skip_first=7)) for unit in PLAN.units)
    assert said(replace(PLAN, kind="curves", units=every)) == []
    own = {"case": None, "report": "of-another", "stands_for": ("x",), "tuned_of": None, "baseline_of": None}
    assert said(replace(PLAN, units=tuple(replace(unit, **own) for unit in every))) == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"case": "", "stands_for": ()},
            ("case", ("run.json", "none"), ("its report", "none of this name in {report}")),
        ),
        ({"case": "x"}, ("case", ("run.json", "x"), ("its report", "none of this name in {report}"))),
        (
            {"case": "resnet50_0808_1n1g_bs128"},
            ("case", ("run.json", "resnet50_0808_1n1g_bs128"), ("the cases that it is of", NAME)),
        ),
        ({"report": "bert-2020-08-22"}, ("report", ("run.json", "bert-2020-08-22"), (NAME, "{report}"))),
    ],
)
def test_a_unit_of_a_report_has_one_of_its_cases(changes, expected):
    """Or a bent rule would have nothing to be held against."""
    what, first, (source, value) = expected
    assert said(bent(0, **changes)) == [(NAME, what, first, (source, value.format(report=PLAN.units[0].report)))]


def test_a_unit_trains_as_the_one_that_it_follows():
    assert said(trained(2, micro_batch=64))[1:] == [(f"{NAME}.pytorch", "micro_batch", ("run.json", 64), (NAME, 128))]
    assert said(trained(1, dropout=0.5)) == [
        (f"{NAME}.tuned", "dropout", ("run.json", 0.5), (NAME, PLAN.units[0].config.dropout))
    ]
    assert said(trained(1, own=1)) == [(f"{NAME}.tuned", "own", ("run.json", 1), (NAME, None))]
    for free in ("case", "baseline", "data"):
        assert said(trained(2, **{free: {"kind": "synthetic"}})) == []
    alone = replace(PLAN, units=PLAN.units[2:])
    assert said(alone) == [
        (f"{NAME}.pytorch", "unit that it follows", ("run.json", NAME), ("its units", "none of this name"))
    ]


def test_the_batch_of_a_unit_is_that_of_its_configuration():
    (found,) = said(bent(0, global_batch=512))
    assert found == (NAME, "global batch", ("run.json", 512), ("its configuration", 256))
    assert said(trained(0, accumulation_steps=2))[0] == (
        NAME,
        "global batch",
        ("run.json", 256),
        ("its configuration", 512),
    )


def test_the_program_of_a_unit_is_that_of_its_configuration():
    assert said(bent(1, program="published")) == [
        (f"{NAME}.tuned", "program", ("run.json", "published"), ("its configuration", "tuned"))
    ]
    assert said(bent(2, program="other")) == [], "a baseline has none of its own"


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("make bench REPEATS=2", False),
        ("make bench REPEATS=3 CASES=x", True),
        ("make bench MOST_REPEATS=3", False),
        ("fab bench --repeats 3", False),
    ],
)
def test_as_many_repeats_are_planned_as_were_asked_for(command, named):
    assert said(PLAN, command) == ([("run.json", "repeats", ("its plan", 2), ("its command", 3))] if named else [])
