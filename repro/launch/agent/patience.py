"""How many times as long as usual this node may take, by its cluster's inventory; the order of the agent says it."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

_times = 1.0


def set_patience(times: float) -> None:
    """Let all limits of this process be as many times as long."""
    global _times
    _times = times


def limit(seconds: float) -> float:
    """A limit in seconds, by what it is on a node of usual speed."""
    return seconds * _times


def captured(argv: Sequence[str], seconds: float) -> subprocess.CompletedProcess:
    """Run a command and capture what it prints; OSError if it cannot start, TimeoutExpired if it outlasts the limit."""
    return subprocess.run(
        argv,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=limit(seconds),
        check=False,
    )
