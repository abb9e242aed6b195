"""The programs of checks, such as the one that compares operators with the CPU: attempts that a launcher makes of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from repro.launch.attempt import Attempt, Outcome
from repro.planning.unit import TF32


class CheckProgram(Protocol):
    """A program of a check that is ready to start."""

    def run(self, on_event: Callable[[dict], None]) -> Outcome: ...


def takes_tf32(config: dict) -> bool:
    """Whether a check's program, by its configuration, is to compute in TF32."""
    return TF32 in config.get("precisions", ())


ProgramOf = Callable[[dict, Path], CheckProgram]
"""Makes such a program from its configuration and the folder for its files."""


class Stoppable:
    """An attempt as a program, which ends with KeyboardInterrupt once `stop` is set."""

    def __init__(self, attempt: Attempt, stop: threading.Event):
        self._attempt, self._stop = attempt, stop

    def run(self, on_event: Callable[[dict], None]) -> Outcome:
        return self._attempt.run(on_event, self._stop)
