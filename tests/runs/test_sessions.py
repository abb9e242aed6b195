"""Sessions of machines: which runs are of one, by what they recorded of their machine, and when."""

import pytest

from repro.runs.sessions import RunSpan, machines_of, sessions, span
from tests.support.attempts import recorded
from tests.support.synthetic import described, ran_on

HOUR = 3600.0
DAY = 24 * HOUR
ONE, OTHER = ({"id": digit * 16, "start": "0" * 16} for digit in "ab")


def named(*spans):
    """The sessions of runs a, b, c, ... with (began, ended, environment)."""
    found = sessions(RunSpan(name, *each) for name, each in zip("abcdef", spans, strict=False))
    return [found[name] for name in sorted(found)]


def on(machine):
    return ran_on(machine=machine)


@pytest.mark.parametrize(("pause", "expected"), [(0.0, "S1"), (6 * HOUR, "S1"), (6 * HOUR + 1, "S2")])
def test_a_long_pause_begins_another_session(pause, expected):
    here = on(ONE)
    assert named((1e9, 1e9 + HOUR, here), (1e9 + HOUR + pause, 1e9 + 2 * HOUR + pause, here)) == ["S1", expected]


def test_the_pause_counts_from_the_end_of_the_longest_run_before():
    here = on(ONE)
    long, short = (0.0, 6 * HOUR, here), (HOUR, 2 * HOUR, here)
    assert named(long, short, (11 * HOUR, 12 * HOUR, here)) == ["S1", "S1", "S1"]


def test_sessions_are_numbered_by_their_beginning_whatever_the_order_of_the_runs():
    here = on(ONE)
    assert named((DAY, DAY, here), (0.0, 0.0, here), (2 * DAY, 2 * DAY, here)) == ["S2", "S1", "S3"]


def test_machines_side_by_side_have_sessions_of_their_own():
    one, other = on(ONE), on(OTHER)
    assert named((0.0, HOUR, one), (1.0, HOUR, other), (HOUR, 2 * HOUR, one)) == ["S1", "S2", "S1"]


def test_a_machine_that_was_started_again_is_in_another_session():
    again = {**ONE, "start": "1" * 16}
    assert named((0.0, 1.0, on(ONE)), (2.0, 3.0, on(again))) == ["S1", "S2"]


@pytest.mark.parametrize(
    "change",
    [
        {"kernel": "6.1"},
        {"system": "Debian 12"},
        {"cpu": "another"},
        {"cpu_count": 64},
        {"memory_mib": 1},
        {"gpus": []},
        {"gpus": [{"name": "NVIDIA H200", "driver_version": "1", "memory.total": "1"}]},
        {"cluster": {"hosts": ["host2", "host1"]}},
    ],
)
def test_of_older_runs_the_facts_that_they_recorded_tell_machines_apart(change):
    assert named((0.0, 1.0, ran_on()), (2.0, 3.0, ran_on(**change))) == ["S1", "S2"]


def test_machines_that_are_alike_in_all_facts_count_as_one():
    """So that there are fewer sessions rather than more: the network's names are replaced in kept runs."""
    here = ran_on()
    there = ran_on(host="another", cpu_affinity=1, git_commit="f" * 40)
    assert machines_of(here) == machines_of(there)
    assert named((0.0, 1.0, here), (2.0, 3.0, there)) == ["S1", "S1"]
    nodes = [ran_on(cluster={"hosts": hosts}) for hosts in (["host1", "host2"], ["host2", "host1"])]
    assert machines_of(nodes[0]) == machines_of(nodes[1]) != machines_of(here)


def over(*kernels, gpu="V100", **controller):
    """Where a cluster's run was made: on nodes that have these kernels, started from a controller."""
    facts = {"system.distribution": "Debian 11", "gpu.model": gpu, "gpu.count": "8"}
    nodes = {f"node{i}": {"fields": {**facts, "system.kernel": kernel}} for i, kernel in enumerate(kernels)}
    cluster = {"hosts": [f"host{i}" for i, _kernel in enumerate(kernels, 1)], "fingerprints": {"nodes": nodes}}
    return ran_on(cluster=cluster, **controller)


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        (over("5.4", "5.10", machine=OTHER, cpu="another", memory_mib=1), "S1"),
        (over("5.10", machine=OTHER), "S1"),
        (over("5.10", "6.1", machine=OTHER), "S1"),
        (over("6.1", machine=ONE), "S2"),
        (over("5.4", gpu="H100", machine=ONE), "S2"),
    ],
)
def test_runs_over_the_same_nodes_are_of_one_session_whichever_controller_started_them(there, expected):
    """Also those over a part of the nodes, where these differ."""
    here = over("5.4", "5.10", machine=ONE)
    assert named((0.0, HOUR, here), (1.0, HOUR, there)) == ["S1", expected]
    assert machines_of(over("5.4")) != machines_of(ran_on(kernel="5.4")), "a cluster is no machine of its own"


def test_a_run_over_nodes_of_two_sessions_is_of_the_first_and_so_is_what_follows_on_either():
    one, other, both = over("5.4"), over("6.1"), over("5.4", "6.1")
    spans = [(0.0, 1.0, one), (0.0, 1.0, other), (2.0, HOUR, both), (3.0, 4.0, other)]
    assert named(*spans) == ["S1", "S2", "S1", "S1"]
    assert named(*spans, (7 * HOUR + 1, 8 * HOUR, other)) == ["S1", "S2", "S1", "S1", "S3"]
    assert named(*spans, (7 * HOUR, 8 * HOUR, other)) == ["S1", "S2", "S1", "S1", "S1"]


def test_a_run_spans_from_its_creation_to_its_last_attempts_end():
    description = described(created=100.0)
    attempts = [
        recorded({"started": at, "wall_s": seconds}) for at, seconds in ((110.0, 50.0), (120.0, 5.0), (130.0, 0.0))
    ]
    found = span("a", description, attempts)
    assert (found.run, found.began, found.ended, found.environment) == ("a", 100.0, 160.0, ran_on())
    assert span("a", description, []).ended == 100.0
