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


@pytest.mark.parametrize("report", PROGRAMS)
def test_a_published_program_has_the_operators_of_its_source(published, report):
    assert published[report]["parts"] == expected(report)


@pytest.mark.parametrize("report", [report for report in PROGRAMS if report.startswith("gpt")])
def test_gradients_are_looked_at_one_by_one(published, report):
    given = CENSUS[report]
    parameters = given["parameters"] + 2 * given["layer_parameters"]
    assert published[report]["arguments"] == {
        "multi_count_not_finite": parameters,
        "multi_reduce_sum_pow_abs": parameters,
    }


def test_each_gradient_is_summed_up_over_the_ranks_once(census):
    reports = [report for report in PROGRAMS if "transfers" in CENSUS[report]]
    found = census([task(report, (2, 1, 1)) for report in reports], ranks=2)
    for report, job in zip(reports, found, strict=True):
        assert {name: job["transfers"][name] for name in job["transfers"] if name.startswith("P")} == dict(
            CENSUS[report]["transfers"]
        )


@pytest.mark.parametrize(
    ("switch", "report", "changes"),
    [
        ("blocks", "gpt-3d-2021-05", {"shape": LONG}),
        ("parts", "gpt-3d-2021-05", {}),
        ("positions", "gpt-3d-2021-05", {}),
        ("spare_recomputation", "gpt-3d-2021-05", {}),
    ],
)
def test_a_tuned_part_fails_the_census(census, switch, report, changes):
    (found,) = census([task(report, switch=switch, **changes)])
    assert found["parts"] != expected(report)


@pytest.mark.parametrize("report", ["gpt2-small-2020-12", "gpt-3d-2021-05"])
def test_an_overflow_told_from_the_norm_fails_the_census(census, published, report):
    (found,) = census([task(report, switch="check_the_norm")])
    assert found["arguments"] != published[report]["arguments"]
