"""How long tests wait for what must come: one limit for all, generous, and longer where the machine does other work too."""

import os
import random
import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE_S = 120
"""On a machine that does nothing else; what is waited for comes after a hundredth of it."""
T = TypeVar("T")


def slowness() -> float:
    """How many times longer work takes now than on an idle machine: processes that want a processor, per processor."""
    with open("/proc/loadavg") as file:
        average, _, _, running, *_ = file.read().replace("/", " ").split()
    return max(1.0, float(average) / cores(), int(running) / cores())


def cores() -> int:
    """How many processors tests may use."""
    return len(os.sched_getaffinity(0))


def patience(seconds: float = PATIENCE_S) -> float:
    """Seconds to wait for what takes much less than `seconds` on an idle machine; twice that if it gets busy meanwhile."""
    return 2 * seconds * slowness()


def wait_until(
    holds: Callable[[], T],
    otherwise: str = "what was waited for did not come",
    seconds: float = PATIENCE_S,
    every_s: float = 0.02,
) -> T:
    """Wait for a state, and return what says that it is there; time counts by the share of the machine that was ours."""
    spent, before = 0.0, time.monotonic()
    while not (state := holds()):
        time.sleep(every_s)
        now = time.monotonic()
        spent, before = spent + (now - before) / slowness(), now
        assert spent < seconds, otherwise
    return state


def dice() -> random.Random:
    """Random numbers of a test whose moments are random: the seed is printed, and SEED= gives the same ones again."""
    seed = os.environ.get("SEED") or str(random.randrange(10**9))
    print(f"SEED={seed}")
    return random.Random(seed)
