"""Everything on one machine: which steps, with which settings, and what is kept and told of those that fail."""

import pytest

from repro.cli.host import TASKS, Step, carry_out, steps
from repro.published.cases import load_catalogue

CATALOGUE = load_catalogue()


def test_every_model_is_measured_checked_and_profiled_alone():
    told = [str(step) for step in steps(CATALOGUE.cases)]
    assert told[0] == "make preflight ONLY=kernels,allreduce"
    assert {f"make bench MODEL={model}" for model in ("gpt", "bert", "resnet50")} < set(told)
    assert "make profile MODEL=gpt CASES=DP_1x1x1_2_1536x16" in told
    assert "make profile MODEL=bert CASES=bert_1n1g_bs96" in told
    assert "make learn MODEL=bert" not in told, "there is no goal for BERT"
    order = [told.index(next(each for each in told if each.startswith(f"make {task}"))) for task in TASKS]
    assert order == sorted(order)


def test_chosen_steps_of_one_model():
    gpt = CATALOGUE.select("gpt", "MP_1x8x1*")
    assert [str(step) for step in steps(gpt, ("profile", "curves"))] == ["make curves MODEL=gpt"], "none is on one GPU"


@pytest.mark.parametrize(
    ("task", "kept"), [("bench", {"CASES", "FIT", "REPEATS"}), ("curves", {"AT_ONCE"}), ("profile", set())]
)
def test_a_step_sees_what_concerns_it(task, kept):
    outer = {
        "MAKEFLAGS": " -- MODEL=all",
        "MODEL": "all",
        "HOST": "x",
        "STEPS": "bench",
        "PATH": "/bin",
        "CASES": "a",
        "FIT": "4",
        "REPEATS": "3",
        "AT_ONCE": "2",
    }
    environment = Step(task, {"MODEL": "gpt"}).environment(outer)
    assert environment["MODEL"] == "gpt" and environment["PATH"] == "/bin"
    assert environment.keys() == {"MODEL", "PATH"} | kept


def test_what_a_step_leaves_is_kept_even_if_it_failed(tmp_path):
    (tmp_path / "runs" / "earlier").mkdir(parents=True)
    kept = []

    def call(step):
        (tmp_path / "runs" / step.task).mkdir()
        return step.task == "curves"

    def keep(name):
        kept.append(name)
        return name == "learn"

    planned = [Step("bench", {"MODEL": "gpt"}), Step("curves"), Step("learn")]
    assert carry_out(planned, tmp_path / "runs", call, keep) == ["make curves", "make keep RUN=learn"]
    assert kept == ["bench", "curves", "learn"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "HOST=<name>"),
        ({"HOST": "../x"}, "HOST=../x"),
        ({"HOST": "x", "STEPS": "bench,nothing"}, "no step nothing"),
        ({"HOST": "x", "MODEL": "nope"}, "nope"),
    ],
)
def test_bad_settings_are_refused_before_anything_starts(task, settings, said):
    done = task("reproduce", **settings)
    assert done.returncode == 2 and said in done.stderr


def test_without_a_gpu_there_is_nothing_to_do(task, monkeypatch):
    monkeypatch.setenv("PATH", "")
    done = task("reproduce", HOST="x")
    assert done.returncode == 2 and "no GPU here" in done.stderr
