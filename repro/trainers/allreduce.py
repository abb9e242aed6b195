"""Measures OneFlow's own collectives: `allreduce.py --config FILE`, alone or under oneflow.distributed.launch."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[2])

from repro.trainers.checks.config import Measurement, parse_measurement  # noqa: E402
from repro.trainers.config import load  # noqa: E402
from repro.trainers.process import run  # noqa: E402
from repro.trainers.run import set_environment, wait_for_master  # noqa: E402


def measure(measurement: Measurement) -> None:
    set_environment(measurement.device)
    wait_for_master()
    from repro.trainers.checks.collectives import measure

    measure(measurement)


if __name__ == "__main__":
    sys.exit(run(lambda path: load(path, parse_measurement), measure))
