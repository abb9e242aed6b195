"""An interrupt at any moment: what is held back, what is let through, and what a run leaves."""

import json
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from repro.launch import local_attempt
from repro.launch.attempt import Limits, interruptible
from repro.launch.local_attempt import LocalAttempt
from repro.published.cases import Layout
from repro.utils.signals import as_of_a_process, held, signal_name
from tests.support import tasks
from tests.support.patience import dice, patience, slowness
from tests.support.processes import processes_of
from tests.support.runs import CONFIG

MOMENTS = 8


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


def test_who_waits_is_ended_by_polling(interrupt):
    done = []
    with pytest.raises(KeyboardInterrupt), interruptible() as interrupts:
        interrupts.check()
        try:
            interrupt()
            done.append("it does not break off what must be finished")
            interrupts.sleep(60)
            done.append("not reached")
        finally:
            interrupt()
            done.append("a second one does not break off what ends the processes")
    assert done == [
        "it does not break off what must be finished",
        "a second one does not break off what ends the processes",
    ]


def test_an_attempt_is_ended_without_a_signal_too():
    stop = threading.Event()
    with interruptible(stop) as interrupts:
        interrupts.check()
        stop.set()
        with pytest.raises(KeyboardInterrupt):
            interrupts.sleep(60)


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


def in_a_thread(work):
    """What a function gives in another thread."""
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(work).result()


def test_another_thread_holds_nothing_back(interrupt):
    def hold():
        with held():
            return held.now

    assert in_a_thread(hold) is None


def test_another_thread_sees_what_the_main_thread_holds_back(interrupt):
    def came():
        with held() as signals:
            return signals.came

    with pytest.raises(KeyboardInterrupt), held():
        assert not in_a_thread(came)
        interrupt()
        assert in_a_thread(came)


@pytest.mark.parametrize("moment", ["_start", "_ended_ranks", "_read_metrics"])
def test_an_attempt_ends_what_it_started(tmp_path, standin, monkeypatch, interrupt, moment):
    """Also if the signal comes between the start of the processes and the first look at them, or with the second."""
    monkeypatch.setenv("STANDIN", "hang@0 hang@1")
    owner = LocalAttempt if hasattr(LocalAttempt, moment) else local_attempt
    original = getattr(owner, moment)

    def interrupted(*arguments):
        result = original(*arguments)
        interrupt()
        interrupt()
        return result

    monkeypatch.setattr(owner, moment, interrupted)
    config = replace(CONFIG, layout=Layout(2))
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        LocalAttempt(config, tmp_path, Limits(), trainer=standin).run()
    assert time.monotonic() - started < 8 * slowness()
    assert not processes_of(tmp_path)


def bench(folder):
    """A bench of two short units in a folder, started as from a terminal."""
    return tasks.start("bench", RUNS=folder, MODEL="bert", REPEATS=1, TRAINER_COMMAND=tasks.STANDIN_COMMAND)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """How long such a bench takes if nobody interrupts it, in seconds."""
    started = time.monotonic()
    process = bench(tmp_path_factory.mktemp("whole"))
    errors = process.communicate(timeout=patience())[1]
    assert process.returncode == 0, errors
    return time.monotonic() - started


@pytest.mark.parametrize("moment", range(MOMENTS))
def test_a_bench_may_be_interrupted_at_any_moment(tmp_path, whole, moment):
    """No process is left, and each attempt that was begun is recorded and in the report."""
    chance = dice()
    process = bench(tmp_path)
    time.sleep(whole * (moment + chance.random()) / MOMENTS)
    process.send_signal(chance.choice([signal.SIGINT, signal.SIGTERM]))
    errors = process.communicate(timeout=patience())[1]
    assert process.returncode in (0, 1, 130, -signal.SIGINT, -signal.SIGTERM), errors
    assert not processes_of(tmp_path)
    for folder in tmp_path.iterdir():
        file = folder / "attempts.jsonl"
        recorded = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        begun = {str(path.relative_to(folder)) for path in folder.glob("units/*/*")}
        assert {attempt["folder"] for attempt in recorded} == begun, errors
        assert {attempt["status"] for attempt in recorded} <= {"ok", "interrupted"}, errors
        if begun:
            assert process.returncode != 1, errors
            assert (folder / "manifest-sha256.txt").exists(), errors
            assert process.returncode != 130 or f"RUN={folder.name}" in errors


@pytest.mark.parametrize(("number", "name"), [(9, "SIGKILL"), (34, "SIGRTMIN"), (40, "signal 40"), (127, "signal 127")])
def test_every_signal_has_a_name(number, name):
    assert signal_name(number) == name


@pytest.mark.parametrize(
    ("status", "of_a_process"), [(0, 0), (3, 3), (128, 128), (137, -9), (143, -15), (192, -64), (193, 193), (255, 255)]
)
def test_a_container_s_status_is_a_signal_only_where_there_is_one(status, of_a_process):
    assert as_of_a_process(status) == of_a_process
