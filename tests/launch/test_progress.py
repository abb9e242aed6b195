"""The display of a run: lines where there is no terminal, bars and the table of ranks where there is one."""

import io
import subprocess
import sys
import time
from collections import Counter
from types import SimpleNamespace

import pytest

from repro.launch.progress import Clock, LiveProgress, PlainProgress
from tests.support.attempts import recorded
from tests.support.patience import wait_until

UNIT = SimpleNamespace(name="gpt_2x1x1", world_size=2, config=SimpleNamespace(iterations=20))
PLAN = SimpleNamespace(units=(UNIT,), repeats=1, scale="smoke", device="cpu", looks=())
GOOD = recorded({"throughput": 851.234, "losses": [2.5], "wall_s": 3.0, "log_tail": ""})
BAD = recorded(
    {
        "status": "failed",
        "failure": {"message": "rank {rank} exited with status {status}", "values": {"rank": 1, "status": 3}},
        "wall_s": 3.0,
        "log_tail": "first\n[b]last[/b]",
    }
)


def row(rank, iteration):
    return {
        "event": "iteration",
        "rank": rank,
        "iteration": iteration,
        "throughput": 851.2,
        "loss": 2.5,
        "memory_mib": 100,
    }


@pytest.fixture
def console():
    from rich.console import Console

    return Console(record=True, width=100, height=40, force_terminal=True, file=io.StringIO())


def test_lines_say_how_far_an_attempt_is_while_it_runs_and_stop_with_it():
    stream = io.StringIO()
    progress = PlainProgress(stream, summary_s=0.05)
    progress.begin(PLAN, Counter({UNIT.name: 1}))
    progress.started(UNIT, 1)
    progress.event(UNIT, row(0, 7))
    progress.event(UNIT, row(1, 6))
    line = "iteration 6/20, 851.2 samples/s, slowest rank 1, silent"
    wait_until(lambda: stream.getvalue().count(line) >= 2)
    progress.ended(UNIT, 1, GOOD)
    time.sleep(0.1)
    message = stream.getvalue()
    time.sleep(0.2)
    assert stream.getvalue() == message
    assert message.splitlines()[-1] == "    851.23 samples/s, loss 2.5000; 3.0 s, left 0:00"


def test_what_is_waited_for_is_said_once():
    stream = io.StringIO()
    progress = PlainProgress(stream)
    progress.begin(PLAN, Counter({UNIT.name: 1}))
    progress.started(UNIT, 1)
    for _ in range(3):
        progress.event(UNIT, {"event": "state", "text": "job 17 is waiting: Priority"})
    progress.close()
    assert stream.getvalue().count("gpt_2x1x1: job 17 is waiting: Priority") == 1


def test_on_a_terminal_the_ranks_stand_below_the_two_bars(console):
    progress = LiveProgress(console)
    progress.begin(PLAN, Counter({UNIT.name: 1}))
    progress.started(UNIT, 1)
    progress.event(UNIT, row(0, 7))
    progress.event(UNIT, row(1, 6))
    console.print(progress.picture())
    progress.ended(UNIT, 1, BAD)
    progress.close()
    text = console.export_text()
    lines = text.splitlines()
    bar = next(i for i, line in enumerate(lines) if "gpt_2x1x1 #1" in line and "7/20" in line)
    assert "851.20 samples/s, loss 2.5000" in lines[bar]
    assert lines[bar - 1].split()[:3] == ["smoke", "on", "cpu"]
    assert lines[bar + 1].split() == ["rank", "iteration", "samples/s", "MiB", "silent", "s"]
    assert lines[bar + 3].split()[:4] == ["1", "6/20", "851.2", "100"]
    assert "gpt_2x1x1 #1: FAILED: rank 1 exited with status 3" in text
    assert "[b]last[/b]" in text


def test_without_a_terminal_rich_is_not_imported():
    code = (
        "import io, sys; from repro.launch.progress import progress_display; import repro.launch.runner, repro.cli.tasks; "
        "progress_display(io.StringIO()).close(); print('rich' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


@pytest.mark.parametrize(("seconds", "text"), [(59.4, "0:59"), (59.6, "1:00"), (119.7, "2:00"), (60.0, "1:00")])
def test_the_time_left_has_no_sixtieth_second(monkeypatch, seconds, text):
    clock = Clock()
    clock.begin(2, 2)
    clock.ended()
    monkeypatch.setattr(time, "monotonic", lambda: clock._since + seconds)
    assert clock.left() == text
