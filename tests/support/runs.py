"""Runs that tests start with the stand-in trainer: begun, found, and what they recorded."""

import json
import subprocess
from pathlib import Path

from tests.support import tasks

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


def attempts(folder) -> list[dict]:
    """What a run recorded of its attempts."""
    return [json.loads(line) for line in (folder / "attempts.jsonl").read_text().splitlines()]


def begin(tmp_path, name, **settings) -> subprocess.Popen:
    """Start a task with the stand-in, to stop it by hand."""
    return tasks.start(name, RUNS=tmp_path / "runs", TRAINER_COMMAND=tasks.STANDIN_COMMAND, **settings)
