"""How many times as long as usual this node may take, by its cluster's inventory; the order of the agent says it."""

from __future__ import annotations

_times = 1.0


def set_patience(times: float) -> None:
    """Let all limits of this process be as many times as long."""
    global _times
    _times = times


def limit(seconds: float) -> float:
    """A limit in seconds, by what it is on a node of usual speed."""
    return seconds * _times
