"""Why a run failed, as a message that can be translated, and what known lines in a log mean."""

import re
from dataclasses import dataclass, field
from pathlib import Path

from repro.utils.i18n import N_, Translate
from repro.utils.printable import LINE, one_line, printable

KNOWN = [
    (r"No space left on device|ENOSPC", N_("the disk is full: free some space, then resume the run")),
    (
        r"out of memory|OUT_OF_MEMORY|MemoryError|std::bad_alloc",
        N_("out of memory: choose a smaller case or a larger device"),
    ),
    (
        r"[Aa]ddress already in use|Failed to listen|bind.*failed",
        N_("a port was taken by another program: resume the run, or give a free PORT"),
    ),
    (
        r"Too many open files|EMFILE",
        N_("too few files may be open: raise the limit nofile of the account, or of Docker's containers"),
    ),
    (
        r"Resource temporarily unavailable|can't start new thread|cannot fork|pthread_create failed",
        N_(
            "no further process or thread may be started: raise the limit nproc of the account, or pids of the container"
        ),
    ),
]
KNOWN_ON_GPUS = [
    (
        r"no kernel image is available|PTX.*unsupported",
        N_("this GPU needs another stack: the wheel holds no code for it"),
    ),
    (r"CUDA driver version is insufficient", N_("the NVIDIA driver is too old for CUDA 10.2: install 440.33 or newer")),
]
STACK = re.compile(r"\s*@ +(0x[0-9a-f]+|\(nil\))|\*\*\* Check failure stack trace")
"""A line of the native stack trace that OneFlow prints after the error."""


@dataclass(frozen=True)
class Failure:
    """A reason: a message that is looked up in the catalogue, and the values that belong in it."""

    message: str
    values: dict = field(default_factory=dict)
    hint: str | None = None

    def text(self, translate: Translate = str) -> str:
        """The reason as one sentence, with the known cause, if any; quoted output is made `one_line`."""
        values = {key: one_line(value) if isinstance(value, str) else value for key, value in self.values.items()}
        reason = translate(self.message).format(**values)
        return f"{reason} ({translate(self.hint)})" if self.hint else reason

    @classmethod
    def from_json(cls, content: dict) -> "Failure":
        """The reason that `as_json` gave, from its keys among others."""
        return cls(content["message"], content["values"], content.get("hint"))

    def as_json(self) -> dict:
        """The form that is kept in results."""
        return {"message": self.message, "values": self.values, "hint": self.hint}


def no_number(iteration: int) -> Failure:
    """The loss of a training is lost: it computes nothing, and its speed is no result."""
    return Failure("the loss at iteration {iteration} is not a number", {"iteration": iteration})


def explain_logs(failure: Failure, logs: list[Path], device: str = "cuda", size: int = 200_000) -> Failure:
    """Add the known meaning of the last log lines, if there is one.

    On the CPU, OneFlow always reports at the start that it finds no CUDA driver, which explains nothing.
    """
    hints = KNOWN + (KNOWN_ON_GPUS if device == "cuda" else [])
    for path in logs:
        text = _read_end(path, size)
        for pattern, hint in hints:
            if re.search(pattern, text):
                return Failure(failure.message, failure.values, hint)
    return failure


def last_lines(path: Path, count: int = 15, size: int = 100_000) -> list[str]:
    """The last `printable` lines of a log without native stack traces, if it exists and is not empty."""
    if not path.exists():
        return []
    lines = printable(_read_end(path, size), LINE).strip().split("\n")
    return [line for line in lines if line and not STACK.match(line)][-count:]


def _read_end(path: Path, size: int) -> str:
    """The last bytes of a log as text."""
    with open(path, "rb") as file:
        file.seek(max(0, path.stat().st_size - size))
        return file.read().decode("utf-8", "replace")
