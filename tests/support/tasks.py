"""Starts tasks as `python -m repro TASK NAME=value`, with what a test sets besides in the environment."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

from repro.cli.make import MAKES_OWN
from repro.cli.tasks import every
from repro.targets import OF_OTHER_PYTHONS, groups_of
from tests.support.groups import left_out
from tests.support.paths import ROOT, STANDIN, TRAINER_PYTHON
from tests.support.patience import patience
from tests.support.processes import heed_interrupts

TASKS = every()
VARIABLES = {option.variable for each in TASKS.values() for option in each.options.values()}
WITHIN = Path(__file__).with_name("within_groups.py")
STANDIN_COMMAND = shlex.join([str(TRAINER_PYTHON), str(STANDIN)])
SEAMS = {"TRAINER_COMMAND": "REPRO_TRAINER_COMMAND", "BASELINE_COMMAND": "REPRO_BASELINE_COMMAND"}
"""What replaces the programs that a task starts: as tests call it, and the environment variable."""


def has(name: str, variable: str) -> bool:
    """Whether a task, has an option of this name."""
    task = TASKS.get(name)
    return task is not None and variable in {option.variable for option in task.options.values()}


def call(name: str, **settings) -> tuple[list[str], dict[str, str]]:
    """The command line of a task with these settings, and its environment: without the packages that it does not ask for.

    Settings that are no option of any task are put into the environment, such as PATH and STANDIN.
    """
    texts = {SEAMS.get(key, key): str(value) for key, value in settings.items()}
    variables = [f"{key}={value}" for key, value in texts.items() if key in VARIABLES]
    environment = {
        key: value
        for key, value in os.environ.items()
        if key not in (*MAKES_OWN, *SEAMS.values(), *OF_OTHER_PYTHONS, "STANDIN")
    }
    environment |= {key: value for key, value in texts.items() if key not in VARIABLES}
    groups = frozenset(groups_of(name, dict(variable.split("=", 1) for variable in variables)))
    environment["TEST_LEFT_OUT"] = ",".join(left_out(groups))
    return [sys.executable, str(WITHIN), name, *variables], environment


def run(name: str, seconds: float | None = None, **settings) -> subprocess.CompletedProcess:
    """Run a task to its end with empty standard input; its time limit is that of an idle machine."""
    argv, environment = call(name, **settings)
    return subprocess.run(
        argv,
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=patience(seconds) if seconds else None,
    )


def start(name: str, **settings) -> subprocess.Popen:
    """Start a task as from a terminal, to stop it by hand."""
    argv, environment = call(name, **settings)
    return subprocess.Popen(
        argv,
        cwd=ROOT,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=heed_interrupts,
    )
