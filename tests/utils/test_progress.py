"""No long task is silent: what its lines say, and how often they come."""

import re
import time

import pytest

from repro.utils import progress
from repro.utils.progress import Stages, Steps, duration, said_meanwhile
from tests.support.patience import wait_until


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_steps_say_what_is_done_and_what_is_left(monkeypatch):
    monkeypatch.setattr(progress, "SILENCE_S", 0.1)
    steps, lines = Steps(10, "pages"), []
    assert (steps.now(), steps.share()) == ("0 of 10 pages", 0)
    with said_meanwhile(steps.now, lines.append, steps.share):
        wait_until(lambda: lines)
        steps.done("page 1")
        steps.done("page 2", 4)
        said = len(lines) + 1
        wait_until(lambda: len(lines) > said)
    assert re.fullmatch(r"\d+ s: 0 of 10 pages", lines[0]), "a first step that takes long is not silent"
    assert re.fullmatch(r"(\d+) s: 5 of 10 pages \(page 2\), \1 s left", lines[-1])


def test_short_tasks_say_nothing():
    lines = []
    with said_meanwhile(lambda: "pages", lines.append):
        pass
    assert lines == []


def test_no_work_is_done_at_once():
    assert Steps(0, "hosts").share() == 1


def test_what_runs_meanwhile_is_said_until_it_ends(monkeypatch):
    monkeypatch.setattr(progress, "SILENCE_S", 0.1)
    lines = []
    with said_meanwhile(lambda: "task: node1", lines.append):
        wait_until(lambda: len(lines) >= 2)
    count = len(lines)
    assert re.fullmatch(r"\d+ s: task: node1", lines[0])
    time.sleep(0.3)
    assert len(lines) == count


def test_what_is_left_follows_from_the_share_that_is_done(monkeypatch):
    monkeypatch.setattr(progress, "SILENCE_S", 0.1)
    lines = []
    with said_meanwhile(lambda: "packing", lines.append, lambda: 0.5):
        wait_until(lambda: lines)
    assert re.fullmatch(r"(\d+) s: packing, \1 s left", lines[0])


def test_a_stage_says_what_is_left_of_it_and_of_those_that_follow(clock):
    stages = Stages("the beginning")
    assert stages.now() == "the beginning"
    stages.begin("an image is built", 200)
    clock[0] += 50
    assert stages.now() == "an image is built, about 2 min left"
    stages.begin("nodes start", 30)
    clock[0] += 20
    assert stages.now() == "nodes start, about 10 s left"
    clock[0] += 20
    assert stages.now() == "nodes start", "nothing is said of what takes longer than expected"


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0 s"), (99, "99 s"), (100, "2 min"), (3600, "60 min")])
def test_durations(seconds, text):
    assert duration(seconds) == text
