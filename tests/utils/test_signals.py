"""An interrupt at any moment: what is held back, what is let through, and what a run leaves."""

import json
import os
import random
import signal
import threading
import time

import pytest

from repro.launch.local import Attempt, Limits
from repro.utils.signals import held, let_through
from tests.support import tasks
from tests.support.processes import processes_of

MOMENTS = 8
CONFIG = {
    "model": "bert",
    "layout": {"data": 1, "tensor": 1, "pipeline": 1},
    "micro_batch": 8,
    "accumulation_steps": 1,
    "iterations": 7,
    "log_generation": "C",
}


@pytest.fixture(params=[signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def interrupt(request):
    """Sends a signal to this process, which raises KeyboardInterrupt for both kinds."""
    before = {kind: signal.signal(kind, signal.default_int_handler) for kind in (signal.SIGINT, signal.SIGTERM)}
    yield lambda: os.kill(os.getpid(), request.param)
    for kind, handler in before.items():
        signal.signal(kind, handler)


def test_it_comes_at_the_end_of_what_must_be_finished(interrupt):
    done = []
    with pytest.raises(KeyboardInterrupt), held() as outer:
        with held():
            interrupt()
            done.append("inner")
        assert outer.came
        done.append("outer")
    assert done == ["inner", "outer"]
    with pytest.raises(KeyboardInterrupt):
        interrupt()


def test_it_is_let_through_where_one_waits_but_once(interrupt):
    done = []
    with held():
        with pytest.raises(KeyboardInterrupt), let_through():
            interrupt()
            done.append("not reached")
        interrupt()
        done.append("a second one does not break off what ends the processes")
        with pytest.raises(KeyboardInterrupt), let_through():
            done.append("not reached")
        with pytest.raises(ValueError, match="another error"):
            raise ValueError("another error")
        held.now.came = False
    assert done == ["a second one does not break off what ends the processes"]


def test_an_error_is_not_hidden_by_it(interrupt):
    with pytest.raises(ValueError, match="the disk"), held():
        interrupt()
        raise ValueError("the disk")


def test_a_signal_that_is_ignored_stays_ignored(interrupt):
    for kind in (signal.SIGINT, signal.SIGTERM):
        signal.signal(kind, signal.SIG_IGN)
    with held() as interrupts:
        interrupt()
    assert not interrupts.came
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_another_thread_holds_nothing_back(interrupt):
    def hold():
        with held(), let_through():
            seen.append(held.now)

    seen = []
    thread = threading.Thread(target=hold)
    thread.start()
    thread.join()
    assert seen == [None]


@pytest.mark.parametrize("moment", ["_start", "_ended_ranks", "_read_metrics"])
def test_an_attempt_ends_what_it_started(tmp_path, standin, monkeypatch, interrupt, moment):
    """Also if the signal comes between the start of the processes and the first look at them, or with the second."""
    monkeypatch.setenv("STANDIN", "hang@0 hang@1")
    original = getattr(Attempt, moment)

    def interrupted(self, *arguments):
        result = original(self, *arguments)
        interrupt()
        interrupt()
        return result

    monkeypatch.setattr(Attempt, moment, interrupted)
    config = {**CONFIG, "layout": {"data": 2, "tensor": 1, "pipeline": 1}}
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        Attempt(config, tmp_path, Limits(), trainer=standin).run()
    assert time.monotonic() - started < 8
    assert not processes_of(tmp_path)


def bench(folder):
    """A bench of two short units in a folder, started as from a terminal."""
    return tasks.start("bench", RUNS=folder, MODEL="bert", REPEATS=1, TRAINER_COMMAND=tasks.STANDIN_COMMAND)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """How long such a bench takes if nobody interrupts it, in seconds."""
    started = time.monotonic()
    process = bench(tmp_path_factory.mktemp("whole"))
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 0, said
    return time.monotonic() - started


@pytest.mark.parametrize("moment", range(MOMENTS))
def test_a_bench_may_be_interrupted_at_any_moment(tmp_path, whole, moment):
    """No process is left, and each attempt that was begun is recorded and in the report."""
    process = bench(tmp_path)
    time.sleep(whole * (moment + random.random()) / MOMENTS)
    process.send_signal(random.choice([signal.SIGINT, signal.SIGTERM]))
    sent = time.monotonic()
    said = process.communicate(timeout=30)[1]
    assert time.monotonic() - sent < 10, said
    assert process.returncode in (0, 1, 130, -signal.SIGINT, -signal.SIGTERM), said
    assert not processes_of(tmp_path)
    for folder in tmp_path.iterdir():
        file = folder / "attempts.jsonl"
        recorded = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        begun = {str(path.relative_to(folder)) for path in folder.glob("units/*/*")}
        assert {attempt["folder"] for attempt in recorded} == begun, said
        assert {attempt["status"] for attempt in recorded} <= {"ok", "interrupted"}, said
        if begun:
            assert process.returncode != 1, said
            assert (folder / "manifest-sha256.txt").exists(), said
            assert process.returncode != 130 or f"RUN={folder.name}" in said
