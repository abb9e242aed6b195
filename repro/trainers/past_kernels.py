"""Times the kernels of 2020 against OneFlow's own: `past_kernels.py --config FILE`, in one process."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[2])

from repro.trainers.config import load  # noqa: E402
from repro.trainers.past.config import Timing, parse_timing  # noqa: E402
from repro.trainers.process import run  # noqa: E402
from repro.trainers.run import set_environment  # noqa: E402


def measure(timing: Timing) -> None:
    set_environment("cuda")
    from repro.trainers.past.measure import measure

    measure(timing)


if __name__ == "__main__":
    sys.exit(run(lambda path: load(path, parse_timing), measure))
