"""Attempts that run side by side: which GPUs they get, and that all of them are led, recorded and ended."""

import json
import os
import re
import signal
import subprocess
import time

import pytest

from repro.analysis.results import most_at_once
from repro.launch.gpu_pool import GpuPool
from tests.launch.test_runner import attempts, begin, only_run
from tests.support.paths import STANDIN, TRAINER_PYTHON


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
    assert most_at_once([{"started": start, "wall_s": length} for start, length in spans]) == most


def test_curves_side_by_side_are_all_recorded_and_the_report_says_so(task, tmp_path):
    done = task("curves", MODEL="bert", JOBS=3, STANDIN="slow=2@0", CASES="bert_fp32_dp2")
    folder = only_run(tmp_path)
    ended = attempts(folder)
    assert sorted({attempt["unit"] for attempt in ended}) == sorted(
        unit["name"] for unit in json.loads((folder / "run.json").read_text())["plan"]["units"]
    )
    assert {attempt["status"] for attempt in ended} == {"ok"}
    assert re.search(r"^    bert_fp32_1x1x1\w*: \d+\.\d+ samples/s", done.stderr, re.MULTILINE)
    assert most_at_once(ended) == 3
    assert "| Side by side | up to 3 attempts at once" in (folder / "report.en.md").read_text()


def test_failures_side_by_side_are_tried_again(task, tmp_path):
    task("curves", MODEL="bert", JOBS=2, RETRIES=1, STANDIN="exit=5@0", CASES="bert_fp32_dp2")
    tried = [attempt["unit"] for attempt in attempts(only_run(tmp_path))]
    assert tried
    assert all(tried.count(name) == 2 for name in tried)


def test_an_interrupt_ends_and_records_all_that_go_on(tmp_path):
    process = begin(tmp_path, "curves", MODEL="bert", JOBS="2", STANDIN="hang@0")
    deadline = time.monotonic() + 60
    while len(list(tmp_path.glob("runs/*/units/*/*/metrics-rank0.jsonl"))) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
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
        CUDA_VISIBLE_DEVICES="5,3",
        PATH=f"{tmp_path}:{os.environ['PATH']}",
        TRAINER_COMMAND=f"{TRAINER_PYTHON} {trainer}",
    )
    folder = only_run(tmp_path)
    ended = attempts(folder)
    seen = {attempt["unit"]: (folder / attempt["folder"] / "visible").read_text() for attempt in ended}
    assert seen.pop("bert_fp32_dp2") == "5,3"
    assert set(seen.values()) == {"5", "3"}
    both = [attempt for attempt in ended if attempt["unit"] == "bert_fp32_dp2"]
    assert all(most_at_once([*both, other]) == 1 for other in ended if other not in both)
    assert most_at_once(ended) == 2


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"JOBS": 2, "PORT": 29999}, "JOBS=2: PORT is the port of one attempt"),
        ({"JOBS": 0}, "JOBS=0: it is a whole"),
    ],
)
def test_what_cannot_be_is_said_before_there_is_a_run(task, tmp_path, wrong, said):
    done = task("curves", MODEL="bert", **wrong)
    assert done.returncode == 2
    assert said in done.stderr
    assert not (tmp_path / "runs").exists()


def test_speed_is_never_measured_side_by_side(task, tmp_path):
    done = task("bench", MODEL="bert", JOBS=2)
    assert done.returncode == 2
    assert "JOBS: make bench has no such variable" in done.stderr
    assert not (tmp_path / "runs").exists()
