"""Errors that a person can cause and mend: one base, each with the exit status that its task ends with."""

BAD_INPUT = 2
FAILED = 1
INTERRUPTED = 130


class ReproError(Exception):
    """What keeps a task from going on; the message says what is wrong, where, and what to do.

    `status` is the exit status of the task: 2 where the input is wrong, 1 where something failed on the way.
    """

    status = BAD_INPUT


class FormatError(ReproError):
    """A tool's output that cannot be read; the message shows how it begins."""

    status = FAILED

    def __init__(self, tool: str, text: str):
        beginning = next((line.strip() for line in text.splitlines() if line.strip()), "nothing")
        super().__init__(f"{tool}: its output has no known form; it begins: {beginning[:120]}")
