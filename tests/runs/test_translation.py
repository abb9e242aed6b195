"""What runs recorded before units said what they are is read as if they had said it."""

import pytest

from repro.planning.plan import PUBLISHED, Plan
from repro.published.cases import load_catalogue
from repro.runs import translation
from repro.runs.record import Run
from tests.support.paths import ROOT

CATALOGUE = load_catalogue()
KEPT = sorted((ROOT / "reports" / "reproduced").glob("*/runs/2*.zip"))


def unit(name, model="bert", letter="C", **fields):
    recorded = {"name": name, "model": model, "framework": "oneflow", "program": "published", **fields}
    recorded["config"] = {"program": "published", "log_generation": letter}
    return recorded


def identity(recorded):
    (read,) = translation.description({"plan": {"scale": "published", "kind": "bench", "units": [recorded]}})["plan"][
        "units"
    ]
    return read["report"], read["case"], read["variant"]


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
        plan = Plan.from_json(Run.find(str(path)).description()["plan"])
        for each in plan.units:
            assert each.report in reports, (path.name, each.name)
            if each.case:
                assert (each.case.report, each.case.model) == (each.report, each.model)
            if each.baseline_of is None and plan.scale == PUBLISHED and plan.kind != "curves":
                assert each.case, (path.name, each.name)
                seen += 1
            assert each.baseline_of is None or each.name == f"{each.baseline_of}.{each.variant}"
    assert seen
