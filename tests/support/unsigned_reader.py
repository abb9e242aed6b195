"""The trainer with the token reader as oneflow 0.8.0's call for global tensors makes it, without its signature."""

import sys
from pathlib import Path

import oneflow as flow

ROOT = Path(__file__).resolve().parents[2]
sys.path[0] = str(ROOT)

from repro.trainers import run  # noqa: E402
from repro.trainers.config import load  # noqa: E402
from repro.trainers.data import tokens  # noqa: E402
from repro.trainers.process import run as run_trainer  # noqa: E402


def unsigned(signature: list):
    return flow.stateful_op("megatron_gpt_mmap_data_loader").Output("out").Build()


if __name__ == "__main__":
    tokens.reading_by = unsigned
    sys.exit(run_trainer(load, run.train))
