"""What an attempt's messages are taken for: who is named when something goes wrong."""

import itertools
import threading
from dataclasses import replace

import pytest

from repro.launch.attempt import Limits, PauseDetector, StallDetector, interruptible
from repro.launch.nodes.code_upload import UploadedCode
from repro.launch.nodes.follower import AttemptFollower
from repro.launch.nodes.work import NodeWork, work_of
from repro.planning.plan import Wanted, make_plan
from repro.published.cases import Layout, load_catalogue
from tests.support.clusters import NODES, V100
from tests.support.patience import patience

CLUSTER = replace(V100, nodes=NODES[:2], gpus_per_node=2, hca="")
BEGUN = '{"event": "start", "rank": 3, "time": 1}\n'


@pytest.fixture
def follower(tmp_path):
    unit = make_plan(load_catalogue().select("bert", None), 0, Wanted(scale="smoke", repeats=1), processes=1).units[0]
    unit = replace(unit, config=replace(unit.config, layout=Layout(4)))
    work = work_of(CLUSTER, UploadedCode(), unit, True, 29500, "run", "repeat-1.attempt-1")
    return AttemptFollower(work, tmp_path, Limits())


def followed(follower, *messages, silences=lambda: {0: 0.1, 1: 0.1}, answers=lambda index: False):
    """The failure that these messages of the second node lead to."""
    for message in messages:
        follower.put(1, message)
    with interruptible(threading.Event()) as interrupts:
        return follower.follow(lambda event: None, silences, interrupts, answers).text()


def launcher_log(text):
    return {"file": "launcher.log", "at": 0, "data": text}


@pytest.mark.parametrize("help_line", ["Run 'docker run --help' for more information", "See 'docker run --help'."])
def test_docker_is_named_with_its_reason_and_not_with_its_help(follower, help_line):
    text = f"docker: Error response from daemon: Conflict.\n\n{help_line}\n"
    assert followed(follower, launcher_log(text), {"launcher": 125}) == (
        "Docker on n2 did not start the container: Error response from daemon: Conflict."
    )


def test_docker_that_fails_while_a_container_runs_did_start_it(follower):
    begun = {"file": "metrics-rank3.jsonl", "at": 0, "data": BEGUN}
    lost = launcher_log("error waiting for container: unexpected EOF\n")
    assert followed(follower, begun, lost, {"launcher": 125}, {"end": 125}) == (
        "Docker on n2 failed while the container ran: error waiting for container: unexpected EOF"
    )


def test_docker_that_was_restarted_is_named_although_its_container_was_seen_to_end_first(follower):
    assert followed(follower, {"rank": 3, "status": -15}, {"launcher": 143}, {"engine": "restarted"}) == (
        "Docker on n2 was killed, stopped or restarted, which ended the container"
    )


def test_a_docker_client_that_was_killed_is_named(follower):
    assert followed(follower, {"launcher": -9}, {"end": -9}) == (
        "the client of Docker on n2, which holds the container, was killed by SIGKILL, and the container ended"
    )


def test_a_container_that_was_stopped_from_outside_without_docker_itself(follower):
    assert followed(follower, {"launcher": 143}, {"end": 143}) == (
        "the container on n2 was stopped from outside (status 143)"
    )


def test_a_rank_whose_metrics_are_damaged_is_named_by_file_and_line(follower):
    half = {"file": "metrics-rank3.jsonl", "at": 0, "data": '{"event": "st' + BEGUN}
    named = 'line 1 of metrics-rank3.jsonl is damaged: {"event": "st{"event": "start", "rank": 3, "time": 1}'
    assert followed(follower, half, {"rank": 3, "status": 0}) == named
    assert follower.damage().text() == named


def test_a_rank_that_fails_is_named_although_its_metrics_are_damaged(follower):
    half = {"file": "metrics-rank3.jsonl", "at": 0, "data": "\x00\n"}
    assert followed(follower, half, {"rank": 3, "status": 9}) == "rank 3 on n2 exited with status 9"


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        (False, "nothing was heard from n2 for 16 s: it is down, cut off, or stopped"),
        (True, "nothing was heard from the agent on n2 for 16 s, while the node itself answers: it was stopped"),
    ],
)
def test_a_silent_agent_is_told_from_a_silent_node(follower, answers, message):
    assert followed(follower, silences=lambda: {0: 0.1, 1: 16.0}, answers=lambda index: answers) == message


@pytest.mark.parametrize(
    "consequence", [{"gone": "the connection was lost"}, {"gone": "it had heard nothing", "connected": True}, None]
)
def test_a_controller_that_slept_blames_itself(follower, monkeypatch, consequence):
    clock = iter([1000.0, 1060.0])
    monkeypatch.setattr(PauseDetector, "_now", staticmethod(lambda: next(clock, 1064.0)))
    silences = (lambda: {0: 0.1, 1: 60.0}) if consequence is None else (lambda: {0: 0.1, 1: 0.1})
    text = followed(follower, *([consequence] if consequence else []), silences=silences)
    assert text == (
        "this controller did not run for 60 s (suspended, stopped, or short of processors), and nodes end an attempt "
        "after 15 s without it"
    )


def test_a_controller_that_slept_blames_itself_for_a_job_that_is_over(follower, monkeypatch):
    clock = iter([1000.0, 1060.0])
    monkeypatch.setattr(PauseDetector, "_now", staticmethod(lambda: next(clock, 1064.0)))
    follower.end(None)
    assert followed(follower).startswith("this controller did not run for 60 s")


def test_a_controller_that_slept_for_less_than_nodes_wait_does_not_blame_itself(follower, monkeypatch):
    """Nodes of a job wait as long as the inventory says."""
    monkeypatch.setattr(NodeWork, "lease_s", 600.0)
    clock = iter([1000.0, 1060.0])
    monkeypatch.setattr(PauseDetector, "_now", staticmethod(lambda: next(clock, 1064.0)))
    assert followed(follower, {"gone": "the connection was lost"}) == "n2 was lost: the connection was lost"


def test_a_node_that_is_lost_long_after_a_pause_is_named(follower, monkeypatch):
    clock = itertools.chain([1000.0], itertools.count(1060.0, 4.0))
    monkeypatch.setattr(PauseDetector, "_now", staticmethod(lambda: next(clock)))
    rounds = iter([None] * 10)

    def silences():
        if next(rounds, "over") == "over":
            follower.put(1, {"gone": "the connection was lost"})
        return {0: 0.1, 1: 0.1}

    assert followed(follower, silences=silences) == "n2 was lost: the connection was lost"


def test_seconds_in_which_nobody_looked_are_no_stall(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr("repro.launch.attempt.time.monotonic", lambda: clock[0])
    stall = StallDetector(Limits(stall_timeout_s=20))
    assert stall.check(5) is None
    clock[0] += 300
    assert stall.check(5) is None, "the controller was stopped, and ranks may have gone on"
    for _ in range(19):
        clock[0] += 1
        assert stall.check(5) is None
    clock[0] += 2
    assert "no rank has printed" in stall.check(5).text()


def test_a_job_that_ends_well_with_messages_missing_has_failed(follower):
    for rank in (0, 1):
        follower.put(0, {"file": f"metrics-rank{rank}.jsonl", "at": 0, "data": '{"event": "end"}\n'})
    follower.put(0, {"end": 0})
    follower.end(None)
    assert followed(follower) == "the job has ended, but not all that n2 wrote has arrived here"


def test_events_come_to_an_end_while_a_node_goes_on_sending(follower, monkeypatch):
    """Or nobody would look whether the run is to be interrupted."""
    monkeypatch.setattr("repro.launch.nodes.follower.TAKE_S", 0.05)
    stop = threading.Event()

    def send():
        while not stop.is_set():
            follower.put(1, launcher_log("x"))

    threading.Thread(target=send, daemon=True).start()
    done = threading.Thread(target=lambda: list(follower.events(0.1)), daemon=True)
    done.start()
    done.join(patience())
    stop.set()
    assert not done.is_alive()


def test_a_slow_cluster_s_nodes_may_be_silent_for_longer(follower):
    """Until its own limit a silent node is none that was lost: then what it says next counts."""
    follower._work = replace(follower._work, cluster=replace(CLUSTER, patience=6.0))
    silences = iter([{0: 0.1, 1: 60.0}] * 3 + [{0: 0.1, 1: 91.0}] * 1000)
    assert followed(follower, silences=lambda: next(silences)).startswith("nothing was heard from n2 for 91 s")
