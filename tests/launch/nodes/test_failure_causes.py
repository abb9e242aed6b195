"""Which of several failures on nodes is named as the cause."""

from repro.launch.attempt_folder import rank_ended
from repro.launch.nodes.failure_causes import FailureCollector, follows_another, node_says


def test_the_cause_is_told_from_what_follows(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr("repro.launch.nodes.failure_causes.time.monotonic", lambda: clock[0])
    failures = FailureCollector()
    failures.add(rank_ended(0, -6, "n1"), follows_another(-6))
    assert failures.cause([0.5, 0.5]) is None, "the cause may still come"
    failures.add(rank_ended(8, 3, "n2"), follows_another(3))
    clock[0] += 2
    assert failures.cause([0.5, 0.5]).text() == "rank 8 on n2 exited with status 3"


def test_ranks_that_abort_because_a_node_is_lost_are_not_blamed(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr("repro.launch.nodes.failure_causes.time.monotonic", lambda: clock[0])
    failures = FailureCollector()
    failures.add(rank_ended(0, -6, "n1"), follows_another(-6))
    clock[0] += 8
    assert failures.cause([0.5, 9.0]) is None
    failures.add(node_says("n2", "it is down"))
    assert failures.cause([0.5, 15.2]).text() == "n2: it is down"
    exclusive = FailureCollector()
    exclusive.add(rank_ended(0, -6, "n1"), follows_another(-6))
    clock[0] += 2
    assert exclusive.cause([0.5, 0.5]).text() == "rank 0 on n1 was killed by SIGABRT"
