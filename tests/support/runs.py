"""Runs that tests start as processes of their own: begun, looked up, and what they recorded."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.support.paths import ROOT, STANDIN, TRAINER_PYTHON

CONFIG = {
    "model": "bert",
    "layout": {"data": 1, "tensor": 1, "pipeline": 1},
    "micro_batch": 8,
    "accumulation_steps": 1,
    "iterations": 7,
    "log_generation": "C",
}
"""A BERT trainer's configuration on one rank, as far as the stand-in reads it."""


def only_run(tmp_path) -> Path:
    """The folder of the only run that a test made."""
    (folder,) = (tmp_path / "runs").iterdir()
    return folder


def attempts(folder):
    """What a run recorded of its attempts."""
    return [json.loads(line) for line in (folder / "attempts.jsonl").read_text().splitlines()]


def heed_interrupts():
    """As from a terminal: what a script starts in the background inherits that it ignores SIGINT."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def begin(tmp_path, name, **settings) -> subprocess.Popen:
    """Start a task with the stand-in, to stop it by hand."""
    environment = dict(os.environ, RUNS=str(tmp_path / "runs"), TRAINER_COMMAND=f"{TRAINER_PYTHON} {STANDIN}")
    environment.pop("MAKEFLAGS", None)
    return subprocess.Popen(
        [sys.executable, "-m", "repro", name],
        cwd=ROOT,
        env=environment | settings,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=heed_interrupts,
    )


def processes_of(folder):
    """Processes whose command line names the attempt's folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if str(folder) in command:
            found.append((int(entry.name), command))
    return found
