"""Machines and attempts that answer with recorded texts and events, for the tests of the preflight's checks."""

import threading
from collections.abc import Callable

from repro.cluster.local_shell import NOT_FOUND
from repro.cluster.ssh import CommandResult
from repro.launch.attempt import Outcome
from repro.preflight.framework import Expected, Machine
from repro.runs.failures import Failure


class Recorded:
    """Answers a command by the first key that its text begins with; a list is used up answer by answer.

    An answer is the output, or (status, output). Commands without an answer are not installed.
    """

    def __init__(self, answers: dict):
        self.answers = {key: list(answer) if isinstance(answer, list) else answer for key, answer in answers.items()}
        self.commands: list[str] = []

    def run(self, argv, *, timeout=None, check=True, stdin=None, sudo=False):
        command = " ".join(argv)
        self.commands.append(f"sudo {command}" if sudo else command)
        for key, answer in self.answers.items():
            if command.startswith(key):
                if isinstance(answer, list):
                    answer = answer.pop(0) if len(answer) > 1 else answer[0]
                status, text = answer if isinstance(answer, tuple) else (0, answer)
                return CommandResult(text, text if status else "", status)
        return CommandResult("", f"bash: {argv[0]}: command not found", NOT_FOUND)

    def close(self):
        pass


class RecordedAttempt:
    """An attempt that hands out recorded events, then ends with `failure` and that log."""

    def __init__(self, events: list[dict], failure: Failure | None = None, log: str = "") -> None:
        self.events, self.failure, self.log = events, failure, log

    def run(self, on_event: Callable[[dict], None], stop: threading.Event | None = None) -> Outcome:
        for event in self.events:
            on_event(event)
        return Outcome(self.failure, 1.0, self.log if self.failure else "")


def machine(answers: dict, name="node1", other_nodes=(), **expected) -> Machine:
    """A machine with these answers and expectations."""
    return Machine(name, Recorded(answers), Expected(**expected), tuple(other_nodes))
