"""Slurm's commands on PATH, in the place of which a stand-in runs jobs on this machine."""

import json
import os
import sys
from pathlib import Path

from tests.support.paths import ROOT

COMMANDS = ("sbatch", "scontrol", "sacct", "scancel", "srun")


def lay_slurm(folder: Path, monkeypatch) -> Path:
    """Lay the commands; the folder in which they keep their jobs."""
    tools, jobs = folder / "slurm-tools", folder / "jobs"
    tools.mkdir()
    jobs.mkdir()
    for name in COMMANDS:
        script = f'#!/bin/sh\nexec "{sys.executable}" -S "{ROOT}/tests/support/standin/slurm.py" {name} "$@"\n'
        (tools / name).write_text(script)
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_STANDIN", str(jobs))
    for name in ("MAKEFLAGS", "STANDIN", "SLURM_FAULT"):
        monkeypatch.delenv(name, raising=False)
    return jobs


def submitted(jobs: Path) -> list[dict]:
    """The jobs that were submitted, in their order."""
    return [
        json.loads((jobs / f"job-{number}").read_text()) for number in range(1, 1 + len(list(jobs.glob("script-*"))))
    ]
