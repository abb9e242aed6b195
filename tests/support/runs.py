"""Runs that tests start with the stand-in trainer: begun, found, and what they recorded."""

import json
import subprocess
from pathlib import Path

from repro.published.cases import Layout
from repro.published.trainer_config import TrainerConfig
from tests.support import tasks

CONFIG = TrainerConfig(
    case="smoke",
    model="bert",
    program="published",
    device="cpu",
    seed=1,
    layout=Layout(),
    micro_batch=8,
    accumulation_steps=1,
    precision="fp32",
    activation_checkpointing=False,
    optimizer_sharding=0,
    dropout=0.0,
    iterations=7,
    log_interval=1,
    log_generation="C",
    shape={},
    optimizer={"lr": 0.0},
    schedule={},
)
"""A BERT trainer's configuration on one rank, for the stand-in."""


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
