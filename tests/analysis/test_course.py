"""The course of a run contradicts its record from the stated bounds on; what an honest run may show is only remarked."""

import calendar
from types import SimpleNamespace

import pytest

from repro.analysis import course
from repro.analysis.course import contradictions, remarks
from repro.planning.plan import Wanted, make_plan
from repro.published.cases import load_catalogue
from repro.runs.plan import Plan
from repro.utils.sequential import Look
from tests.support.attempts import recorded
from tests.support.synthetic import described, ran_on

CASE, OTHER = "DP_1x1x1_2_1536x16", "bert_1n1g_bs24"
PLAN = make_plan(load_catalogue().select(None, f"{CASE},{OTHER}"), 1, Wanted(scale="published", repeats=2))
NAME = "20261126-100030-all-published"
CREATED = float(calendar.timegm((2026, 11, 26, 10, 0, 30)))


def attempt(unit, repeat, started, wall_s=10.0, number=1, status="ok", **more):
    """An attempt; `started` in s after the run was created."""
    folder = f"units/{unit}/repeat-{repeat}.attempt-{number}"
    common = {"unit": unit, "repeat": repeat, "folder": folder, "status": status}
    return {**common, "started": CREATED + started, "wall_s": wall_s, **more}


IN_TURN = [attempt(CASE, 1, 0), attempt(OTHER, 1, 10), attempt(CASE, 2, 20), attempt(OTHER, 2, 30)]


def description(plan=PLAN, name=NAME, created=CREATED, **environment):
    return described(plan, id=name, created=created, environment=ran_on(**environment))


def said(attempts, plan=PLAN, **changes):
    run = SimpleNamespace(description=lambda: description(plan, **changes))
    return [(each.where, each.what, *each.says) for each in contradictions(run, list(map(recorded, attempts)))]


def test_attempts_in_turn_contradict_nothing():
    assert said(IN_TURN) == [] == said([])


# When the run was created


@pytest.mark.parametrize(
    ("seconds", "named"),
    [
        *((0, False), (-60, False), (60, False), (61, True), (-61, True), (3600, False), (-14 * 3600 - 5, False)),
        *((5.75 * 3600, False), (5.75 * 3600 + 61, True), (15 * 3600, False), (15 * 3600 + 1, True), (86_400, True)),
    ],
)
def test_the_name_of_a_run_has_the_time_of_its_creation_in_some_zone(seconds, named):
    found = said([], created=CREATED - seconds)
    assert found == (
        [("run.json", "time of the run", ("its name", NAME[:15]), ("created", found[0][3][1]))] if named else []
    )
    assert not named or found[0][3][1].endswith(" UTC")


@pytest.mark.parametrize("name", ["run", "20261126-10000-all"])
def test_another_name_has_no_time(name):
    assert said([], name=name, created=0.0) == []


def test_a_name_with_a_time_that_there_is_not_is_named():
    assert [what for _, what, *_ in said([], name="20261399-100000-all")] == ["time of the run"]


@pytest.mark.parametrize(("started", "named"), [(-0.05, False), (-0.06, True)])
def test_no_attempt_begins_before_the_run_was_created(started, named):
    first = attempt(CASE, 1, started)
    found = said([first])
    says = ("attempts.jsonl", first["started"]), ("run.json, created", CREATED)
    assert found == ([(first["folder"], "start of the attempt", *says)] if named else [])


# Order


def test_repeats_of_a_unit_begin_one_after_another():
    again = [IN_TURN[1], IN_TURN[2], IN_TURN[3], attempt(CASE, 1, 40)]
    assert said(again) == [
        (
            f"units/{CASE}/repeat-1.attempt-1",
            "start of the first attempt",
            ("repeat 1", CREATED + 40),
            ("repeat 2", CREATED + 20),
        )
    ]
    failed = [attempt(CASE, 1, 0, status="failed"), *IN_TURN[1:], attempt(CASE, 1, 40, number=2)]
    assert said(failed) == [], "what failed is tried again, at the end too"
    assert said(list(reversed(failed))) == [], "the lines of a record are in the order in which attempts ended"
    assert said([attempt(CASE, repeat, 0, wall_s=0) for repeat in (1, 2)]) == []
    gap = [attempt(CASE, 1, 0), attempt(CASE, 3, 20), attempt(CASE, 5, 10)]
    assert [where for where, *_ in said(gap)] == [f"units/{CASE}/repeat-3.attempt-1"]


# Neighbours


def beside(*attempts):
    return [{"attempt": each["folder"], "nodes": []} for each in attempts]


def pair(seconds, first=(), second=()):
    """Two attempts, the second of which begins these seconds before the end of the first."""
    one, other = attempt(CASE, 1, 0), attempt(OTHER, 1, 10 - seconds)
    if "named" in first:
        one["beside"] = beside(other)
    if "named" in second:
        other["beside"] = beside(one)
    return [one, other]


def test_a_record_in_which_all_ran_together_is_not_read_without_end(monkeypatch):
    """Pairs of all of them would be half the square of their number."""
    every = [attempt(CASE, repeat, repeat / 1000) for repeat in range(70)]
    assert len(said(every)) == 70 * 69
    for each in every:
        each["beside"] = beside(*(other for other in every if other is not each))
    assert said(every) == []
    monkeypatch.setattr(course, "MOST_PAIRS", 100)
    assert 100 < len(said([attempt(CASE, repeat, repeat / 1000) for repeat in range(70)])) < 100 + 2 * 70


@pytest.mark.parametrize(("seconds", "together"), [(-5.0, False), (-4.9, None), (0.04, None), (0.06, True), (9, True)])
def test_attempts_at_the_same_time_name_each_other(seconds, together):
    """Those that are a little apart may, since nodes are taken before an attempt's time begins."""
    one, other = (f"units/{name}/repeat-1.attempt-1" for name in (CASE, OTHER))
    unnamed = ("attempts.jsonl", "not named in its `beside`"), ("the times of both", "at the same time")
    wrong = ("attempts.jsonl", "named in its `beside`"), ("the times of both", "one after the other")
    both = pair(seconds, ["named"], ["named"])
    neither = pair(seconds)
    expected = sorted([(one, f"beside {other}"), (other, f"beside {one}")])
    if together:
        assert said(both) == []
        assert said(neither) == [(*each, *unnamed) for each in expected]
        assert said(pair(seconds, ["named"])) == [(other, f"beside {one}", *unnamed)]
    else:
        assert said(neither) == []
        assert sorted(said(both)) == ([(*each, *wrong) for each in expected] if together is False else [])


def test_early_runs_of_other_kinds_did_not_record_it():
    curves = Plan(**{**vars(PLAN), "kind": "curves"})
    assert said(pair(5), curves) == []
    third = attempt(CASE, 2, 100)
    attempts = [*pair(5), {**third, "beside": beside(attempt(OTHER, 2, 105))}, attempt(OTHER, 2, 105)]
    assert len(said(attempts, curves)) == 3


def test_an_attempt_that_was_killed_with_its_run_could_not_say_it():
    one, other = pair(5)
    assert [where for where, *_ in said([one | {"status": "interrupted"}, other])] == [other["folder"]]
    interrupted = [one | {"status": "interrupted", "beside": beside(other)}, other | {"beside": beside(one)}]
    assert said(interrupted) == []
    apart = pair(0, ["named"], ["named"])
    assert said([each | {"status": "interrupted"} for each in apart]) == [], "its end is only known by its files"


def test_a_neighbour_that_there_was_not_is_named():
    (first, second) = pair(0)
    first["beside"] = [{"attempt": "units/x/repeat-1.attempt-1", "nodes": []}]
    assert [(where, what) for where, what, *_ in said([first, second])] == [
        (first["folder"], "beside units/x/repeat-1.attempt-1")
    ]


def test_three_at_a_time_are_found_in_every_pair():
    three = [attempt(CASE, 1, 0, 100), attempt(OTHER, 1, 10, 5), attempt(CASE, 2, 20, 5)]
    assert {(where, what) for where, what, *_ in said(three)} == {
        (one["folder"], f"beside {other['folder']}")
        for one, other in ((three[0], three[1]), (three[1], three[0]), (three[0], three[2]), (three[2], three[0]))
    }


# The stopping rule


def test_the_stopping_rule_is_asked_again_of_the_repeats_up_to_then(monkeypatch):
    plan = Plan(**{**vars(PLAN), "looks": (Look(2, 1),)})
    asked = []

    def why_enough(run, of, attempts, unit):
        asked.append((len(attempts), unit.name))
        return "decided" if len(attempts) == 3 else None

    monkeypatch.setattr(course, "why_enough", why_enough)
    attempts = [
        each | {"enough": enough} for each, enough in zip(IN_TURN, (None, None, "decided", "decided"), strict=True)
    ]
    assert said(attempts, plan) == [
        (IN_TURN[3]["folder"], "enough", ("attempts.jsonl", "decided"), ("the stopping rule", None))
    ]
    assert asked == [(1, CASE), (2, OTHER), (3, CASE), (4, OTHER)]
    assert said([{**IN_TURN[0], "unit": "x", "folder": "y", "enough": "decided"}], plan) == []
    asked.clear()
    assert said(IN_TURN, plan) == [] and asked == [], "a plan without looks records none"


# Remarks


def remarked(attempts, plan=PLAN, **environment):
    return [str(each) for each in remarks(description(plan, **environment), list(map(recorded, attempts)))]


@pytest.mark.parametrize(("seconds", "named"), [(5.0, False), (5.1, True)])
def test_a_time_without_attempts_is_remarked(seconds, named):
    late = [*IN_TURN[:3], attempt(OTHER, 2, 30 + seconds)]
    text = (
        f"units/{OTHER}/repeat-2.attempt-1: nothing is recorded for the 5 s before it: the run was continued with RUN=, "
        "or attempts were removed"
    )
    assert remarked(late) == ([text] if named else [])
    assert remarked(list(reversed(late))) == ([text] if named else [])
    for status in ("failed", "interrupted"):
        stopped = [*IN_TURN[:2], IN_TURN[2] | {"status": status}, attempt(CASE, 2, 35, number=2), attempt(OTHER, 2, 45)]
        assert remarked(stopped) == [], "a run may be continued after that"


def test_before_the_first_attempt_only_a_cluster_takes_time():
    late = [each | {"started": each["started"] + 60} for each in IN_TURN]
    assert len(remarked(late)) == 1 and f"{IN_TURN[0]['folder']}: nothing is recorded for the 60 s" in remarked(late)[0]
    assert remarked(late, cluster={"hosts": ["a"]}) == []


def test_a_long_attempt_beside_short_ones_leaves_no_time_without_attempts():
    long = [attempt(CASE, 1, 0, 100), attempt(OTHER, 1, 1, 5), attempt(CASE, 2, 95, 10), attempt(OTHER, 2, 105)]
    assert remarked(long) == []
    at_once = [attempt(CASE, 1, 0), attempt(OTHER, 1, 1, 9, status="failed")]
    later = [attempt(OTHER, 1, 20, number=2), attempt(CASE, 2, 30), attempt(OTHER, 2, 40)]
    assert remarked([*at_once, *later]) == [], "one of the two that ended last had failed"


def test_repeats_that_were_not_run_are_remarked_unless_a_rule_stopped_them():
    text = f"1 unit of 2 with fewer repeats than the 2 planned, which no rule stopped: {OTHER}"
    assert remarked(IN_TURN[:3]) == [text]
    assert remarked([*IN_TURN[:3], IN_TURN[3] | {"status": "failed"}]) == [text]
    assert remarked([IN_TURN[0], IN_TURN[1] | {"enough": "decided"}, IN_TURN[2]]) == []
    assert remarked([IN_TURN[0], IN_TURN[1] | {"enough": None}, IN_TURN[2]]) == [text]


def test_a_remark_names_five_units(monkeypatch):
    many = make_plan(load_catalogue().select("gpt", None), 64, Wanted(scale="published", repeats=1))
    (text,) = remarked([], many)
    assert text.endswith(", …") and text.count(", ") == 6
    five = Plan(**{**vars(many), "units": many.units[:5]})
    assert not remarked([], five)[0].endswith("…")
