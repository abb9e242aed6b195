"""Runs of other lengths than published: what may still stand for a published case, and what says that it does not."""

import json

import pytest

from repro.analysis.comparability import configuration_reasons
from repro.analysis.results import summarise
from repro.analysis.verdict import judge
from repro.perfmodel.hardware import describe
from repro.perfmodel.plan_table import plan_rows
from repro.planning.derived import same_window
from repro.planning.plan import MOST_REPEATS, Wanted, make_plan, of_length
from repro.published.cases import load_catalogue
from repro.report.run.baselines import within_sections
from repro.runs.plan import Plan
from repro.runs.record import Run
from repro.utils.errors import PlanError
from repro.utils.i18n import LANGUAGES, catalogue
from tests.support.attempts import recorded
from tests.support.synthetic import described

CATALOGUE = load_catalogue()


def plan(cases, iterations, gpus=8, **rest):
    return make_plan(CATALOGUE.select(None, cases), gpus, Wanted(iterations=iterations, **rest))


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("bert_1n1g_bs96", 6),  # stamps of rows 1 and 6
        ("DP_1x1x1_2_1536x16", 6),  # the last 5 rows, which must not hold the start of training
        ("gpt2_small_1n8g_bs4", 2),  # all rows but the first
        ("resnet50_0808_1n1g_bs128", 2),
    ],
)
def test_the_least_number_is_a_row_each_iteration_for_all_that_the_rule_reads(name, rows):
    case = next(case for case in CATALOGUE.cases if case.name.startswith(name))
    (unit,) = make_plan([case], 8, Wanted(iterations=rows)).units
    assert (unit.config.iterations, unit.config.log_interval) == (rows, 1)
    assert unit.name == f"{case.name}.iter{rows}"
    with pytest.raises(PlanError, match=rf"ITERATIONS={rows - 1}: these cases need at least {rows}; .*{case.name}"):
        make_plan([case], 8, Wanted(iterations=rows - 1))


@pytest.mark.parametrize(("iterations", "interval"), [(6, 1), (13, 2), (50, 8), (60, 10), (1500, 10)])
def test_rows_are_printed_more_often_only_where_they_would_be_too_few(iterations, interval):
    (unit,) = plan("DP_1x1x1_2_1536x16", iterations).units
    assert unit.config.log_interval == interval


def test_all_cases_must_have_what_their_rules_read():
    with pytest.raises(PlanError, match="need at least 6"):
        make_plan(list(CATALOGUE.cases), 32, Wanted(iterations=5))


@pytest.mark.parametrize("iterations", [120, 200])
def test_stamps_of_the_same_rows_stand_for_the_published_case(iterations):
    (unit,) = plan("bert_1n1g_bs96", iterations).units
    assert (unit.name, unit.stands_for, unit.derived_from) == ("bert_1n1g_bs96", ("bert_1n1g_bs96",), ())
    assert unit.config.iterations == iterations
    assert list(configuration_reasons(CATALOGUE.case("bert_1n1g_bs96"), unit)) == []


@pytest.mark.parametrize("name", ["DP_1x1x1_2_1536x16", "gpt2_small_1n8g_bs4_zero0"])
@pytest.mark.parametrize("iterations", [20, 60, 1500])
def test_other_measured_iterations_are_another_case(name, iterations):
    (unit,) = plan(name, iterations).units
    assert (unit.name, unit.stands_for, unit.derived_from) == (f"{name}.iter{iterations}", (), (name,))
    assert unit.config.case == unit.name
    denser = ["configuration:log_interval"] if (name, iterations) == ("DP_1x1x1_2_1536x16", 20) else []
    aspects = [reason.aspect for reason in configuration_reasons(CATALOGUE.case(name), unit)]
    assert aspects == ["configuration:iterations", *denser]


def test_the_published_number_changes_nothing():
    (case,) = CATALOGUE.select(None, "DP_1x1x1_2_1536x16")
    assert same_window(case, 100)
    assert plan(case.name, 100) == plan(case.name, None)


def test_precision_length_and_layout_all_stand_in_the_name():
    (unit,) = plan("DP_8x1x1_16_1536x16", 60, gpus=2, max_gpus=(2,), precision="fp32").units[1:]
    assert unit.name == "DP_8x1x1_16_1536x16.fp32.iter60.as_2x1x1"
    assert unit.derived_from == ("DP_8x1x1_16_1536x16",)
    (shrunk,) = plan("bert_1n8g_bs96", 120, gpus=2, max_gpus=(2,)).units[1:]
    assert shrunk.name == "bert_1n8g_bs96.as_2x1x1", "its window is the published one"


def test_baselines_run_as_many():
    found = plan("gpt2_small_1n8g_bs4_zero0", 50, baselines=("pytorch",))
    assert [unit.config.iterations for unit in found.units] == [50, 50]
    assert found.units[1].name == "gpt2_small_1n8g_bs4_zero0.iter50.pytorch"


def test_a_smoke_run_has_its_own_number():
    with pytest.raises(PlanError, match="ITERATIONS is for the published shapes"):
        plan("bert_1n1g_bs96", 120, scale="smoke")


def test_a_resumed_run_keeps_its_number():
    found = plan("gpt2_small_1n8g_bs4_zero0", 50)
    assert Plan.from_json(json.loads(json.dumps(found.as_json()))) == found


def test_the_duration_follows():
    (case,) = CATALOGUE.select(None, "gpt2_small_1n8g_bs4_zero0")
    (whole,), (short,) = (plan_rows(cases, describe("v100x32")) for cases in ([case], of_length([case], 100)))
    latency = whole.expectation.latency_ms / 1000
    assert (whole.hours - short.hours) * 3600 == pytest.approx(MOST_REPEATS * 900 * latency)


def _attempts(found):
    return [
        recorded(
            {
                "unit": unit.name,
                "repeat": repeat,
                "throughput": 100.0,
                "latency_ms": 1.0,
                "memory_mib": 1.0,
                "trainer_s": 1.0,
                "losses": [1.0],
                "folder": "units/none",
            }
        )
        for unit in found.units
        for repeat in (1, 2)
    ]


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_report_tells_how_many_of_a_derived_case(language):
    found = plan("gpt2_small_1n8g_bs4_zero0", 50)
    section, *_ = within_sections(catalogue(language).gettext, "published", summarise(found, _attempts(found)))
    table = section.blocks[1]
    titles = [column.title for column in table.columns]
    assert table.rows[0][titles.index({"en": "Iterations", "zh": "迭代次数"}[language])].text == "50"


def test_the_verdict_remarks_on_the_length(tmp_path):
    found = plan("bert_1n1g_bs96", 120)
    run = Run.create("x", described(found), tmp_path)
    attempts = _attempts(found)
    (verdict,) = judge(run, found, attempts, summarise(found, attempts)).verdicts
    assert "iterations: published 140, here 120: the rule covers the same ones" in [
        remark.text() for remark in verdict.remarks
    ]
