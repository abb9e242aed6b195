"""What runs recorded before units said what they are is read as if they had said it."""

import pytest

from repro.published.cases import load_catalogue
from repro.runs import translation
from repro.runs.plan import PUBLISHED
from repro.runs.record import Run
from tests.support.paths import ROOT

CATALOGUE = load_catalogue()
KEPT = sorted((ROOT / "reports" / "reproduced").glob("*/runs/2*.zip"))


def unit(name, model="bert", letter="C", **fields):
    recorded = {"name": name, "model": model, "framework": "oneflow", "program": "published", **fields}
    recorded["config"] = {"program": "published", "log_generation": letter}
    return recorded


def read_as(recorded):
    """A recorded unit in the terms of today."""
    record = translation.description({"plan": {"scale": "published", "kind": "bench", "units": [recorded]}})
    (unit,) = record["plan"]["units"]
    return unit


def identity(recorded):
    return tuple(read_as(recorded)[name] for name in ("report", "case", "variant"))


@pytest.mark.parametrize(
    ("scale", "kind", "today"),
    [
        ("published", "bench", "published"),
        ("smoke", "bench", "smoke"),
        ("curves", "curves", "reduced"),
        ("learn", "convergence", "reduced"),
        ("profile", "profile", "published"),
    ],
)
def test_a_record_from_when_the_scale_was_also_the_kind_is_read(scale, kind, today):
    """As `make learn` and the others wrote it until the kind of a run had a name of its own."""
    plan = translation.description({"plan": {"scale": scale, "units": []}})["plan"]
    assert (plan["kind"], plan["scale"]) == (kind, today)
    assert translation.description({"plan": dict(plan)})["plan"] == plan


def test_a_record_with_harmless_changes_and_corpora_is_read():
    unit = {"name": "gpt_fp32_1x1x1_rounding", "role": "harmless", "config": {}}
    record = translation.description({"corpora": ["a text"], "plan": {"scale": "curves", "units": [unit]}})
    assert [unit["role"] for unit in record["plan"]["units"]] == ["control"]
    assert record["datasets"] == ["a text"] and "corpora" not in record


@pytest.mark.parametrize("framework", ["oneflow", "pytorch"])
def test_a_record_from_before_there_were_programs_is_of_the_tuned_one(framework):
    read = read_as({"name": "bert_1n1g_bs96", "program": framework, "config": {"model": "bert"}})
    assert (read["framework"], read["program"], read["config"]["program"]) == (framework, "tuned", "tuned")


def test_a_record_that_names_the_program_is_read_as_it_is():
    unit = {"name": "a", "framework": "oneflow", "program": "published", "config": {"program": "published"}}
    unit |= {"report": "bert-2020-08-22", "case": "bert_1n1g_bs96", "variant": None}
    assert read_as(dict(unit)) == unit


@pytest.mark.parametrize(
    ("recorded", "expected"),
    [
        (unit("bert_1n1g_bs96"), ("bert-2020-08-22", "bert_1n1g_bs96", None)),
        (unit("bert_1n1g_bs96.tuned", program="tuned"), ("bert-2020-08-22", "bert_1n1g_bs96", None)),
        (
            unit("bert_1n1g_bs96.amp", derived_from=["bert_1n1g_bs96"]),
            ("bert-2020-08-22", "bert_1n1g_bs96", None),
        ),
        (
            unit("bert_1n1g_bs96.pytorch-tf32", baseline_of="bert_1n1g_bs96"),
            ("bert-2020-08-22", "", "pytorch-tf32"),
        ),
        (unit("DP_1x1x1_2_1536x16", "gpt", "E"), ("gpt-3d-2021-05", "DP_1x1x1_2_1536x16", None)),
        (unit("x", "a model that is not here", "E"), ("", "x", None)),
    ],
)
def test_a_unit_that_has_only_a_name_is_what_it_was(recorded, expected):
    assert identity(recorded) == expected


def test_a_unit_that_says_what_it_is_is_not_judged_by_its_name():
    said = {"report": "r", "case": "c", "variant": None}
    assert identity(unit("bert_1n1g_bs96.tuned", **said)) == ("r", "c", None)


def test_an_attempt_has_its_number_from_its_folder():
    assert translation.attempt({"folder": "units/a/repeat-1.attempt-12"})["attempt"] == 12
    assert translation.attempt({"folder": "units/a/repeat-1.attempt-12", "attempt": 3})["attempt"] == 3
    assert "attempt" not in translation.attempt({"folder": "units/a"})


def test_kept_runs_name_the_reports_and_cases_of_the_catalogue():
    reports, seen = {each.id for each in CATALOGUE.reports}, 0
    for path in KEPT:
        plan = Run.find(str(path)).description().plan
        for each in plan.units:
            assert each.report in reports, (path.name, each.name)
            if each.case:
                assert (each.case.report, each.case.model) == (each.report, each.model)
            if each.baseline_of is None and plan.scale == PUBLISHED and plan.kind != "curves":
                assert each.case, (path.name, each.name)
                seen += 1
            assert each.baseline_of is None or each.name == f"{each.baseline_of}.{each.variant}"
    assert seen
