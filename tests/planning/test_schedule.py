"""The order of attempts, and which nodes they get: never two on a node, nor on the network between nodes."""

import random

import pytest

from repro.perfmodel.hardware import describe
from repro.perfmodel.plan_table import duration, plan_rows
from repro.planning.plan import verdict_looks
from repro.planning.schedule import Block, FreeNodes, drawn, duration_s, in_order, startable
from repro.published.cases import load_catalogue

NAMES = ("n1", "n2", "n3", "n4")


def test_no_node_is_handed_out_twice():
    free = FreeNodes(NAMES)
    assert [free.take(count) for count in (1, 1, 3, 2, 1)] == [("n1",), ("n2",), None, ("n3", "n4"), None]
    free.give_back(("n2",))
    assert free.take(1) == ("n2",)


def test_one_attempt_at_a_time_has_the_network_between_nodes():
    free = FreeNodes(NAMES)
    assert free.take(2) == ("n1", "n2")
    assert free.take(2) is None
    assert free.take(1) == ("n3",)
    free.give_back(("n3",))
    assert free.take(2) is None, "it still has it"
    free.give_back(("n1", "n2"))
    assert free.take(2) == ("n1", "n2")


def test_nodes_that_are_lost_are_left_alone_while_others_suffice():
    free = FreeNodes(NAMES)
    there = {"n2", "n3"}
    assert [free.take(1, there.__contains__) for _ in range(3)] == [("n2",), ("n3",), None]
    free.give_back(("n2", "n3"))
    assert free.take(4, there.__contains__) == NAMES, "whoever needs all of them finds out whether they are back"


def test_the_largest_and_longest_of_a_repeat_start_first():
    blocks = [Block("a", 2, 4, 9), Block("b", 1, 1, 1), Block("c", 1, 1, 5), Block("d", 1, 2, 1), Block("e", 1, 1, 5)]
    assert [block.name for block in in_order(blocks)] == ["d", "c", "e", "b", "a"]


def test_no_repeat_begins_while_the_one_before_waits():
    waiting = [Block("large", 1, 4), Block("small", 2, 1)]
    assert startable(waiting, (), lambda block: block.nodes == 1 or None) is None
    assert startable(waiting[1:], (), lambda block: block.nodes == 1 or None) == (waiting[1], True)


def test_no_unit_runs_next_to_itself():
    waiting = [Block("a", 2, 1), Block("b", 2, 1)]
    assert startable(waiting, {"a"}, lambda block: True) == (waiting[1], True)


def test_each_program_is_the_first_as_often_as_the_others():
    programs = ("port", "tuned", "pytorch")
    orders = [tuple(drawn(programs, Block("a", repeat), run)) for run in ("x", "y") for repeat in range(300)]
    for program in programs:
        assert 150 < sum(order[0] == program for order in orders) < 250
    assert len(set(orders)) == 6 and orders[:300] != orders[300:]
    assert tuple(drawn(programs, Block("a", 0), "x")) == orders[0], "it can be drawn again"


def test_seconds_are_those_of_the_nodes_that_are_busy():
    assert duration_s([Block("a", 1, 1, 10), Block("b", 1, 1, 4), Block("c", 1, 1, 6)], 2) == 10
    assert duration_s([Block("a", 1, 2, 10), Block("b", 1, 1, 4), Block("c", 1, 1, 6)], 2) == 16
    assert duration_s([Block("a", 1, 2, 10), Block("b", 1, 2, 4)], 4) == 14, "they would share the network"
    assert duration_s([Block("a", repeat, 1, 3) for repeat in (1, 2)], 4) == 6, "no unit runs next to itself"
    assert duration_s([], 4) == 0


@pytest.mark.parametrize("nodes", [0, 5])
def test_what_cannot_run_is_an_error(nodes):
    with pytest.raises(ValueError):
        duration_s([Block("a", 1, nodes, 1)], 4)


@pytest.mark.parametrize("seed", range(20))
def test_whatever_there_is_to_run_all_of_it_ends(seed):
    """Never sooner than all nodes could, nor later than one after another."""
    chosen = random.Random(seed)
    blocks = [
        Block(str(name), repeat, nodes, seconds)
        for name in range(chosen.randint(1, 12))
        for nodes, seconds in [(chosen.randint(1, 4), chosen.uniform(1, 99))]
        for repeat in range(1, 4)
    ]
    alone, least = sum(block.seconds for block in blocks), sum(block.nodes * block.seconds for block in blocks) / 4
    assert least - 1e-6 <= duration_s(blocks, 4) <= alone + 1e-6


def test_the_published_cluster_is_hardly_ever_idle():
    """All 57 cases until their first look: what is left of the time belongs to cases that need every node."""
    cluster = describe("v100x32")
    rows, repeats = plan_rows(load_catalogue().cases, cluster), verdict_looks()[0].repeats
    found = duration(rows, cluster.nodes, repeats)
    assert len(rows) == 57 and not [row for row in rows if row.skipped]
    assert found.alone == pytest.approx(sum(row.first_look_hours for row in rows))
    assert found.least <= found.side_by_side <= 1.03 * found.least
    assert found.side_by_side < 0.8 * found.alone
    everywhere = sum(row.first_look_hours for row in rows if row.nodes == cluster.nodes)
    rest = found.side_by_side - everywhere
    assert rest < 0.4 * (found.alone - everywhere), "what runs on one node or two takes two fifths of the time"
