"""What is shown of a run: each attempt as it starts and ends, and now and then how far it is and which rank is last."""

import io
import time
from collections import Counter
from types import SimpleNamespace

import pytest

from repro.launch.progress import Clock, Progress, Watch
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


def test_lines_say_how_far_an_attempt_is_while_it_runs_and_stop_with_it():
    stream = io.StringIO()
    progress = Progress(stream, summary_s=0.05)
    progress.begin(PLAN, Counter({UNIT.name: 1}))
    progress.started(UNIT, 1)
    progress.event(UNIT, row(0, 7))
    progress.event(UNIT, row(1, 6))
    line = "iteration 6/20, 851.2 samples/s, loss 2.5000, up to 100 MiB, slowest rank 1, silent"
    wait_until(lambda: stream.getvalue().count(line) >= 2)
    progress.ended(UNIT, GOOD)
    time.sleep(0.1)
    message = stream.getvalue()
    time.sleep(0.2)
    assert stream.getvalue() == message
    assert message.splitlines()[-1] == "    851.23 samples/s, loss 2.5000; 3.0 s, left 0:00"


def test_what_is_waited_for_is_said_once():
    stream = io.StringIO()
    progress = Progress(stream)
    progress.begin(PLAN, Counter({UNIT.name: 1}))
    progress.started(UNIT, 1)
    for _ in range(3):
        progress.event(UNIT, {"event": "state", "text": "job 17 is waiting: Priority"})
    progress.close()
    assert stream.getvalue().count("gpt_2x1x1: job 17 is waiting: Priority") == 1


@pytest.mark.parametrize(("seconds", "text"), [(59.4, "0:59"), (59.6, "1:00"), (119.7, "2:00"), (60.0, "1:00")])
def test_the_time_left_has_no_sixtieth_second(monkeypatch, seconds, text):
    clock = Clock()
    clock.begin(2, 2)
    clock.ended()
    monkeypatch.setattr(time, "monotonic", lambda: clock._since + seconds)
    assert clock.left() == text


class FakeClock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return FakeClock()


def start(rank, node=None):
    return {"event": "start", "rank": rank} | ({"node": node} if node else {})


def figures(rank, iteration, node=None, throughput=851.2, memory=1234.4):
    figures = {"iteration": iteration, "throughput": throughput, "memory_mib": memory, "loss": 1.0}
    return start(rank, node) | {"event": "iteration"} | figures


def two_nodes(clock, ranks=4, per_node=2):
    watch = Watch("gpt_2x2x1", 200, ranks, clock)
    for rank in range(ranks):
        watch.event(start(rank, f"node{rank // per_node + 1}"))
    return watch


def test_the_line_names_the_rank_that_is_last_and_its_silence(clock):
    watch = two_nodes(clock)
    for rank in (0, 1, 2):
        watch.event(figures(rank, 41, f"node{rank // 2 + 1}"))
    watch.event(figures(3, 40, "node2"))
    clock.now += 0.4
    assert (
        watch.line()
        == "gpt_2x2x1: iteration 40/200, 851.2 samples/s, loss 1.0000, up to 1234 MiB, slowest rank 3 on node2, silent 0.4 s"
    )


def test_of_ranks_that_are_as_far_the_one_that_has_been_silent_longest_is_named(clock):
    watch = two_nodes(clock)
    watch.event(figures(2, 40, "node2"))
    clock.now += 12
    for rank in (0, 1, 3):
        watch.event(figures(rank, 40, f"node{rank // 2 + 1}"))
    assert "slowest rank 2 on node2, silent 12.0 s" in watch.line()


def test_before_the_first_row_there_is_no_speed(clock):
    watch = Watch("bert", 10, 1, clock)
    clock.now += 7
    assert watch.line() == "bert: iteration 0/10, slowest rank 0, silent 7.0 s"


def test_a_rank_that_has_ended_is_not_silent(clock):
    watch = Watch("bert", 10, 2, clock)
    watch.event(figures(0, 10))
    watch.event({"event": "end", "rank": 0})
    watch.event(figures(1, 9))
    clock.now += 100
    assert "slowest rank 1, silent 100.0 s" in watch.line()
    watch.event(figures(1, 10))
    watch.event({"event": "end", "rank": 1})
    assert watch.line() == "bert: iteration 10/10, 851.2 samples/s, loss 1.0000, up to 1234 MiB, all ranks have ended"


def test_what_is_waited_for_is_said_until_a_rank_speaks(clock):
    watch = Watch("bert", 10, 1, clock)
    watch.event({"event": "state", "text": "job 17 is waiting: Resources"})
    assert watch.line() == "bert: job 17 is waiting: Resources"
    watch.event(start(0))
    assert "waiting" not in watch.line()


def test_of_gpus_the_least_busy_and_the_fullest_are_shown(clock):
    watch = two_nodes(clock)
    for rank in range(4):
        watch.event(figures(rank, 6, f"node{rank // 2 + 1}", memory=100 + rank))
    for index, used in enumerate((99, 12)):
        watch.event({"event": "gpu", "node": "node2", "index": index, "utilisation": used})
    assert "up to 103 MiB, GPUs from 12 % busy, slowest rank 0 on node1" in watch.line()


def test_a_failure_is_shown_with_the_end_of_its_log():
    stream = io.StringIO()
    progress = Progress(stream)
    progress.begin(PLAN, Counter({UNIT.name: 1}))
    progress.started(UNIT, 1)
    progress.ended(UNIT, BAD)
    text = stream.getvalue()
    assert "FAILED: rank 1 exited with status 3" in text and text.endswith("    | first\n    | [b]last[/b]\n")
