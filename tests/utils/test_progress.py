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


def test_steps_say_what_is_done_and_what_is_left(clock):
    lines = []
    steps = Steps(10, "pages", lines.append)
    for number in range(10):
        clock[0] += 4
        steps.done(f"page {number}")
    assert lines == [
        "12 s: 3 of 10 pages (page 2), 28 s left",
        "24 s: 6 of 10 pages (page 5), 16 s left",
        "36 s: 9 of 10 pages (page 8), 4 s left",
    ]


def test_short_tasks_say_nothing(clock):
    lines = []
    steps = Steps(3, "pages", lines.append)
    for _ in range(3):
        clock[0] += 1
        steps.done()
    assert lines == []


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
