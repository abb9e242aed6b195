"""Which ranks a node's agent reports as ended."""

import os
import signal
import subprocess

import pytest

from repro.launch.agent import ranks as agent_ranks
from repro.launch.agent.ranks import Ranks, Statuses


@pytest.mark.parametrize(
    ("first", "expected"), [(0x400100, [(4, -9), (5, -9)]), (0x400104, [])], ids=["goes on", "ends"]
)
def test_ranks_that_are_killed_with_their_container_are_passed_over(monkeypatch, first, expected):
    def process(state, parent, flags=0x400000, word=0):
        return [state, str(parent), "7", "7", "0", "-1", str(flags), *["0"] * 42, str(word)]

    stats = {7: process("S", 1, first), 8: process("S", 7), 20: process("Z", 8, word=9), 21: process("Z", 8, word=9)}
    monkeypatch.setattr("repro.launch.agent.ranks.stat", lambda pid: stats.get(pid, []))
    monkeypatch.setattr("repro.launch.agent.ranks.children", lambda pid: [20, 21])
    monkeypatch.setattr("os.pidfd_open", lambda pid: os.open(os.devnull, os.O_RDONLY))
    ranks = Ranks(lambda: 8, 4, 2)
    assert ranks.ended() == expected
    assert ranks.ended() == [], "each is reported only once"


COMMAND = ["/opt/venv/bin/python", "-u", "run.py"]


def said(status: int) -> bytes:
    """How OneFlow's launcher ends after a rank that ended with this status."""
    return f"Traceback ...\nsubprocess.{subprocess.CalledProcessError.__name__}: {subprocess.CalledProcessError(status, COMMAND)}\n".encode()


@pytest.mark.parametrize("status", [3, -signal.SIGABRT, -signal.SIGKILL])
def test_the_launcher_says_with_what_a_rank_ended_that_it_waited_for_first(status):
    statuses, pids = Statuses(), {2: 20, 3: 21}
    assert statuses.failed_first(pids, said(status)) is None
    statuses.gone = {21: 0.0}
    assert statuses.failed_first(pids, said(status)) == (3, status)
    assert statuses.failed_first(pids, b"Killing subprocess 7\n") is None
    statuses.gone = {20: 0.0, 21: 0.0}
    assert statuses.failed_first(pids, said(status)) is None, "which of them failed is not known"


def test_a_rank_that_was_waited_for_ended_well_if_the_launcher_goes_on(monkeypatch):
    """Not at once: a launcher that waited for one that failed needs a moment to end the others and itself."""
    clock = iter([0.0, agent_ranks.QUIET_S - 0.1, agent_ranks.QUIET_S + 0.1])
    monkeypatch.setattr("repro.launch.agent.ranks.time.monotonic", lambda: next(clock))
    monkeypatch.setattr("repro.launch.agent.ranks.stat", lambda pid: [])
    statuses = Statuses()
    assert [statuses.of(20) for _ in range(3)] == [None, None, 0]


def test_the_rank_that_a_launcher_ended_for_is_named_with_its_status(monkeypatch):
    def process(state, parent, flags=0x400000):
        return [state, str(parent), "7", "7", "0", "-1", str(flags), *["0"] * 43]

    stats = {7: process("S", 1), 8: process("S", 7), 20: process("S", 8), 21: process("S", 8)}
    monkeypatch.setattr("repro.launch.agent.ranks.stat", lambda pid: stats.get(pid, []))
    monkeypatch.setattr("repro.launch.agent.ranks.children", lambda pid: [20, 21])
    monkeypatch.setattr("os.pidfd_open", lambda pid: os.open(os.devnull, os.O_RDONLY))
    ranks = Ranks(lambda: 8, 4, 2)
    assert ranks.ended() == []
    del stats[21]
    assert ranks.ended() == [], "the launcher waited for it, and may be about to end"
    stats.clear()
    assert ranks.ended() == []
    assert ranks.failed_first(said(3)) is None, "both are gone by now"
    ranks = Ranks(lambda: 8, 4, 2)
    stats.update({7: process("S", 1), 8: process("S", 7), 20: process("S", 8), 21: process("S", 8)})
    ranks.ended()
    handles = dict(ranks._handles)
    del stats[21]
    ranks.ended()
    assert ranks.failed_first(said(3)) == (5, 3)
    assert handles.keys() == {20, 21} and ranks._handles == {20: handles[20]}, (
        "a handle of one that is gone ends every wait"
    )
