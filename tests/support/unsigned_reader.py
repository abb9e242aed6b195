"""The trainer with the token reader as oneflow 0.8.0's call for global tensors makes it, without its signature."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[0] = str(ROOT)

from repro.trainers import run  # noqa: E402
from repro.trainers.config import load  # noqa: E402
from repro.trainers.process import run as run_trainer  # noqa: E402

wait_for_master = run.wait_for_master


def replace_reader() -> None:
    """Once rank 0 listens: importing oneflow joins the ranks."""
    wait_for_master()
    import oneflow as flow

    from repro.trainers.data import tokens

    tokens.reading_by = lambda signature: flow.stateful_op("megatron_gpt_mmap_data_loader").Output("out").Build()


if __name__ == "__main__":
    run.wait_for_master = replace_reader
    sys.exit(run_trainer(load, run.train))
