"""Which ranks a node's agent reports as ended."""

import os

import pytest

from repro.launch.agent.ranks import Ranks


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
