"""Attempts that run concurrently: which GPUs they get, and that all of them are recorded and ended."""

import errno
import io
import json
import os
import re
import shlex
import signal
import subprocess
import threading
import time
from dataclasses import replace

import pytest

from repro.analysis.results import most_at_once
from repro.launch.attempt import Outcome
from repro.launch.gpu_pool import GpuPool
from repro.launch.progress import Progress
from repro.launch.runner import Bench
from repro.planning.plan import Wanted, make_plan
from repro.published.cases import load_catalogue
from repro.runs.failures import Failure
from repro.runs.plan import Plan
from repro.runs.record import RecordError, Run
from tests.support.attempts import recorded
from tests.support.paths import STANDIN, TRAINER_PYTHON
from tests.support.patience import patience, wait_until
from tests.support.runs import attempts, begin, only_run
from tests.support.synthetic import described


def test_each_attempt_has_gpus_of_its_own():
    gpu_pool = GpuPool(("4", "5", "6", "7"), None)
    assert [gpu_pool.take(ranks) for ranks in (1, 2, 2, 1, 1)] == [("4",), ("5", "6"), None, ("7",), None]
    gpu_pool.give_back(("5", "6"))
    gpu_pool.give_back(("4",))
    assert gpu_pool.take(4) is None
    assert gpu_pool.take(2) == ("4", "5")


def test_so_many_at_once_share_the_gpus_that_have_least_to_do():
    gpu_pool = GpuPool(("0", "1"), 4)
    assert [gpu_pool.take(ranks) for ranks in (1, 2, 1, 1, 1)] == [("0",), ("0", "1"), ("1",), ("0",), None]
    gpu_pool.give_back(("0", "1"))
    assert gpu_pool.take(1) == ("1",)


def test_what_needs_more_than_there_is_runs_alone():
    gpu_pool = GpuPool(("0",), None)
    assert gpu_pool.take(2) == ("0",)
    assert gpu_pool.take(1) is None


def test_on_the_cpu_only_the_number_counts():
    gpu_pool = GpuPool((), 2)
    assert [gpu_pool.take(ranks) for ranks in (4, 1, 1)] == [(), (), None]
    gpu_pool.give_back(())
    assert gpu_pool.take(4) == ()


@pytest.mark.parametrize(
    ("spans", "most"),
    [([], 0), ([(0, 10), (10, 5)], 1), ([(0, 10), (9.5, 5)], 1), ([(0, 10), (2, 5), (4, 1.5), (8, 4)], 3)],
)
def test_how_many_went_on_at_once(spans, most):
    assert most_at_once([recorded({"started": start, "wall_s": length}) for start, length in spans]) == most


def test_curves_side_by_side_are_all_recorded_and_the_report_says_so(task, tmp_path):
    done = task("curves", MODEL="bert", JOBS=3, STANDIN="slow=2@0", CASES="bert_fp32_dp2")
    folder = only_run(tmp_path)
    ended = Run(folder).attempts()
    assert sorted({attempt.unit for attempt in ended}) == sorted(
        unit["name"] for unit in json.loads((folder / "run.json").read_text())["plan"]["units"]
    )
    assert {attempt.status for attempt in ended} == {"ok"}
    assert re.search(r"^    bert_fp32_1x1x1\w*: \d+\.\d+ samples/s", done.stderr, re.MULTILINE)
    assert most_at_once(ended) == 3
    assert "| Concurrency | up to 3 attempts at once" in (folder / "report.en.md").read_text()


def test_failures_side_by_side_are_tried_again(task, tmp_path):
    task("curves", MODEL="bert", JOBS=2, RETRIES=1, STANDIN="exit=5@0", CASES="bert_fp32_dp2")
    tried = [attempt["unit"] for attempt in attempts(only_run(tmp_path))]
    assert tried
    assert all(tried.count(name) == 2 for name in tried)


def test_an_interrupt_ends_and_records_all_that_go_on(tmp_path):
    process = begin(tmp_path, "curves", MODEL="bert", JOBS="2", STANDIN="hang@0")
    wait_until(lambda: len(list(tmp_path.glob("runs/*/units/*/*/metrics-rank0.jsonl"))) >= 2)
    process.send_signal(signal.SIGINT)
    _, message = process.communicate(timeout=patience())
    assert process.returncode == 130, message
    folder = only_run(tmp_path)
    ended = attempts(folder)
    assert [attempt["status"] for attempt in ended] == ["interrupted"] * 2
    assert len({attempt["unit"] for attempt in ended}) == 2
    left = subprocess.run(["pgrep", "-f", str(folder)], capture_output=True, text=True).stdout
    assert left == ""


def test_every_attempt_sees_its_own_gpus_alone(task, tmp_path):
    """Single ranks one GPU each, at the same time; two ranks both, and nobody beside them."""
    tool, trainer = tmp_path / "nvidia-smi", tmp_path / "trainer.py"
    tool.write_text(
        '#!/bin/sh\ncase "$1" in *compute_cap*) echo 7.0; echo 7.0;; '
        '*) for i in 0 1; do echo "V100, 440.33.01, 16160, 88.00, 1530, 877, GPU-$i"; done;; esac\n'
    )
    tool.chmod(0o755)
    trainer.write_text(
        f"import os, runpy; open('visible', 'w').write(os.environ['CUDA_VISIBLE_DEVICES']); "
        f"runpy.run_path({str(STANDIN)!r}, run_name='__main__')"
    )
    task(
        "curves",
        MODEL="bert",
        CASES="bert_fp32_dp2",
        STANDIN="slow=2@0",
        CUDA_VISIBLE_DEVICES="1,0",
        PATH=f"{tmp_path}:{os.environ['PATH']}",
        TRAINER_COMMAND=shlex.join([str(TRAINER_PYTHON), str(trainer)]),
    )
    folder = only_run(tmp_path)
    ended = Run(folder).attempts()
    seen = {attempt.unit: (folder / attempt.folder / "visible").read_text() for attempt in ended}
    assert seen.pop("bert_fp32_dp2") == "1,0"
    assert set(seen.values()) == {"1", "0"}
    both = [attempt for attempt in ended if attempt.unit == "bert_fp32_dp2"]
    assert all(most_at_once([*both, other]) == 1 for other in ended if other not in both)
    assert most_at_once(ended) == 2


class Scripted:
    """Attempts that do what a function of their unit's name says, and remember how they went."""

    def __init__(self, act):
        self.act, self.begun, self.together, self.running = act, [], [], set()

    def __call__(self, unit, folder):
        return Step(self, unit.name)


class Step:
    def __init__(self, script, name):
        self.script, self.name = script, name

    def on(self, gpus):
        return self

    def run(self, on_event, stop):
        script = self.script
        assert self.name not in script.running, "no unit runs next to itself"
        script.begun.append(self.name)
        script.running.add(self.name)
        script.together.append(set(script.running))
        try:
            failure = script.act(self.name, stop)
        finally:
            script.running.remove(self.name)
        return Outcome(failure or Failure("it is only a test"), 0.0)


def bench_of(tmp_path, act, names, jobs, repeats=1, retries=0):
    unit = make_plan(load_catalogue().select("bert", None), 0, Wanted(scale="smoke", repeats=1), processes=1).units[0]
    units = tuple(replace(unit, name=name) for name in names)
    plan = Plan("smoke", "cpu", repeats, units)
    run = Run.create("test", described(plan), tmp_path / "runs")
    script = Scripted(act)
    return Bench(run, plan, Progress(io.StringIO()), script, retries, GpuPool((), jobs)), script


def test_an_error_in_one_attempt_ends_and_records_the_others(tmp_path):
    def act(name, stop):
        if name == "bad":
            assert both.wait(patience())
            raise OSError(errno.ENOSPC, "No space left on device")
        both.set()
        assert stop.wait(patience()), "nobody stopped it"
        raise KeyboardInterrupt

    both = threading.Event()
    bench, _ = bench_of(tmp_path, act, ("good", "bad", "waiting"), 2)
    with pytest.raises(RecordError, match="the disk is full"):
        bench.run_all()
    assert [(each.unit, each.status) for each in bench.run.attempts()] == [("good", "interrupted")]


def test_attempts_begin_in_order_and_no_unit_runs_next_to_itself(tmp_path):
    bench, script = bench_of(tmp_path, lambda name, stop: time.sleep(0.02), ("a", "b", "c"), 2, repeats=2, retries=1)
    ended = bench.run_all()
    assert len(ended) == 3 * 2 * 2
    assert max(map(len, script.together)) == 2
    assert set(script.begun[:2]) == {"a", "b"}
    assert {name: script.begun.count(name) for name in "abc"} == {"a": 4, "b": 4, "c": 4}


def test_one_at_a_time_is_tried_again_before_the_next(tmp_path):
    bench, script = bench_of(tmp_path, lambda name, stop: None, ("a", "b"), 1, retries=2)
    bench.run_all()
    assert script.begun == ["a", "a", "a", "b", "b", "b"]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"JOBS": 2, "PORT": 29999}, "JOBS=2: PORT is the port of one attempt"),
        ({"JOBS": 0}, "JOBS=0: it is a whole"),
    ],
)
def test_what_cannot_be_is_said_before_there_is_a_run(refused, wrong, message):
    assert message in refused("curves", MODEL="bert", **wrong)


def test_speed_is_never_measured_side_by_side(refused):
    assert "JOBS: make bench has no such variable" in refused("bench", MODEL="bert", JOBS=2)
