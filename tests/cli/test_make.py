"""The bridge from make: what reaches a task, what is refused, and that make never expands a value."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from repro.cli.tasks import every
from repro.targets import (
    ENVIRONMENT,
    TASK_GROUPS,
    TRAINER_TASKS,
    VARIABLE_GROUPS,
    make_variables,
)
from tests.support import tasks
from tests.support.paths import ROOT
from tests.support.patience import patience, wait_until
from tests.support.processes import heed_interrupts, processes_of

TASKS = every()
VARIABLES = {name: {option.variable for option in task.options.values()} for name, task in TASKS.items()}


@pytest.fixture
def make(tmp_path):
    """Runs make in a folder with our Makefile, where the tasks are those of the checkout and nothing is set up."""
    (tmp_path / "Makefile").symlink_to(ROOT / "Makefile")
    (tmp_path / "repro").symlink_to(ROOT / "repro")
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(
        f'#!/bin/sh\necho "$@" >> "{tmp_path}/started"\nenv > "{tmp_path}/environment"\nexec "{sys.executable}" "$@"\n'
    )
    python.chmod(0o755)

    def run(*arguments, **environment):
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
        return subprocess.run(
            ["make", "--no-print-directory", *map(str, arguments)],
            cwd=tmp_path,
            env={**inherited, "REPRO_NO_SET_UP": "1", **environment},
            capture_output=True,
            text=True,
        )

    return run


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("", []),
        ("ks", []),
        ("w -- MODEL=gpt", [("MODEL", "gpt")]),
        (r" -j2 --jobserver-auth=3,4 -- CASES=DP\ x\\ MODEL=gpt", [("CASES", "DP x\\"), ("MODEL", "gpt")]),
        (" -- A:=1 B=$$(shell\\ touch\\ x) C=", [("A", "1"), ("B", "$(shell touch x)"), ("C", "")]),
        (" -- A=b=c -- D=1", [("A", "b=c"), ("D", "1")]),
    ],
)
def test_variables_are_read_as_make_writes_them(flags, expected):
    assert make_variables(flags) == expected


@pytest.mark.parametrize(
    "text", ["DP_*", "a b", "back\\slash \\ ", "$HOME $(pwd) `pwd`", "#x", 'it\'s "so"', "三", "a=b", "a\tb"]
)
def test_a_value_comes_through_make_as_it_was_typed(make, text):
    done = make("cases", f"MODEL={text}")
    assert done.returncode == 2
    assert done.stderr.startswith(f"no model {text!r}") or repr(text) in done.stderr


@pytest.mark.parametrize("name", ["CASES", "NONSENSE", "CUDA_VISIBLE_DEVICES"])
def test_make_expands_no_value(make, tmp_path, name):
    make("cases", f"{name}=$(shell touch {tmp_path}/expanded)$(error no)$$(touch {tmp_path}/expanded)")
    assert (tmp_path / "started").exists(), "the task was run"
    assert not (tmp_path / "expanded").exists()
    assert f"\n{name}=" not in (tmp_path / "environment").read_text()


def test_the_environment_sets_no_option(make):
    plain = make("cases", "MODEL=bert")
    assert plain.returncode == 0
    assert make("cases", "MODEL=bert", CASES="bert_1n1g*", FORMAT="json").stdout == plain.stdout
    chosen = make("cases", "MODEL=bert", "CASES=bert_1n1g_bs96", CASES="nothing")
    assert chosen.stdout.splitlines()[-1] == "1 cases"


def test_every_variable_is_named_that_a_task_does_not_have(make):
    done = make("profile", "IMAGE=x")
    assert done.returncode == 2
    assert (
        "IMAGE: make profile has no such variable; the nearest is MAX_GPUS. It has: ATTEMPT_TIMEOUT, BASELINES, "
        in done.stderr
    )
    assert "Error 2" in done.stderr.splitlines()[-1], "make names the task's own status"


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("bench", {"MODLE": "gpt"}, "the nearest is MODEL"),
        ("bench", {"REPEATS": "many"}, "REPEATS=many: it is a whole number from 1 to 1000"),
        ("bench", {"MAX_GPUS": "2,x"}, "MAX_GPUS=2,x: it is a whole number from 1 to 4096, or several such as 2,4"),
        ("bench", {"DRY_RUN": "yes"}, "DRY_RUN=yes: it is 0 or 1"),
        ("bench", {"CLUSTER": "single-node", "STACK": "cu102"}, "STACK: for runs on one machine"),
        ("cases", {"FORMAT": "xml"}, "FORMAT=xml: it is table or json"),
        ("image", {"NCCL": "3"}, "NCCL=3: it is 2.7.3 or 2.7.8"),
        ("model", {"MODEL": "gpt"}, "MODEL: make model takes no variables"),
        ("benhc", {}, "benhc: no such task; the nearest is bench"),
    ],
)
def test_wrong_variables_are_refused(name, settings, message):
    argv = [sys.executable, "-m", "repro", name, *(f"{key}={value}" for key, value in settings.items())]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_cluster_plans_the_precision_that_was_asked_for(monkeypatch):
    """Every published GPT case is AMP; on the nodes of an inventory fp32 is planned too."""
    from dataclasses import replace

    from repro.cluster.cluster import load_cluster
    from repro.launch.base import LaunchOptions
    from repro.launch.select import select
    from repro.planning.plan import Wanted
    from repro.published.cases import load_catalogue

    cluster = replace(load_cluster("single-node"), gpu="Tesla V100-SXM2-16GB")
    launcher = select(LaunchOptions(cluster), "ssh")
    cases = load_catalogue().select("gpt", "DP_1x1x1*")
    for asked, planned in ((None, "amp"), ("fp32", "fp32")):
        plan = launcher.plan(cases, Wanted(repeats=1, precision=asked))
        assert {unit.config.precision for unit in plan.units} == {planned}


def test_what_belongs_to_the_processes_gets_into_their_environment(task, tmp_path):
    """OMP_NUM_THREADS of make's command line reaches the trainer, and the recorded command."""
    argv, environment = tasks.call(
        "bench",
        MODEL="bert",
        CASES="bert_1n1g_bs96",
        REPEATS=1,
        RUNS=tmp_path / "runs",
        TRAINER_COMMAND=tasks.STANDIN_COMMAND,
    )
    environment.pop("OMP_NUM_THREADS", None)
    done = subprocess.run([*argv, "OMP_NUM_THREADS=3"], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (record,) = (tmp_path / "runs").glob("*/run.json")
    command = json.loads(record.read_text())["command"]
    assert command == f"make bench MODEL=bert CASES=bert_1n1g_bs96 REPEATS=1 RUNS={tmp_path / 'runs'} OMP_NUM_THREADS=3"


def test_the_tables_name_tasks_and_options_that_there_are():
    names = {*TASKS, "setup"}
    assert set(TASK_GROUPS) <= names and set(TRAINER_TASKS) <= names
    every = set.union(*VARIABLES.values())
    assert set(VARIABLE_GROUPS) <= every
    assert not set(ENVIRONMENT) & every


def test_tests_start_tasks_without_the_packages_of_other_groups():
    """So a task that needs one of a group that it does not ask for fails in its tests, as on a fresh machine."""
    argv, environment = tasks.call("audit")
    assert {"ansible", "ansible-core", "rocrate", "pytest"} <= set(environment["TEST_LEFT_OUT"].split(","))
    done = subprocess.run(
        argv, cwd=ROOT, env={**environment, "TEST_LEFT_OUT": "pandas"}, capture_output=True, text=True
    )
    assert done.returncode == 1 and "No module named 'pandas'" in done.stderr
    argv, environment = tasks.call("preflight", CLUSTER="v100x32")
    assert not {"ansible-core", "bin/ansible-inventory"} & {*environment["TEST_LEFT_OUT"].split(",")}
    environment["TEST_LEFT_OUT"] = "bin/ansible-inventory"
    done = subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode != 0 and "ansible-inventory" in done.stderr


def test_make_has_every_task_and_lists_about_30(make):
    makefile = (ROOT / "Makefile").read_text().replace("\\\n", " ")
    groups = {line.split(" = ")[0]: line.split(" = ")[1].split() for line in makefile.splitlines() if " = " in line}
    assert sorted([*groups["TASKS"], *groups["UNLISTED"]]) == sorted(TASKS)
    listed = make().stdout
    targets = [line.split()[1] for line in listed.splitlines() if line.startswith("  make ")]
    assert sorted(targets) == sorted([*groups["TASKS"], "setup", "clean", "help"])
    assert len(targets) < 34
    assert all(f"\n{heading}\n" in listed for heading in ("Set up", "Run", "Report", "Published", "Cluster"))


def test_help_names_variables_that_the_tasks_have(make):
    for line in make("help").stdout.splitlines():
        if line.startswith("  make "):
            _, target, *arguments = line.split()
            variables = {word.strip("[]").split("=")[0] for word in arguments if "=" in word}
            assert variables <= VARIABLES.get(target, set()), target


def test_a_task_whose_make_is_killed_stops_and_says_how_to_go_on(make, tmp_path):
    """make itself passes SIGTERM on; nothing of it is there to pass on what SIGKILL does."""
    _, environment = tasks.call("bench", TRAINER_COMMAND=tasks.STANDIN_COMMAND, STANDIN="hang@0")
    settings = ["MODEL=bert", "CASES=bert_1n1g_bs96", "REPEATS=1", f"RUNS={tmp_path}/runs", "DATA=synthetic"]
    with subprocess.Popen(
        ["make", "--no-print-directory", "bench", *settings],
        cwd=tmp_path,
        env={**environment, "REPRO_NO_SET_UP": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_interrupts,
    ) as process:
        wait_until(lambda: list(tmp_path.glob("runs/*/units/*/*/metrics-rank0.jsonl")))
        process.kill()
        _, err = process.communicate(timeout=patience())
    (run,) = (tmp_path / "runs").glob("*-bert-*")
    assert f"interrupted; go on with: make bench RUN={run.name}" in err
    assert [json.loads(line)["status"] for line in (run / "attempts.jsonl").open()] == ["interrupted"]
    assert not processes_of(run)


FAB = Path(sys.executable).with_name("fab")


@pytest.mark.parametrize("buffered", [True, False])
@pytest.mark.parametrize(
    "argv",
    [
        [sys.executable, "-m", "repro", "cases", "FORMAT=json"],
        [sys.executable, "-m", "repro", "bench", "--help"],
        [FAB, "cases"],
        [FAB, "--list"],
    ],
    ids=lambda argv: " ".join([Path(argv[0]).name, *argv[1:]]),
)
def test_a_reader_that_leaves_is_no_traceback(argv, buffered):
    environment = {**os.environ, "PYTHONUNBUFFERED": "" if buffered else "1"}
    with subprocess.Popen(
        argv, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 128 + signal.SIGPIPE
