"""Entry point of a trainer process: `run.py --config FILE`, alone or under oneflow.distributed.launch."""

from __future__ import annotations

import ctypes
import os
import socket
import sys
import time
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[2])

from repro.trainers.config import Config, load  # noqa: E402
from repro.trainers.data.standin.sets import make  # noqa: E402
from repro.trainers.process import run  # noqa: E402

CPU_SWITCH = "BOXING_DISABLE_MIDDLE_NODE_AND_CHECK"
ONE_UPDATE = "ENABLE_MULTI_TENSOR_MODEL_UPDATE"
MASTER_PATIENCE_S = 60.0
MASTER_POLL_S = 0.02
M_MXFAST = 1
"""mallopt's name for the size up to which freed blocks are kept apart for the next request."""


def train(config: Config) -> None:
    if config.device == "cpu":
        merge_freed_blocks()
    set_environment(config.device, config)
    if config.data.standin:
        make(config.data.standin, config.data.path)
    wait_for_master()
    from repro.trainers.train import train

    train(config)


def set_environment(device: str, config: Config | None = None) -> None:
    """Set the environment variables that OneFlow reads when it is loaded; existing values are kept.

    Fused parameter updates need a single stage that is not a two-dimensional mesh: on a mesh, OneFlow 0.8.0 aborts when
    it asks for a one-dimensional signature (op_graph.h:43).

    ONEFLOW_FUSE_MODEL_UPDATE_CAST, which saves a cast of all parameters under AMP, is always off. Its updates lack
    clipping and the flag that skips an overflow, so the first overflow makes every parameter NaN (seen on H200s). With
    pipeline parallelism OneFlow aborts (task_graph.cpp:638).

    On the CPU, the search for cheaper transfers through a third layout is off: it takes a third of the compile time and
    changes no loss.
    """
    switches = [CPU_SWITCH] if device == "cpu" else []
    if config and device == "cuda":
        layout, program = config.layout, config.choices
        switches += program.switches
        if program.one_update and layout.pipeline == 1 and 1 in (layout.data, layout.tensor):
            switches.append(ONE_UPDATE)
    for name in switches:
        os.environ.setdefault(f"ONEFLOW_{name}", "1")


def merge_freed_blocks() -> None:
    """Make malloc merge freed blocks at once, instead of collecting small ones and walking over all of them later.

    OneFlow's compiler frees millions of small blocks. This reduces the compile time of the published GPT with 16
    layers, on one rank and two CPU cores, from 10.3 s to 8.6 s (medians of six). Only on the CPU, where no speed is
    judged: the published runs had malloc's defaults.
    """
    ctypes.CDLL(None).mallopt(M_MXFAST, 0)


def wait_for_master() -> None:
    """Wait until rank 0 listens; OneFlow itself would retry a failed connection only after 10 seconds."""
    if os.environ.get("RANK", "0") == "0":
        return
    address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    deadline = time.monotonic() + MASTER_PATIENCE_S
    while time.monotonic() < deadline:
        try:
            socket.create_connection(address, timeout=1.0).close()
            return
        except OSError:
            time.sleep(MASTER_POLL_S)


if __name__ == "__main__":
    sys.exit(run(load, train))
