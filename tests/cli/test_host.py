"""Everything on one machine: which steps, with which variables, and what is kept and named of those that fail."""

import pytest

from repro.bootstrap import needs_of
from repro.cli.host import STEPS, Step, carry_out, options_of, plan_steps
from repro.published.cases import load_catalogue

CATALOGUE = load_catalogue()


def test_every_model_is_measured_checked_and_profiled_alone():
    commands = [str(step) for step in plan_steps(CATALOGUE.cases)]
    assert commands[0] == "make preflight ONLY=kernels,allreduce"
    assert {f"make bench MODEL={model}" for model in ("gpt", "bert", "resnet50")} < set(commands)
    assert "make profile MODEL=gpt CASES=DP_1x1x1_2_1536x16" in commands
    assert "make profile MODEL=bert CASES=bert_1n1g_bs96" in commands
    assert "make convergence MODEL=bert" not in commands, "there is no goal for BERT"
    order = [commands.index(next(each for each in commands if each.startswith(f"make {task}"))) for task in STEPS]
    assert order == sorted(order)


def test_chosen_steps_of_one_model():
    gpt = CATALOGUE.select("gpt", "MP_1x8x1*")
    assert [str(step) for step in plan_steps(gpt, ("profile", "curves"))] == ["make curves MODEL=gpt"], (
        "none is on one GPU"
    )


@pytest.mark.parametrize(
    ("task", "kept"),
    [
        ("bench", {"CASES", "MAX_GPUS", "REPEATS", "STACK", "MODEL"}),
        ("curves", {"JOBS", "STACK", "MODEL"}),
        ("convergence", {"JOBS", "STACK", "MODEL"}),
        ("profile", {"STACK", "MODEL"}),
        ("preflight", {"STACK"}),
    ],
)
def test_a_step_sees_what_concerns_it(task, kept):
    outer = dict.fromkeys(("HOST", "STEPS", "CASES", "MAX_GPUS", "REPEATS", "JOBS", "STACK", "MODEL"), "x")
    given = Step(task, {"ONLY": "disk"}).given(outer, options_of(task))
    assert given["ONLY"] == "disk"
    assert given.keys() == {"ONLY"} | kept


def test_what_the_whole_needs_is_what_its_parts_need():
    needed = [pair for name in (*STEPS, "archive", "host-reports") for pair in needs_of(name, {})]
    whole = dict(needs_of("reproduce", {}))
    assert all(groups <= whole[environment] for environment, groups in needed)


def test_what_a_step_leaves_is_kept_even_if_it_failed(tmp_path):
    (tmp_path / "runs" / "earlier").mkdir(parents=True)
    kept = []

    def call(step):
        (tmp_path / "runs" / step.task).mkdir()
        return step.task == "curves"

    def keep(name):
        kept.append(name)
        return name == "convergence"

    planned = [Step("bench", {"MODEL": "gpt"}), Step("curves"), Step("convergence")]
    assert carry_out(planned, tmp_path / "runs", call, keep) == ["make curves", "make archive RUN=convergence"]
    assert kept == ["bench", "curves", "convergence"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "HOST=<name>"),
        ({"HOST": "../x"}, "HOST=../x"),
        ({"HOST": "x", "STEPS": "bench,nothing"}, "no step nothing"),
        ({"HOST": "x", "MODEL": "nope"}, "nope"),
    ],
)
def test_bad_settings_are_refused_before_anything_starts(task, settings, message):
    done = task("reproduce", **settings)
    assert done.returncode == 2 and message in done.stderr


def test_without_a_gpu_there_is_nothing_to_do(task, monkeypatch):
    monkeypatch.setenv("PATH", "")
    done = task("reproduce", HOST="x")
    assert done.returncode == 2 and "no GPU here" in done.stderr
