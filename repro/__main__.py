"""Command line without make: `python -m repro bench MODEL=gpt`, or with Fabric's options `python -m repro bench --model gpt`.

`python -m repro --make TASK` is what the Makefile runs: the variables come from make's own command line, and what the
task needs is installed first. `python -m repro --check TASK` only says what is wrong with these variables.
"""

from __future__ import annotations

import atexit
import gc
import os
import re
import shutil
import signal
import subprocess
import sys

from repro.utils.closed_output import end_without_reader

FEW_COLLECTIONS = 200_000
"""Objects made between two looks for garbage: importing makes 90,000 and drops few, and looking took 5 % of a short run."""


def begin_clean(arguments: list[str]) -> None:
    """Begin again without the variables by which a site puts other packages into every Python, if there are any."""
    from repro.targets import OF_OTHER_PYTHONS

    if set(OF_OTHER_PYTHONS) & os.environ.keys():
        for name in OF_OTHER_PYTHONS:
            os.environ.pop(name, None)
        os.execv(sys.executable, [sys.executable, "-m", "repro", *arguments])


def main(arguments: list[str]) -> int:
    """Run what the arguments say; the exit status."""
    gc.set_threshold(FEW_COLLECTIONS)
    atexit.register(gc.freeze)  # or the interpreter looks through every object before it ends, 10 % of a short run
    if arguments[:1] in (["--make"], ["--check"]) and len(arguments) != 2:
        print(f"python -m repro {arguments[0]} TASK: name one task, as `make` lists them", file=sys.stderr)
        return 2
    if arguments[:1] == ["--make"]:
        name = arguments[1]
        if status := set_up(name):
            return status
        from repro.cli.make import run_from_make

        return run_from_make(name)
    if arguments[:1] == ["--check"]:
        from repro.cli.make import check

        return check(arguments[1])
    if (
        arguments
        and all(re.match(r"[A-Z_]+=", argument) for argument in arguments[1:])
        and not arguments[0].startswith("-")
    ):
        from repro.cli.make import run

        pairs = (argument.partition("=") for argument in arguments[1:])
        return run(arguments[0], [(name, value) for name, _, value in pairs])
    from invoke import Program

    from repro.cli.fab import namespace

    Program(name="repro", binary="python -m repro", namespace=namespace).run(["python -m repro", *arguments])
    return 0


def set_up(task: str) -> int:
    """Install what a task needs and begin again with it, unless all of it is there; the status of a failed set-up.

    The environment variable REPRO_NO_SET_UP leaves all of this out.
    """
    from repro.bootstrap import ROOT, is_complete, needs_of
    from repro.targets import make_variables

    if os.environ.get("REPRO_NO_SET_UP"):
        return 0
    variables = dict(make_variables(os.environ.get("MAKEFLAGS", "")))
    if all(is_complete(environment, groups) for environment, groups in needs_of(task, variables)):
        return 0
    python = variables.get("PYTHON") or shutil.which("python3") or sys.executable
    if status := subprocess.run([python, "-m", "repro.bootstrap", "--for", task], cwd=ROOT).returncode:
        return status
    os.execv(sys.executable, [sys.executable, "-m", "repro", "--make", task])


def open_standard_files() -> None:
    """Give the process an input, empty where it was closed, and outputs that take any text.

    A closed output leads nowhere, and one in ASCII shows escapes.
    """
    if sys.stdin is None:
        if os.open(os.devnull, os.O_RDONLY):  # the lowest free number is the closed one's
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    for number, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:
            if os.open(os.devnull, os.O_WRONLY) != number:  # the lowest free number is the closed one's
                os.dup2(os.open(os.devnull, os.O_WRONLY), number)
            setattr(sys, name, open(number, "w", encoding="utf-8", closefd=False))  # noqa: SIM115
        getattr(sys, name).reconfigure(errors="backslashreplace")


def whole(arguments: list[str]) -> int:
    """The process from its environment to its exit status; Ctrl-C before a task heeds signals is no traceback either."""
    try:
        begin_clean(arguments)
        open_standard_files()
        end_without_reader()
        return main(arguments)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 128 + signal.SIGINT


if __name__ == "__main__":
    sys.exit(whole(sys.argv[1:]))
