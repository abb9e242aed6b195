"""What a bench spends on itself: what it imports, and when, beside the ranks that it starts."""

import json
import shlex
import subprocess
import sys
from itertools import pairwise
from types import SimpleNamespace

import pytest

from repro.cli.session import OF_ANY_RUN, Session
from repro.cli.tasks import find
from repro.launch.attempt import Limits
from tests.support import tasks
from tests.support.paths import ROOT
from tests.support.runs import attempts

WATCHED = """
import atexit, gc, json, os, sys, threading
seen = {}
atexit.register(lambda: print(json.dumps(seen | {"frozen": gc.get_freeze_count() > 0})))
from repro import __main__
from repro.cli import session
def watched(plan):
    seen.update(before=sorted(sys.modules), waits=threading.current_thread() is threading.main_thread())
    os.register_at_fork = lambda **hooks: at_fork.append(str(hooks))
    imported(plan)
imported, session._import_report = session._import_report, watched
at_fork, phases = [], []
gc.callbacks.append(lambda phase, about: phases.append(about["generation"]))
status = __main__.main(sys.argv[1:])
seen.update(after=sorted(sys.modules), looks=len(phases), at_fork=at_fork, status=status)
"""
NOT_NEEDED = {
    "PIL",
    "ansible",
    "docker",
    "fabric",
    "invoke",
    "matplotlib",
    "paramiko",
    "repro.analysis.convergence",
    "repro.analysis.loss_curves",
    "repro.analysis.profiles",
    "repro.analysis.rehearsal",
    "repro.cli.fab",
    "repro.cli.host",
    "repro.launch.nodes",
    "repro.launch.slurm",
    "repro.launch.ssh",
    "repro.preflight",
    "repro.published.audit",
    "repro.report.charts.figure",
    "repro.report.run.figures",
    "repro.report.run.learning",
    "repro.report.run.loss_curves",
    "repro.report.run.profile",
    "repro.report.run.rehearsal",
    "rocrate",
}
"""What other tasks, other kinds of run, clusters, terminals and figures are for."""


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """What a bench of one case did: the modules that were there before ranks and at the end, and looks for garbage."""
    argv, environment = tasks.call(
        "bench",
        MODEL="bert",
        CASES="bert_1n1g_bs96",
        REPEATS=1,
        RUNS=tmp_path_factory.mktemp("runs"),
        TRAINER_COMMAND=tasks.STANDIN_COMMAND,
    )
    command = [sys.executable, "-c", WATCHED, *argv[2:]]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_a_bench_imports_what_it_needs_alone(seen):
    assert seen["status"] == 0
    assert {"pandas", "jinja2", "repro.report.run.bench"} <= set(seen["after"])
    assert NOT_NEEDED & set(seen["after"]) == set()


def test_there_is_all_that_it_does_not_need():
    """So that a module that gets another name does not leave the list without notice."""
    own = {name for name in NOT_NEEDED if name.startswith("repro.")}
    places = {name: ROOT.joinpath(*name.split(".")) for name in own}
    assert [name for name, path in places.items() if not path.is_dir() and not path.with_suffix(".py").is_file()] == []


def test_ranks_do_not_wait_for_what_the_report_is_written_with(seen):
    before = set(seen["before"])
    assert "repro.launch.runner" in before and not seen["waits"]
    assert not {"numpy", "pandas", "repro.analysis.results", "repro.report"} & before


def test_processes_may_be_started_while_that_is_imported(seen):
    """A hook of forks that is registered during a fork is called at its end without having been called at its start."""
    assert seen["at_fork"] == []


def test_a_short_run_never_looks_for_garbage(seen):
    assert seen["looks"] == 0
    assert seen["frozen"], "the interpreter would look through all objects at its end"


def test_an_attempt_may_be_given_another_limit(task, tmp_path):
    """Ranks that print for ever do not hang, and are ended all the same."""
    trainer = tmp_path / "trainer.py"
    trainer.write_text("import time\nwhile True:\n    print('on and on', flush=True)\n    time.sleep(0.2)\n")
    settings = {"MODEL": "bert", "CASES": "bert_1n1g_bs96", "REPEATS": 1, "DATA": "synthetic"}
    done = task("bench", ATTEMPT_TIMEOUT=3, TRAINER_COMMAND=shlex.join([sys.executable, str(trainer)]), **settings)
    assert done.returncode == 1, done.stderr
    (run,) = (tmp_path / "runs").iterdir()
    failures = [json.loads(line)["failure"] for line in (run / "attempts.jsonl").read_text().splitlines()]
    assert {each["message"] for each in failures} == {"no end after {seconds:.0f} s, the limit for one run"}
    assert {each["values"]["seconds"] for each in failures} == {3}


@pytest.mark.parametrize("settings", [{"PORT": 29611}, {"JOBS": 1}])
def test_attempts_of_a_rehearsal_with_one_port_follow_each_other(task, tmp_path, settings):
    trainer = tmp_path / "trainer.py"
    trainer.write_text("import time\ntime.sleep(0.5)\n")
    cases = "bert_1n1g_bs96,resnet50_0808_1n1g_bs128,DP_1x1x1_2_1536x16"
    command = shlex.join([sys.executable, str(trainer)])
    done = task("rehearse", CASES=cases, TRAINER_COMMAND=command, RETRIES=0, **settings)
    assert done.returncode == 1, done.stderr
    (run,) = (tmp_path / "runs").iterdir()
    spans = sorted((each["started"], each["started"] + each["trainer_s"]) for each in attempts(run))
    assert len(spans) > 2
    assert all(ended <= begun for (_, ended), (begun, _) in pairwise(spans))


@pytest.mark.parametrize(
    ("task", "planned"),
    [
        ("bench", "CASES PROGRAM SCALE MAX_GPUS PRECISION ITERATIONS REPEATS BASELINES DATA"),
        ("rehearse", "CASES PROGRAM MAX_RANKS ITERATIONS"),
        ("curves", "CASES PROGRAM REPEATS"),
        ("convergence", "PROGRAM REPEATS"),
        ("profile", "CASES PROGRAM MAX_GPUS PRECISION BASELINES"),
    ],
)
def test_what_a_run_that_goes_on_does_not_read(task, planned):
    options = [option.variable for option in find(task).options.values()]
    assert [name for name in options if name not in OF_ANY_RUN] == planned.split()


@pytest.mark.parametrize(
    ("scale", "given", "patience", "limits"),
    [
        ("smoke", (None, None), 1.0, Limits(120, 3600)),
        ("published", (None, None), 6.0, Limits(5400, 21600)),
        ("smoke", (30, 60), 6.0, Limits(30, 60)),
    ],
)
def test_attempts_on_slow_nodes_get_longer_unless_an_option_says_how_long(scale, given, patience, limits):
    options = SimpleNamespace(stall_timeout=given[0], attempt_timeout=given[1])
    assert Session.limits(SimpleNamespace(options=options), SimpleNamespace(scale=scale), patience) == limits
