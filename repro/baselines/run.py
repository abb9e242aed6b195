"""Entry of a baseline process: `run.py --config FILE`, alone or with a launcher's RANK, WORLD_SIZE and MASTER_ADDR."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[2])

from repro.baselines.config import BaselineConfig, load  # noqa: E402
from repro.trainers.process import run  # noqa: E402


def train(config: BaselineConfig) -> None:
    """Train; with tensor parallelism Megatron-LM demands that kernels start in the order in which they were launched.

    Source: NVIDIA/Megatron-LM, megatron/training/arguments.py, on CUDA_DEVICE_MAX_CONNECTIONS.
    """
    if config.baseline.megatron and config.layout.tensor > 1:
        os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "1")
    from repro.baselines.train import train

    train(config)


if __name__ == "__main__":
    sys.exit(run(load, train))
