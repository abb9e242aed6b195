"""The published programs consist of the published operators, in every kind of layout and with the published readers.

Each job has what its source and the declared differences of oneflow 0.8.0 give together, so that any other fails.
"""

import json
import tomllib

import pytest

from repro.published.census import FILE, differences, operators, parameter_tensors, summed, times
from repro.published.deviations import deviations
from repro.published.trainer_config import TrainerConfig
from tests.trainers.conftest import configuration

CHANGES = ["hide_future", "pool_without_places", "tie_tables", "sum_squares"]
"""The only changes of a job before it is compiled, for what oneflow 0.8.0's Python functions cannot ask for."""
OF_EACH_GRADIENT = {"multi_count_not_finite", "multi_square_sum", "square_sum"}
"""Operators that take every gradient, one by one or all together."""
CLIPPED = {"optimizer": {"clip_norm": 1.0}}
AMP = {"precision": "amp", "dropout": 0.1}
PROGRAMS = {
    "resnet50-2020-08-08": ("resnet50", {"log_generation": "A"}),
    "resnet50-2020-08-21": ("resnet50", {"log_generation": "B"}),
    "bert-2020-08-22": ("bert", {"dropout": 0.1, "shape": {"layers": 2}, **CLIPPED}),
    "gpt2-small-2020-12": ("gpt", {"log_generation": "D", "shape": {"vocab_size": 512}, **AMP, **CLIPPED}),
    "gpt-3d-2021-05": ("gpt", {"log_generation": "E", "activation_checkpointing": True, **AMP, **CLIPPED}),
}
READ = {
    "resnet50-2020-08-08": {"kind": "ofrecord", "standin": "images", "parts": 4},
    "resnet50-2020-08-21": {"kind": "ofrecord", "standin": "images", "parts": 4},
    "bert-2020-08-22": {"kind": "ofrecord", "standin": "features", "parts": 4},
    "gpt2-small-2020-12": {"kind": "text", "standin": "text"},
    "gpt-3d-2021-05": {"kind": "megatron", "standin": "tokens"},
}
STEPS = {"accumulation_steps": 2}
JOBS = {
    **{f"{report} 1x1x1": (report, (1, 1, 1), {}) for report in PROGRAMS if not report.startswith("resnet50")},
    **{f"{report} 2x1x1": (report, (2, 1, 1), {}) for report in PROGRAMS},
    "sharded optimizer 2x1x1": ("gpt2-small-2020-12", (2, 1, 1), {"optimizer_sharding": 1}),
    "tensor 1x2x1": ("gpt-3d-2021-05", (1, 2, 1), {}),
    "pipeline 1x1x2": ("gpt-3d-2021-05", (1, 1, 2), STEPS),
    "data and tensor 2x2x1": ("gpt-3d-2021-05", (2, 2, 1), {}),
    "data and pipeline 2x1x2": ("gpt-3d-2021-05", (2, 1, 2), STEPS),
    "tensor and pipeline 1x2x2": ("gpt-3d-2021-05", (1, 2, 2), STEPS),
}
"""Every kind of layout that was published, by name: report, layout, and what of the configuration differs.

But for data, tensor and pipeline parallelism together: eight ranks would take as long as all of these.
"""
LONG = {"seq_length": 1024, "layers": 2}
"""Long enough for attention in blocks."""
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
TOGETHER = " ".join(name for name in REWRITES if name != "spare_recomputation")
"""Those that are made in one job."""
SWITCHES = {TOGETHER: {}, "spare_recomputation": {}, "blocks": {"shape": LONG}, "parts": {}, "positions": {}}
"""What of the tuned program the probe puts into the GPT of 2021, and what of the configuration differs for it."""


def config_of(report: str, layout: tuple, changes: dict, folder: str) -> dict:
    model, settings = PROGRAMS[report]
    data = {**READ[report], "scale": "small", "folder": folder}
    return {**configuration(model, layout, **{**settings, **changes}, data=data), "output": "."}


@pytest.fixture(scope="module")
def census(probe, tmp_path_factory):
    """Callable that gives a job's report and configuration, and its census, by its name.

    Jobs of one number of ranks are built together.
    """
    folder, built = str(tmp_path_factory.mktemp("standins")), {}
    tasks = {name: (config_of(*job, folder), "") for name, job in JOBS.items()}
    tasks |= {name: (config_of("gpt-3d-2021-05", (1, 1, 1), more, folder), name) for name, more in SWITCHES.items()}

    def give(name: str) -> tuple[tuple[str, dict], dict]:
        ranks = ranks_of(tasks[name][0])
        if ranks not in built:
            together = {other: task for other, task in tasks.items() if ranks_of(task[0]) == ranks}
            asked = [{"config": config, "switch": switch} for config, switch in together.values()]
            judged = json.loads(probe("census_probe.py", json.dumps(asked), ranks=ranks)[-1])
            built[ranks] = dict(zip(together, judged, strict=True))
        report = JOBS[name][0] if name in JOBS else "gpt-3d-2021-05"
        return (report, TrainerConfig.from_json(tasks[name][0])), built[ranks][name]

    return give


def ranks_of(config: dict) -> int:
    layout = config["layout"]
    return layout["data"] * layout["tensor"] * layout["pipeline"]


def seen(job: dict) -> dict:
    """All that is compared of a job."""
    return {key: job[key] for key in ("parts", "transfers", "gradients taken", "changes")}


def declared(report: str, config: TrainerConfig, *without: str) -> dict:
    """What a published program's job must be; without the differences of some deviations."""
    parts, counts, layers = (
        operators(report, config, *without),
        summed(report, config, without),
        config.shape.get("layers", 0),
    )
    tensors = parameter_tensors(report, layers)
    transfers = (
        times(counts["each_transfers"], tensors) + times(counts["layer_transfers"], layers) + counts["transfers"]
    )
    taking = OF_EACH_GRADIENT & parts["update"].keys()
    return {
        "parts": parts,
        "transfers": dict(sorted((+transfers).items())),
        "gradients taken": {name: tensors + counts["gradients_taken"][name] for name in taking},
        "changes": CHANGES,
    }


def differences_of(report: str, config: TrainerConfig) -> set[str]:
    return {entry["deviation"] for entry in differences(report, config)}


@pytest.mark.parametrize("name", JOBS)
def test_a_published_program_has_the_operators_of_its_source_and_the_declared_differences(census, name):
    program, job = census(name)
    assert seen(job) == declared(*program)


@pytest.mark.parametrize("name", JOBS)
def test_an_operator_more_or_less_fails_the_census(census, name):
    program, job = census(name)
    assert job["with one more"] != operators(*program) != job["with one less"]


@pytest.mark.parametrize("name", JOBS)
def test_a_difference_that_is_not_declared_fails_the_census(census, name):
    program, job = census(name)
    for deviation in differences_of(*program):
        assert seen(job) != declared(*program, deviation), deviation


def test_every_difference_of_the_census_is_of_a_declared_deviation_and_is_seen_in_some_job():
    programs = {
        report: entry for report, entry in tomllib.loads(FILE.read_text(encoding="utf-8")).items() if report in PROGRAMS
    }
    named = {(report, entry["deviation"]) for report in programs for entry in programs[report]["differences"]}
    by_id = {deviation.id: deviation for deviation in deviations()}
    assert all(by_id[deviation].of(report) for report, deviation in named)
    applying = {
        (job[0], deviation)
        for job in JOBS.values()
        for deviation in differences_of(job[0], TrainerConfig.from_json(config_of(*job, ".")))
    }
    assert named == applying


def test_the_source_has_what_0_8_0_changes():
    """Figures from the reading of the published sources, by deviation."""

    def source(name: str) -> dict:
        config = TrainerConfig.from_json(config_of(*JOBS[name], "."))
        return operators(JOBS[name][0], config, *(deviation.id for deviation in deviations()))

    split = source("tensor 1x2x1")["outside"]
    assert split["sparse_cross_entropy_ms"] == 1 and split["broadcast_sub"] == 1 and not {"log", "nll"} & set(split)
    small = source("gpt2-small-2020-12 1x1x1")
    assert small["layers gradient"]["add_n"] == 2 * 3, "the slices' gradients, and two that 0.8.0 fuses"
    assert {"identity_n": 1, "amp_white_identity": 1}.items() <= small["outside"].items()
    assert "hierarchical_parallel_cast" not in source("sharded optimizer 2x1x1")["update"]
    assert source("tensor 1x2x1")["outside"]["flatten"] == 2
    assert source("pipeline 1x1x2")["micro-steps"]["identity_buffer"] == 13


@pytest.mark.parametrize("switch", [TOGETHER, "spare_recomputation"])
def test_the_census_names_each_rewrite(census, switch):
    """So that it fails, also by one that finds nothing to change in this job, as most do on one rank and without AMP's casts."""
    program, job = census(switch)
    assert seen(job)["changes"] == declared(*program)["changes"] + switch.split()


def test_a_rewrite_that_finds_something_is_seen_in_the_operators(census):
    program, job = census("spare_recomputation")
    assert job["parts"] != operators(*program)


@pytest.mark.parametrize("name", ["blocks", "parts", "positions"])
def test_a_tuned_part_of_the_model_fails_the_census(census, name):
    program, job = census(name)
    assert job["parts"] != operators(*program)
