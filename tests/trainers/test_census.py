"""The published programs consist of the published operators: their jobs have the census that their sources give."""

import json
import tomllib
from collections import Counter

import pytest

from tests.support.paths import ROOT
from tests.trainers.conftest import configuration

CENSUS = tomllib.loads((ROOT / "repro" / "data" / "census.toml").read_text(encoding="utf-8"))
AMP = {"precision": "amp", "dropout": 0.1}
PROGRAMS = {
    "resnet50-2020-08-08": ("resnet50", {"log_generation": "A"}),
    "resnet50-2020-08-21": ("resnet50", {"log_generation": "B"}),
    "bert-2020-08-22": ("bert", {"dropout": 0.1, "shape": {"layers": 2}}),
    "gpt2-small-2020-12": ("gpt", {"log_generation": "D", **AMP}),
    "gpt-3d-2021-05": ("gpt", {"log_generation": "E", "activation_checkpointing": True, **AMP}),
}
LONG = {"seq_length": 1024, "layers": 2}
"""Long enough for attention in blocks."""
LOOKED_AT = ("multi_count_not_finite", "multi_square_sum", "square_sum")
"""Operators that take all gradients, or in BERT each by itself."""


def task(report: str, layout=(1, 1, 1), switch: str = "", **changes) -> dict:
    model, settings = PROGRAMS[report]
    return {"config": {**configuration(model, layout, **{**settings, **changes}), "output": "."}, "switch": switch}


@pytest.fixture(scope="module")
def census(probe):
    """Callable that gives the census of the job of each task, all of one number of ranks."""

    def run(tasks: list, ranks: int = 1) -> list[dict]:
        return json.loads(probe("census_probe.py", json.dumps(tasks), ranks=ranks)[-1])

    return run


@pytest.fixture(scope="module")
def published(census):
    """The census of each published program on one rank."""
    return dict(zip(PROGRAMS, census([task(report) for report in PROGRAMS]), strict=True))


def gradient(operators: dict) -> Counter:
    """What goes back through operators that go forward."""
    found = Counter()
    for name, count in operators.items():
        for kind, times in CENSUS["gradient"].get(name, {}).items():
            found[kind] += count * times
    return found


def expected(report: str, layers: int = 2) -> dict[str, dict[str, int]]:
    """Operators by part and type, as the published source has them."""
    given = CENSUS[report]
    layer, outside = Counter(given.get("layer", {})), Counter(given["outside"])
    count = given["parameters"] + layers * given.get("layer_parameters", 0)
    parts = {
        "layers": times(layer, layers),
        "layers gradient": times(added(gradient(layer), given.get("layer_gradient", {})), layers),
        "outside": outside,
        "outside gradient": added(gradient(outside), given["outside_gradient"]),
        "update": added(times(Counter(given["each"]), count), given["once"]),
    }
    if "recomputed" in given:
        parts["recomputed"] = times(added(layer, given["recomputed"]), layers)
    return {part: dict(sorted(counts.items())) for part, counts in sorted(parts.items()) if counts}


def times(counts: Counter, number: int) -> Counter:
    return Counter({name: count * number for name, count in counts.items()})


def added(counts: Counter, more: dict) -> Counter:
    found = Counter(counts)
    found.update(more)
    return Counter({name: count for name, count in found.items() if count})


REWRITES = (
    "join_gradients",
    "skip_transfers",
    "cast_once",
    "spare_recomputation",
    "find_maxima_again",
    "check_the_norm",
    "skip_copies",
    "take_turns",
)
"""What the tuned program does to a job besides."""


def whole(found: dict) -> dict:
    """All that is compared of a job; `found` without what depends on the ranks."""
    return {key: found[key] for key in ("parts", "arguments", "changes")}


def census_of(report: str) -> dict:
    """What a published program's job must be."""
    given = CENSUS[report]
    parameters = given["parameters"] + 2 * given.get("layer_parameters", 0)
    each = {name: parameters for name in LOOKED_AT if name in {**given["once"], **given["each"]}}
    return {"parts": expected(report), "arguments": each, "changes": CENSUS["changes"]}


@pytest.mark.parametrize("report", PROGRAMS)
def test_a_published_program_has_the_operators_of_its_source(published, report):
    assert whole(published[report]) == census_of(report)


def test_each_gradient_is_summed_up_over_the_ranks_once(census):
    reports = [report for report in PROGRAMS if "transfers" in CENSUS[report]]
    found = census([task(report, (2, 1, 1)) for report in reports], ranks=2)
    for report, job in zip(reports, found, strict=True):
        assert {name: job["transfers"][name] for name in job["transfers"] if name.startswith("P")} == dict(
            CENSUS[report]["transfers"]
        )


@pytest.mark.parametrize("switch", REWRITES)
def test_a_rewrite_fails_the_census(census, switch):
    """Also one that finds nothing to change in this job, as most do on one rank and without the casts of AMP."""
    (found,) = census([task("gpt-3d-2021-05", switch=switch)])
    assert whole(found) != census_of("gpt-3d-2021-05")


@pytest.mark.parametrize(
    ("switch", "report"), [("spare_recomputation", "gpt-3d-2021-05"), ("check_the_norm", "gpt2-small-2020-12")]
)
def test_a_rewrite_that_finds_something_is_seen_in_the_operators(census, switch, report):
    (found,) = census([task(report, switch=switch)])
    assert {**whole(found), "changes": CENSUS["changes"]} != census_of(report)


@pytest.mark.parametrize(("switch", "changes"), [("blocks", {"shape": LONG}), ("parts", {}), ("positions", {})])
def test_a_tuned_part_of_the_model_fails_the_census(census, switch, changes):
    (found,) = census([task("gpt-3d-2021-05", switch=switch, **changes)])
    assert found["parts"] != expected("gpt-3d-2021-05")
