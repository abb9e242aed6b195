"""Errors that a person can cause and fix: one base class, each with the exit status of its task."""

BAD_INPUT = 2
FAILED = 1
INTERRUPTED = 130


class ReproError(Exception):
    """An error that ends a task; the message says what is wrong, where, and what to do.

    `status` is the exit status of the task: 2 for wrong input, 1 for a failure during the task.
    """

    status: int = BAD_INPUT


class PlanError(ReproError):
    """Nothing can be run as asked; the message says why and what to do."""


class FormatError(ReproError):
    """Output of a tool in a format that is not known here; the message shows how the output begins."""

    status = FAILED

    def __init__(self, tool: str, text: str) -> None:
        beginning = next((line.strip() for line in text.splitlines() if line.strip()), "nothing")
        super().__init__(f"{tool}: its output has no known form; it begins: {beginning[:120]}")
