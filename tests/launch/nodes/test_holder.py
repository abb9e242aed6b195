"""What those are told who want a node that another run has."""

import re

import pytest

from repro.launch.nodes.holder import held_text, holder, others_text
from repro.launch.nodes.unlock import Occupancy
from tests.support.clusters import V100

WHO = {"who": "eve@desk process 7", "what": "make bench", "since": "noon", "run": "r1"}
ALIVE = {**WHO, "pid": 12, "process": "b-12-3", "account": "eve", "silent_s": 1.0, "stopped": False, "may_end": True}
KNOWN = "in use by eve@desk process 7 since noon for `make bench`, run r1 (process 12 of account eve)"
SILENT = re.escape(KNOWN) + r"; not heard of since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d \(90 s\)"


@pytest.mark.parametrize(
    ("changes", "pattern"),
    [
        ({}, re.escape(KNOWN) + "; wait for that to end"),
        ({"silent_s": 90.0}, SILENT + r"\. End it with `make unlock CLUSTER=\S+`"),
        ({"stopped": True, "silent_s": 90.0}, SILENT + r"; it is stopped\. End it with `make unlock CLUSTER=\S+`"),
        ({"silent_s": 90.0, "job": "81"}, SILENT.replace("r1", "r1, job 81") + r"\. End it with `scancel 81`"),
        (
            {"silent_s": 90.0, "may_end": False},
            SILENT + r"\. Ask account eve or an administrator of the node to end it \(`kill 12`, .*`kill -KILL 12`\)",
        ),
    ],
)
def test_who_has_a_node_and_what_to_do_about_it(changes, pattern):
    assert re.fullmatch(pattern, held_text(V100, ALIVE | changes))


def test_a_holder_without_a_record_is_named_by_the_kernel_s_word():
    found = {"pid": 12, "process": "b-12-3", "account": "eve", "stopped": False, "may_end": False}
    assert held_text(V100, found) == (
        "in use by process 12 of account eve, which recorded nothing of itself; it is not known when it was last heard "
        "of. Ask account eve or an administrator of the node to end it (`kill 12`, if need be `kill -KILL 12`)"
    )
    unseen = {"pid": 0, "process": "", "stopped": False, "may_end": False}
    assert held_text(V100, unseen).endswith("Ask an administrator of the node to end it")


def test_each_run_has_a_mark_of_its_own():
    first, second = holder("a"), holder("a")
    assert first["mark"] != second["mark"]
    assert re.fullmatch(r"\S+@\S+ process \d+", first["who"])


@pytest.mark.parametrize(
    ("mine", "abandoned", "ours"), [(True, True, True), (False, True, False), (True, False, False)]
)
def test_containers_of_others_are_ended_only_by_whose_they_are(mine, abandoned, ours):
    each = {"name": "c", "run": "r2", "account": "bob", "work": "/w", "abandoned": abandoned, "mine": mine}
    text = others_text(V100, [each])
    assert f"c (run r2, account bob{', whose run is dead' if abandoned else ''})" in text
    assert ("make unlock" in text) == ours
    assert ("ask whose they are" in text) != ours


@pytest.mark.parametrize(
    ("changes", "force", "refused"),
    [
        ({}, False, "still heard of"),
        ({}, True, ""),
        ({"stopped": True}, False, ""),
        ({"silent_s": 15.0}, False, ""),
        ({"silent_s": 14.0}, False, "still heard of"),
        ({"stopped": True, "may_end": False}, True, "Ask account eve"),
    ],
)
def test_what_is_ended_takes_the_right_to_and_a_reason(changes, force, refused):
    refusal = Occupancy("n1", ALIVE | changes, [(12, "python")], []).refusal(force)
    assert refused in refusal
    assert bool(refusal) == bool(refused)


def test_a_slow_holder_is_heard_of_for_as_long_as_its_lease():
    quiet = ALIVE | {"silent_s": 60.0}
    said = [Occupancy("n1", quiet, [], [], patience).refusal(False) for patience in (1.0, 6.0)]
    assert ["still heard of" in each for each in said] == [False, True]
