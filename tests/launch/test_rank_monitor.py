"""What is shown of a running attempt: the rank that is last, how long each has been silent, nodes and ranks."""

import pytest

from repro.launch.rank_monitor import Watch


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


def row(rank, iteration, node=None, throughput=851.2, memory=1234.5):
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
        watch.event(row(rank, 41, f"node{rank // 2 + 1}"))
    watch.event(row(3, 40, "node2"))
    clock.now += 0.4
    assert watch.line() == "gpt_2x2x1: iteration 40/200, 851.2 samples/s, slowest rank 3 on node2, silent 0.4 s"


def test_of_ranks_that_are_as_far_the_one_that_has_been_silent_longest_is_named(clock):
    watch = two_nodes(clock)
    watch.event(row(2, 40, "node2"))
    clock.now += 12
    for rank in (0, 1, 3):
        watch.event(row(rank, 40, f"node{rank // 2 + 1}"))
    assert "slowest rank 2 on node2, silent 12.0 s" in watch.line()


def test_before_the_first_row_there_is_no_speed(clock):
    watch = Watch("bert", 10, 1, clock)
    clock.now += 7
    assert watch.line() == "bert: iteration 0/10, slowest rank 0, silent 7.0 s"


def test_a_rank_that_has_ended_is_not_silent(clock):
    watch = Watch("bert", 10, 2, clock)
    watch.event(row(0, 10))
    watch.event({"event": "end", "rank": 0})
    watch.event(row(1, 9))
    clock.now += 100
    assert "slowest rank 1, silent 100.0 s" in watch.line()
    assert watch.rows(8)[0][2:] == ("ended", "851.2", "1234", "", "")
    watch.event(row(1, 10))
    watch.event({"event": "end", "rank": 1})
    assert watch.line() == "bert: iteration 10/10, 851.2 samples/s, all ranks have ended"


def test_what_is_waited_for_is_said_until_a_rank_speaks(clock):
    watch = Watch("bert", 10, 1, clock)
    watch.event({"event": "state", "text": "job 17 is waiting: Resources"})
    assert watch.line() == "bert: job 17 is waiting: Resources"
    watch.event(start(0))
    assert "waiting" not in watch.line()


def test_the_table_has_a_row_for_each_rank(clock):
    watch = two_nodes(clock)
    watch.event(row(3, 5, "node2"))
    watch.event({"event": "gpu", "node": "node2", "index": 1, "utilisation": 97})
    clock.now += 2
    assert watch.rows(4) == [
        ("node1", "0", "0/200", "", "", "", "2.0"),
        ("node1", "1", "0/200", "", "", "", "2.0"),
        ("node2", "2", "0/200", "", "", "", "2.0"),
        ("node2", "3", "5/200", "851.2", "1234", "97", "2.0"),
    ]


def test_with_more_ranks_than_lines_the_table_has_a_row_for_each_node(clock):
    watch = two_nodes(clock, ranks=16, per_node=8)
    for rank in range(16):
        watch.event(row(rank, 6, f"node{rank // 8 + 1}", memory=100 + rank))
    for index, used in enumerate((99, 98, 97, 96, 95, 94, 93, 12)):
        watch.event({"event": "gpu", "node": "node2", "index": index, "utilisation": used})
    clock.now += 11
    watch.event(row(3, 7, "node1"))
    assert watch.rows(15) == [
        ("node1", "0-7", "6/200", "851.2", "1234", "", "11.0 <"),
        ("node2", "8-15", "6/200", "851.2", "115", "12", "11.0"),
    ]


def test_with_more_nodes_than_lines_those_that_are_last_are_shown(clock):
    watch = two_nodes(clock, ranks=64, per_node=1)
    for rank in range(64):
        watch.event(row(rank, 1 if rank in (40, 41) else 2, f"node{rank + 1}"))
    rows = watch.rows(3)
    assert [cells[0] for cells in rows] == ["node41", "node42", "62 more nodes"]


def test_the_picture_leaves_out_what_is_not_known_and_takes_names_as_they_are(clock):
    from rich.console import Console

    watch = Watch("bert", 10, 2, clock)
    watch.event(row(0, 3))
    watch.event({"event": "state", "text": "waiting for [red]node2[/red]"})
    console = Console(record=True, width=80, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(watch.table(8))
    lines = [line.split() for line in console.export_text().splitlines()]
    assert lines == [
        ["waiting", "for", "[red]node2[/red]"],
        ["rank", "iteration", "samples/s", "MiB", "silent", "s"],
        ["0", "3/10", "851.2", "1234", "0.0"],
        ["1", "starting", "0.0"],
    ]
