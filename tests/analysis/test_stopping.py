"""When repeats end, that verdicts are then wrong as seldom as stated, and that repeats are saved."""

import math
from dataclasses import replace

import pytest

from repro.analysis import stopping
from repro.analysis.stopping import why_enough
from repro.planning.plan import CONFIDENCE, verdict_looks
from repro.published.cases import load_catalogue
from repro.runs.plan import Plan
from repro.runs.record import read_json, write_json
from repro.utils.sequential import Look, error
from repro.utils.stats import order_coverage
from tests.support.stopping import NOISES, PLACES, fixed, simulate
from tests.support.synthetic import SIX, add_attempt, environment, published_run

EIGHT = "DP_8x1x1_16_1536x16"
LOOKS = (Look(6, 1), Look(12, 2))


def enough(tmp_path, ratios, name=EIGHT, env=None, looks=LOOKS):
    """Why a case needs no more repeats after these."""
    run = published_run(tmp_path, [name], ratios, env=env)
    description = read_json(run.folder / "run.json")
    description["plan"] |= {"repeats": 12, "looks": [vars(look) for look in looks]}
    write_json(run.folder / "run.json", description)
    plan = run.description().plan
    return why_enough(run, plan, run.attempts(), plan.units[0])


def test_repeats_end_when_a_verdict_is_decided(tmp_path):
    assert enough(tmp_path / "5", SIX[:5]) is None
    assert enough(tmp_path / "6", SIX) == "decided"
    assert enough(tmp_path / "slow", [0.9 * each for each in SIX]) == "decided"
    assert enough(tmp_path / "equal", [1.0] * 6) == "decided", "exactly the published figure"


def test_repeats_go_on_while_a_later_look_can_decide(tmp_path):
    outlier = (*SIX[:5], 1.03)
    assert enough(tmp_path / "one", outlier) is None, "the look after 12 leaves out one value at each end"
    assert enough(tmp_path / "two", (*outlier, 1.03)) == "undecidable"
    assert enough(tmp_path / "fixed", outlier, looks=(Look(6, 1),)) == "undecidable"
    assert enough(tmp_path / "last", (*outlier, *SIX[:5], 1.0001)) == "decided"


def test_repeats_end_at_the_first_look_where_there_can_be_no_verdict(tmp_path):
    other = environment({"name": "NVIDIA H200"})
    assert enough(tmp_path / "5", SIX[:5], env=other) is None
    assert enough(tmp_path / "6", SIX, env=other) == "no verdict"


def test_the_looks_of_a_bench_hold_their_confidence_beside_published_repeats():
    """Whatever the noise: the error of all looks is exact, and the published figures' own is added."""
    assert verdict_looks() == LOOKS
    assert (1 - error(LOOKS)) * order_coverage(7, 1) >= CONFIDENCE


@pytest.mark.parametrize("name", [EIGHT, "bert_1n8g_bs24"])
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("place", PLACES)
def test_verdicts_are_false_as_seldom_as_stated(name, noise, place):
    trials, stated = 400, 1 - CONFIDENCE
    found = simulate(name, LOOKS, noise, place, trials)
    assert found.false <= stated / 2 + 4 * math.sqrt(stated / 2 / trials), "a verdict is false on one side only"


def test_looking_often_without_making_up_for_it_decides_nothing(monkeypatch):
    """And would err more often than stated if each look claimed the confidence of one: the simulation can fail."""
    greedy = tuple(Look(repeats, trim) for repeats, trim in ((4, 1), (5, 2), (7, 3), (9, 4), (11, 5)))
    assert simulate(EIGHT, greedy, "normal", 1.001, 400).decided == 0
    monkeypatch.setattr("repro.analysis.ratio.error", lambda looks: 0.05)
    assert simulate(EIGHT, greedy, "normal", 1.001, 400).false > 0.05


def test_repeats_are_saved_and_no_verdict_is_lost():
    looks, seven, twelve = (simulate(EIGHT, each, "normal", 0.0, 400) for each in (LOOKS, fixed(7), fixed(12)))
    assert looks.repeats < 6.5 < seven.repeats
    assert looks.decided >= seven.decided and looks.decided > 0.95
    assert looks.repeats < 0.6 * twelve.repeats


CASE = load_catalogue().case(EIGHT)


def further(*ratios, looks=LOOKS):
    """What is said after repeats with these ratios to the published throughput, at a tolerance of 5 %."""
    spread = [ratio * float(CASE.published.throughput) * (1 + number * 1e-6) for number, ratio in enumerate(ratios)]
    return stopping.enough(CASE, spread, looks, 0.05)


@pytest.mark.parametrize(
    ("ratios", "said"),
    [
        ([1.0] * 6, "decided"),
        ([1.2] * 6, "decided"),
        ([0.8] * 6, "decided"),
        ([1.0] * 5 + [1.2], None),
        ([1.2] * 5 + [1.0], None),
        ([0.8] * 5 + [1.0], None),
        ([0.8] * 3 + [1.2] * 3, "undecidable"),
        ([1.0] * 4 + [1.2] * 2, "undecidable"),
    ],
)
def test_repeats_go_on_if_more_like_the_published_or_far_faster_or_slower_ones_could_decide(ratios, said):
    assert further(*ratios) == said


def test_a_look_after_one_more_repeat_is_one():
    assert further(*[1.0] * 10, 1.2) is None
    assert further(*[1.0] * 10, 1.2, looks=LOOKS[:1]) == "undecidable"


def stopped(tmp_path, names, counts, **changes):
    """Why each of these cases needs no more repeats after so many, in a plan with these changes."""
    run = published_run(tmp_path, names, SIX)
    description = read_json(run.folder / "run.json")
    description["plan"] |= {"repeats": 12, "looks": [vars(look) for look in LOOKS], **changes}
    plan = Plan.from_json(description["plan"])
    attempts = [each for each in run.attempts() if each.repeat <= counts[each.unit]]
    return [why_enough(run, plan, attempts, unit) for unit in plan.units]


def test_only_a_units_own_repeats_that_succeeded_count(tmp_path):
    single = "DP_1x1x1_2_1536x16"
    found = stopped(tmp_path / "two", [single, EIGHT], {single: 5, EIGHT: 6})
    assert sorted(found, key=str) == [None, "decided"]
    run = published_run(tmp_path / "failed", [EIGHT], SIX[:5], env=environment({"name": "NVIDIA H200"}))
    plan = replace(run.description().plan, looks=LOOKS)
    for status, said in (("failed", None), ("ok", "no verdict")):
        add_attempt(run, CASE, 6, status=status)
        assert why_enough(run, plan, run.attempts(), plan.units[0]) == said


def test_there_is_no_verdict_but_on_a_published_case_at_its_scale(tmp_path):
    assert stopped(tmp_path / "smoke", [EIGHT], {EIGHT: 6}, scale="smoke") == ["no verdict"]
    assert stopped(tmp_path / "fixed", [EIGHT], {EIGHT: 6}, looks=[]) == [None], "a plan without looks"
    run = published_run(tmp_path / "derived", [EIGHT], SIX)
    plan = run.description().plan
    for names in ((), ("of another catalogue",)):
        plan = replace(plan, looks=LOOKS, units=(replace(plan.units[0], stands_for=names),))
        assert why_enough(run, plan, run.attempts(), plan.units[0]) == "no verdict"
