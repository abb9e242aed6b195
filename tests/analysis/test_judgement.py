"""What a verdict and a judgement say of themselves: shortfall, chance, status and summary, without any run."""

from dataclasses import replace

import pytest

from repro.analysis.comparability import Reason
from repro.analysis.ratio import Ratio
from repro.analysis.verdict import (
    NOISE_FACTOR,
    Judgement,
    Tolerance,
    Verdict,
    case_ratio,
    outcome,
    tolerance,
)
from repro.published.cases import load_catalogue
from repro.published.figures import PrintedNumber
from repro.published.noise import published_noise
from repro.utils.sequential import Look
from repro.utils.stats import Interval, TooFew, ratio_interval

CATALOGUE = load_catalogue()
WHY = Reason("loss", "missing", "none was recorded")
SURE = Interval(0.99, 1.01, 0.96875, "order statistics", (6,))
UNSURE = Interval(0.99, 1.01, 0.9375, "order statistics", (5,))


def verdict(outcome="reproduced", interval=SURE, throughputs=6, **changes):
    given = {
        "case": "a",
        "report": "r",
        "unit": "a",
        "comparable": True,
        "reasons": (),
        "remarks": (),
        "published": 10.0,
        "planned": 6,
        "failed": 0,
        "interrupted": 0,
        "ratio": None if interval is None else Ratio(1.0, interval),
        "tolerance": Tolerance(0.05, "given"),
    }
    return Verdict(outcome=outcome, throughputs=tuple(range(1, throughputs + 1)), **{**given, **changes})


def none(comparable=False, **changes):
    return verdict("none", None, comparable=comparable, reasons=(WHY,), tolerance=None, **changes)


def judgement(*verdicts, **changes):
    given = {"given": None, "comparisons": (), "orders": (), "skipped": (), "failed": 0, "interrupted": 0}
    return Judgement("run", "published", verdicts=verdicts, **{**given, **changes})


# One verdict


@pytest.mark.parametrize(("throughputs", "complete"), [(5, False), (6, True), (7, True)])
def test_a_verdict_is_complete_with_as_many_repeats_as_planned(throughputs, complete):
    assert verdict(throughputs=throughputs).complete is complete


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (verdict("slower"), "slower"),
        (verdict("slower", throughputs=5), "slower, 5 of 6 repeats"),
        (verdict("none", None, throughputs=0), "no repeat succeeded"),
        (none(), WHY.text()),
        (verdict("inconclusive", UNSURE), "inconclusive: the repeats give a confidence of 93.8% only"),
        (verdict("inconclusive", TooFew((1,), 6)), "inconclusive: too few samples: 1, where 6 are needed"),
        (verdict("inconclusive", None), "inconclusive"),
    ],
)
def test_why_a_case_does_not_hold(found, text):
    assert found.shortfall == text


@pytest.mark.parametrize(
    ("found", "chance"),
    [
        (verdict(), 0.03125),
        (verdict("faster"), 0.03125),
        (verdict("slower"), 0.03125),
        (verdict("inconclusive"), 0),
        (verdict("reproduced", TooFew((1,), 6)), 0),
        (verdict("reproduced", None), 0),
        (none(), 0),
    ],
)
def test_a_verdict_is_false_by_chance_as_often_as_its_interval_misses(found, chance):
    assert found.chance == chance
    assert judgement(found, verdict()).false_verdicts == chance + 0.03125


def test_what_verdicts_json_keeps():
    kept = verdict(failed=1, interrupted=2, throughputs=5).as_json()
    assert kept["repeats"] == {"planned": 6, "succeeded": 5, "failed": 1, "interrupted": 2}
    assert kept["ratio"]["value"] == 1.0 and kept["tolerance"]["value"] == 0.05
    assert none().as_json()["ratio"] is None and none().as_json()["tolerance"] is None


# All of a run

HELD, NOT_HELD, NOTHING = 0, 1, 3


@pytest.mark.parametrize(
    ("verdicts", "status"),
    [
        ([verdict()], HELD),
        ([verdict("faster"), verdict()], HELD),
        ([verdict(), none()], HELD),
        ([verdict(), verdict("slower")], NOT_HELD),
        ([verdict("inconclusive")], NOT_HELD),
        ([verdict(throughputs=5)], NOT_HELD),
        ([verdict("faster", throughputs=5)], NOT_HELD),
        ([none(comparable=True)], NOT_HELD),
        ([none(comparable=None)], NOT_HELD),
        ([none()], NOTHING),
        ([], NOTHING),
    ],
)
def test_a_run_holds_if_every_comparable_case_does(verdicts, status):
    assert judgement(*verdicts).status == status


def test_the_summary_counts_what_holds_or_names_what_does_not():
    held = judgement(verdict(), verdict("faster"), verdict("faster"), none(), failed=2)
    assert held.summary() == "every comparable case holds: 1 reproduced, 2 faster; attempts that failed: 2"
    assert "2 faster within the given tolerance of 0.025; " in judgement(*held.verdicts, given=0.025).summary()
    short = judgement(verdict(), verdict("slower", case="b"), none(comparable=True, case="c"))
    assert short.summary() == f"does not hold: b (slower), c ({WHY.text()}); attempts that failed: 0"
    assert judgement(none(), none()).summary() == f"nothing here can be judged: {WHY.text()}"
    assert judgement().summary() == "nothing here can be judged: no unit stands for a published case"


def test_outcomes_are_counted_all_of_them():
    counts = judgement(verdict(), none(), verdict()).counts
    assert counts == {"reproduced": 2, "faster": 0, "slower": 0, "inconclusive": 0, "none": 1}
    content = judgement(verdict(), looks=(Look(6, 1),), skipped=("x",), failed=1, interrupted=2).as_json()
    assert content["looks"] == [{"repeats": 6, "trim": 1}] and content["left_out"] == ["x"]
    assert content["attempts"] == {"failed": 1, "interrupted": 2} and content["status"] == HELD


# Outcome and tolerance


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.75, 1.25, "reproduced"),
        (0.75, 1.2500001, "inconclusive"),
        (0.7499999, 1.25, "inconclusive"),
        (1.25, 1.5, "inconclusive"),
        (1.2500001, 1.5, "faster"),
        (0.5, 0.75, "inconclusive"),
        (0.5, 0.7499999, "slower"),
    ],
)
def test_the_ends_of_an_interval_decide(low, high, expected):
    assert outcome(Ratio(1.0, Interval(low, high, 0.96875, "any", (6,))), 0.25) == expected
    assert outcome(Ratio(1.0, Interval(low, high, 0.9375, "any", (5,))), 0.25) == "inconclusive"


def test_a_tolerance_of_zero_is_named_in_the_outcome():
    held = judgement(verdict())
    assert "within the given tolerance" not in held.summary()
    assert "within the given tolerance of 0; " in replace(held, given=0.0).summary()


def test_a_tolerance_is_three_times_the_noise_of_cases_of_its_kind():
    assert NOISE_FACTOR == 3
    case = CATALOGUE.case("bert_1n8g_bs96")
    noise = published_noise([other for other in CATALOGUE.cases if other.report == case.report])
    assert tolerance(case, CATALOGUE) == Tolerance(3 * noise.largest, "report", noise.largest, noise.cases)
    assert tolerance(case, CATALOGUE, 0.0) == Tolerance(0.0, "given"), "zero is given too"


@pytest.mark.parametrize(("nodes", "basis"), [(1, "report"), (4, "report"), (5, "all")])
def test_noise_counts_for_as_many_nodes_as_it_was_seen_on(nodes, basis):
    case = replace(CATALOGUE.case("bert_4n8g_bs96"), nodes=nodes)
    assert tolerance(case, CATALOGUE).basis == basis


@pytest.mark.parametrize(("pipeline", "basis"), [(1, "report"), (2, "all"), (4, "all")])
def test_noise_counts_for_pipelines_if_it_was_seen_in_one(pipeline, basis):
    """Nothing with a pipeline was published twice."""
    case = CATALOGUE.case("DP_8x1x1_16_1536x16")
    found = tolerance(replace(case, layout=replace(case.layout, pipeline=pipeline)), CATALOGUE)
    assert found.basis == basis
    noise = published_noise(CATALOGUE.cases)
    assert basis != "all" or found == Tolerance(3 * noise.largest, "all", noise.largest, noise.cases)


def test_published_repeats_are_known_to_half_a_unit_of_the_coarsest():
    case = CATALOGUE.case("bert_1n8g_bs96")
    repeats = tuple(map(PrintedNumber, ("100", "100.1", "100.25", "100.3", "100.4", "100.5", "101")))
    mixed = replace(case, published=replace(case.published, repeats=repeats))
    measured = [100.0 + step / 10 for step in range(7)]
    assert case_ratio(mixed, measured).interval == ratio_interval(measured, repeats, 0.95, 0.5)
