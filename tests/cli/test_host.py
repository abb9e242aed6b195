"""Everything on one machine: which steps, with which variables, and what is kept and named of those that fail."""

import os
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest

from repro.bootstrap import needs_of
from repro.cli.host import (
    STEPS,
    Journal,
    Step,
    carry_out,
    options_of,
    plan_cluster_steps,
    plan_steps,
    with_runnable,
)
from repro.cli.report import _verify_kept
from repro.cli.session import chosen_cases
from repro.cli.settings import Exit, OptionError
from repro.planning.baselines import OF_ERA
from repro.published.cases import load_catalogue
from repro.utils.errors import PlanError
from tests.support.clusters import cpu_inventory
from tests.support.paths import ROOT
from tests.support.patience import patience
from tests.support.processes import heed_interrupts
from tests.support.programs import V100, lay_gpu

CATALOGUE = load_catalogue()


def test_every_model_is_measured_checked_and_profiled_alone():
    commands = [str(step) for step in plan_steps(CATALOGUE.cases, gpus=8)]
    assert commands[:2] == ["make rehearse MAX_RANKS=8", "make preflight ONLY=kernels,allreduce"]
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


def test_each_bench_has_the_cases_of_its_model():
    cases = "DP_1x1x1_2_1536x16,bert_1n1g_*"
    steps = plan_steps(CATALOGUE.select(None, cases), ("rehearse", "bench"), narrowed=True)
    rehearsal, *benches = [step.given({"CASES": cases, "MODEL": "all"}, options_of(step.task)) for step in steps]
    assert rehearsal["CASES"] == cases, "of all models"
    chosen = {bench["MODEL"]: chosen_cases(bench["MODEL"], bench["CASES"]) for bench in benches}
    assert [case.name for case in chosen["gpt"]] == ["DP_1x1x1_2_1536x16"]
    assert {case.model for case in chosen["bert"]} == {"bert"}


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


def given(names, *texts, gpus=1, named=True):
    """The baselines of each bench and profile of `make reproduce`, by task and model; None where its command has none."""
    outer = {"BASELINES": ",".join(names)} if named else {}
    outer |= {"BASELINE_PYTHON": "x"} | dict(text.split("=") for text in texts)
    cases = CATALOGUE.select(None, outer.get("CASES"))
    steps = plan_steps(cases, gpus=gpus, narrowed="CASES" in outer)
    planned = [Step(step.task, step.given(outer, options_of(step.task))) for step in steps]
    steps = [step for step in with_runnable(planned, names, gpus, named) if step.task in ("bench", "profile")]
    assert all("BASELINE_PYTHON" in step.variables for step in steps), "it may have OneFlow's cuDNN and CUPTI"
    return {(step.task, step.variables["MODEL"]): step.variables.get("BASELINES") for step in steps}


def test_a_step_has_the_baselines_that_its_model_can_run():
    found = given(("pytorch", "megatron"))
    for task in ("bench", "profile"):
        assert found[task, "gpt"] == "pytorch,megatron" and found[task, "resnet50"] == found[task, "bert"] == "pytorch"
    assert given(("megatron",))["bench", "resnet50"] == given(("megatron",))["profile", "resnet50"] == "none"
    assert given(("megatron", "pytorch-channels-last"))["bench", "resnet50"] == "pytorch-channels-last"


def test_a_step_has_the_baselines_that_its_cases_can_run_on_the_gpus_that_are_here():
    assert given(("pytorch-tf32",))["bench", "gpt"] == "none", "its cases are in AMP"
    assert given(("pytorch-tf32",), "PRECISION=tf32")["bench", "gpt"] == "pytorch-tf32"
    tensor_parallel = "CASES=MP_1x8x1_16_1536x16"
    assert given(("pytorch",), tensor_parallel, "MAX_GPUS=1")["bench", "gpt"] == "pytorch", "the layout is shrunk"
    assert given(("pytorch",), tensor_parallel)["bench", "gpt"] == "pytorch", "no case fits, which the bench says"


def test_a_step_that_no_baseline_by_default_can_run_says_that_it_has_none():
    era = given(OF_ERA, named=False)
    assert era["bench", "resnet50"] == era["profile", "resnet50"] == "none" and era["bench", "bert"] is None
    assert given((), "BASELINES=none", named=False)["bench", "bert"] == "none", "as it was asked for"
    with pytest.raises(
        PlanError, match="by default here, pytorch-unfused, can run none of these cases: model: resnet50"
    ):
        given(OF_ERA, "CASES=resnet50_*", named=False)


@pytest.mark.parametrize(
    ("names", "cases", "message"),
    [
        (("pytorch", "megatron"), "bert_1n1g_bs96", "BASELINES=megatron can run none of these cases: .*not bert"),
        (("pytorch",), "MP_1x8x1_16_1536x16", "BASELINES=pytorch can run none of these cases: layout.tensor"),
    ],
)
def test_a_baseline_that_no_step_can_run_is_refused(names, cases, message):
    with pytest.raises(PlanError, match=message):
        given(names, f"CASES={cases}", gpus=8)


def test_what_the_whole_needs_is_what_its_parts_need():
    needed = [pair for name in (*STEPS, "archive", "host-reports") for pair in needs_of(name, {})]
    whole = dict(needs_of("reproduce", {}))
    assert all(groups <= whole[environment] for environment, groups in needed)


class Steps:
    """Steps that leave a run each, and end with a status from a list of their task's."""

    def __init__(self, folder, **statuses):
        self.runs, self.statuses, self.called, self.kept = folder / "runs", statuses, [], []
        (self.runs / "earlier").mkdir(parents=True, exist_ok=True)

    def call(self, step):
        self.called.append(str(step))
        run = self.runs / step.variables.get("RUN", f"{step.task}-1")
        run.mkdir(exist_ok=True)
        (run / "run.json").touch()
        return self.statuses.get(step.task, [0]).pop(0) if self.statuses.get(step.task) else 0

    def keep(self, name):
        self.kept.append(name)
        return name == "convergence-1"

    def carry_out(self, *steps):
        return carry_out(list(steps), self.runs, self.call, self.keep, Journal(self.runs / "reproduce-x.json"))


PLANNED = (Step("bench", {"MODEL": "gpt", "REPEATS": "7"}), Step("curves"))


def test_what_has_ended_is_kept_and_not_done_again(tmp_path):
    steps = Steps(tmp_path)
    assert steps.carry_out(*PLANNED) == [] == steps.carry_out(*PLANNED)
    assert steps.called == ["make bench MODEL=gpt REPEATS=7", "make curves"]
    assert steps.kept == ["bench-1", "curves-1"]
    assert steps.carry_out(Step("curves", {"PROGRAM": "tuned"})) == [], "another setting makes another step"
    assert steps.called[2:] == ["make curves PROGRAM=tuned"]


def test_what_failed_is_tried_again_before_it_is_kept(tmp_path):
    steps = Steps(tmp_path, bench=[1, 1])
    assert steps.carry_out(*PLANNED) == ["make bench MODEL=gpt REPEATS=7"]
    assert steps.kept == ["curves-1"], "a failure stops no other step, and a kept run cannot be gone on with"
    assert steps.carry_out(*PLANNED) == ["make bench MODEL=gpt REPEATS=7"]
    assert steps.called[2:] == ["make bench MODEL=gpt RUN=bench-1"]
    assert steps.kept == ["curves-1", "bench-1"]
    assert steps.carry_out(*PLANNED) == ["make bench MODEL=gpt REPEATS=7"], "it is still named"
    assert len(steps.called) == 3


def test_what_left_no_run_is_tried_until_it_succeeds(tmp_path):
    steps = Steps(tmp_path, bench=[1, 1, 1, 0])
    called = steps.call

    def call(step):
        """Without a run until the nodes can be reached, the third time."""
        status = called(step)
        if step.task == "bench" and len(steps.called) < 3:
            (steps.runs / "bench-1/run.json").unlink()
            (steps.runs / "bench-1").rmdir()
        return status

    steps.call = call
    assert [steps.carry_out(PLANNED[0]) for _ in range(4)] == [["make bench MODEL=gpt REPEATS=7"]] * 3 + [[]]
    assert steps.called[3] == "make bench MODEL=gpt RUN=bench-1" and steps.kept == ["bench-1"]


def test_an_interrupted_step_goes_on_with_its_run(tmp_path):
    steps = Steps(tmp_path, bench=[130, 0])
    with pytest.raises(Exit, match="the same command goes on") as error:
        steps.carry_out(*PLANNED)
    assert error.value.status == 130 and steps.kept == []
    assert steps.carry_out(*PLANNED) == []
    assert steps.called[1:] == ["make bench MODEL=gpt RUN=bench-1", "make curves"]
    assert steps.kept == ["bench-1", "curves-1"]


def test_a_preflight_that_was_interrupted_or_failed_is_not_kept_beside_its_next_try(tmp_path):
    steps, tries = Steps(tmp_path), []

    def call(step):
        """A folder without run.json, as a preflight leaves it: interrupted, failed, then in order."""
        tries.append(f"preflight-{len(tries)}")
        (steps.runs / tries[-1]).mkdir()
        return (130, 1, 0)[len(tries) - 1]

    steps.call = call
    with pytest.raises(Exit):
        steps.carry_out(Step("preflight"))
    assert steps.carry_out(Step("preflight")) == ["make preflight"] and steps.kept == []
    assert steps.carry_out(Step("preflight")) == [] and steps.kept == ["preflight-2"]


def test_a_run_that_cannot_be_kept_is_named(tmp_path):
    assert Steps(tmp_path).carry_out(Step("convergence")) == ["make archive RUN=convergence-1"]
    assert Steps(tmp_path).carry_out(Step("convergence")) == ["make convergence"]


def test_a_signal_ends_the_step_before_this_process(tmp_path):
    """The step has the time that it needs: a run notes the attempt that it breaks off, and writes its reports."""
    step = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.5), print('the step is done'), sys.exit(130)))\n"
        "print('begun', flush=True); time.sleep(60)\n"
    )
    (tmp_path / "repro").mkdir()
    (tmp_path / "repro/__main__.py").write_text(step)
    whole = (
        f"import os, sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from repro.cli.host import Exit, Step, call\n"
        f"os.chdir({str(tmp_path)!r})\n"
        "try: call(Step('bench'))\n"
        "except Exit as end: print(end.message); sys.exit(end.status)\n"
    )
    argv = [sys.executable, "-c", whole]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, preexec_fn=heed_interrupts) as process:
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=patience())
    assert (process.returncode, said) == (130, "the step is done\ninterrupted; the same command goes on\n")


def test_a_cluster_has_one_bench_of_all_models():
    assert [str(step) for step in plan_cluster_steps(CATALOGUE.cases)] == [
        "make plan",
        "make rehearse",
        "make preflight",
        "make bench",
        "make curves",
        "make convergence",
    ]
    assert [str(step) for step in plan_cluster_steps(CATALOGUE.select("bert", None))][-1] == "make curves"
    assert [str(step) for step in plan_cluster_steps(CATALOGUE.cases, ("curves",))] == ["make curves"]
    rehearsal = plan_cluster_steps(CATALOGUE.cases, rehearsed=True)
    assert rehearsal[0].task == "preflight", "the hours are those of the published shapes"
    with pytest.raises(OptionError, match="no profile"):
        plan_cluster_steps(CATALOGUE.cases, ("profile",))


def test_a_cluster_s_steps_get_its_settings():
    outer = {"CLUSTER": "v100x32", "SIDE_BY_SIDE": "0", "REPEATS": "7", "HOST": "x"}
    given = {task: Step(task).given(outer, options_of(task)) for task in ("plan", "preflight", "bench", "curves")}
    assert given["plan"] == {"CLUSTER": "v100x32", "REPEATS": "7"}, "hours are those of the runs that come"
    assert given["preflight"] == {"CLUSTER": "v100x32"}
    assert given["bench"] == {"CLUSTER": "v100x32", "SIDE_BY_SIDE": "0", "REPEATS": "7"}
    assert given["curves"] == {"CLUSTER": "v100x32", "SIDE_BY_SIDE": "0"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "HOST=<name>"),
        ({"HOST": "../x"}, "HOST=../x"),
        ({"HOST": "x", "STEPS": "bench,nothing"}, "no step nothing"),
        ({"HOST": "x", "MODEL": "nope"}, "nope"),
        ({"HOST": "x", "BASELINES": "pytorch,nonsense"}, "BASELINES=pytorch,nonsense: no nonsense"),
        ({"HOST": "x", "PRECISION": "fp8"}, "PRECISION=fp8"),
        ({"HOST": "x", "SIDE_BY_SIDE": "1"}, "SIDE_BY_SIDE: for runs on the nodes of a cluster"),
        ({"CLUSTER": "single-node", "SCALE": "tiny"}, "SCALE=tiny: it is smoke or published"),
        ({"HOST": "x", "SCALE": "smoke"}, "SCALE: for runs on the nodes of a cluster"),
        ({"CLUSTER": "single-node", "STACK": "cpu"}, "STACK: for runs on one machine"),
        ({"CLUSTER": "single-node", "STEPS": "profile"}, "no profile"),
    ],
)
def test_bad_settings_are_refused_before_anything_starts(refused, settings, message):
    assert message in refused("reproduce", **settings)


@pytest.mark.parametrize("settings", [{}, {"SCALE": "published"}])
def test_a_cluster_without_gpus_is_refused_unless_all_is_rehearsed(refused, tmp_path, settings):
    said = refused("reproduce", CLUSTER=cpu_inventory(tmp_path / "c"), **settings)
    assert "cluster_gpu is empty in" in said and "SCALE=smoke rehearses every step" in said


def test_without_a_gpu_there_is_nothing_to_do(refused, monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert "no GPU here" in refused("reproduce", HOST="x")


@pytest.mark.parametrize(("visible", "message"), [("", "no GPU here that may be used"), ("7", "GPU 7 is not here")])
def test_gpus_are_those_that_a_run_may_use(refused, tmp_path, monkeypatch, visible, message):
    lay_gpu(tmp_path, V100, V100)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert message in refused("reproduce", HOST="x")


def test_a_baseline_that_can_run_nothing_is_refused_before_the_first_step(refused, tmp_path, monkeypatch):
    lay_gpu(tmp_path, V100)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    said = refused("reproduce", HOST="x", MODEL="bert", BASELINES="megatron")
    assert "BASELINES=megatron can run none of these cases" in said


@pytest.mark.parametrize(
    ("named", "status"),
    [({}, 2), ({"BASELINES": "pytorch-unfused"}, 2), ({"MODEL": "bert"}, 0), ({"BASELINES": "none"}, 0)],
)
def test_a_bench_that_would_run_none_of_the_baselines_asked_for_is_refused(task, named, status):
    settings = {"MODEL": "resnet50", "SCALE": "smoke", "DRY_RUN": 1, "BASELINE_PYTHON": "cu102", **named}
    done = task("bench", BASELINE_COMMAND="true", **settings)
    assert done.returncode == status, done.stderr
    assert status == 0 or ("pytorch-unfused" in done.stderr and "resnet50 has no attention" in done.stderr)


def test_reproduce_refuses_a_default_that_can_run_nothing_before_the_first_step(task, tmp_path, monkeypatch):
    lay_gpu(tmp_path, V100)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    done = task("reproduce", HOST="x", MODEL="resnet50", BASELINE_PYTHON="cu102")
    assert done.returncode == 2 and "by default here, pytorch-unfused, can run none" in done.stderr
    assert "== 1 of" not in done.stdout


def test_an_unreadable_archive_hides_no_other_fault(tmp_path, monkeypatch):
    """`make verify HOST=`: each archive is looked at, and what the list does not have is named too."""
    runs = tmp_path / "h200/runs"
    runs.mkdir(parents=True)
    for name in ("20260101-000000-a.zip", "20260101-000001-b.zip"):
        (runs / name).write_bytes(b"no archive")
    (tmp_path / "SHA256SUMS").write_text("")
    monkeypatch.setattr("repro.runs.digests.runs_of", lambda host: runs)
    listed = SimpleNamespace(holds=(), faults=[])
    monkeypatch.setattr("repro.analysis.verification.verify_list", lambda path: listed)
    with pytest.raises(Exit) as caught:
        _verify_kept("h200")
    for name in ("20260101-000000-a.zip", "20260101-000001-b.zip"):
        assert sum(name in line for line in caught.value.message.splitlines()) >= 2, caught.value.message
