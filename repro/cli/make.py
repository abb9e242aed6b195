"""The bridge from make: variables of its command line to the options of the task of the same name.

`make bench MODEL=gpt` runs `python -m repro --make bench`, which reads the variables from MAKEFLAGS: there they are as
they were typed, while make would expand `$(…)` in what it exports. `python -m repro bench MODEL=gpt` does the same
without make.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Iterable

from repro.cli import tasks
from repro.cli.session import chosen_cases
from repro.cli.settings import Exit, OptionTask, exit_statuses
from repro.targets import ENVIRONMENT, command_line, make_variables

PR_SET_PDEATHSIG = 1
OF_LAYOUTS = ("curves",)
"""Tasks whose CASES are no names of published ones."""
OF_MODELS = ("plan", "explore")
"""Tasks whose CLUSTER need be no inventory."""

SITES = {"HOST", "NAME"}
"""Variables that shells set by themselves, csh and those of WSL."""
MAKES_OWN = ("MAKEFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "MFLAGS")


def run_from_make(name: str) -> int:
    """Run a task with the variables of the make that started this process; the exit status.

    It is stopped, as by hand, when that make ends before it.
    """
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)  # a make that is killed outright passes nothing on
    flags = os.environ.get("MAKEFLAGS", "")
    for own in MAKES_OWN:  # what a task starts is no part of this make
        os.environ.pop(own, None)
    return run(name, make_variables(flags))


def run(name: str, pairs: Iterable[tuple[str, str]]) -> int:
    """Run a task with variables; the exit status. Those of the processes' environment are put there."""
    variables = dict(pairs)
    try:
        with exit_statuses():
            task = tasks.find(name)
            given = {key: value for key, value in variables.items() if key not in ENVIRONMENT}
            task.of_variables(given)
            _notice_environment(task, variables)
            os.environ.update((key, value) for key, value in variables.items() if key in ENVIRONMENT)
            task(**{key.lower(): value for key, value in given.items()})
    except Exit as end:
        if end.message:
            print(end.message, file=sys.stderr)
        return end.status
    return 0


def check(name: str) -> int:
    """Say what is wrong with a task's variables, of the make that started this process, and do nothing else.

    For the set-up, before it installs anything: this imports the standard library alone. The exit status; 0 if nothing
    is wrong.
    """
    variables = dict(make_variables(os.environ.get("MAKEFLAGS", "")))
    try:
        with exit_statuses():
            task = tasks.find(name)
            values = task.of_variables({key: value for key, value in variables.items() if key not in ENVIRONMENT})
            if "model" in task.options and not values.get("run"):
                cases = values.get("cases") if name not in OF_LAYOUTS else None
                chosen_cases(values.get("model") or "all", cases)
            elif "model" in task.options:
                from repro.runs.record import RUNS, Run

                Run.open(values["run"], values.get("runs") or RUNS, option="RUN")
            if values.get("cluster") and name not in OF_MODELS:
                from repro.cluster.inventory import inventory_folder

                inventory_folder(values["cluster"])
            task.check(values)
    except Exit as end:
        print(end.message, file=sys.stderr)
        return end.status
    return 0


def _notice_environment(task: OptionTask, variables: dict[str, str]) -> None:
    """Say once of variables of the environment that they have no effect, where the task has options of these names."""
    own = {option.variable for option in task.options.values()} - variables.keys() - set(ENVIRONMENT) - SITES
    if unread := sorted(own & os.environ.keys()):
        line = command_line(task.target, {name: os.environ[name] for name in unread})
        print(
            f"notice: {', '.join(unread)} of the environment has no effect; give it behind make: {line}",
            file=sys.stderr,
        )
