"""Compares the models' operators with the CPU: `kernels.py --config FILE`, in one process."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[2])

from repro.trainers.checks.config import Comparison, parse_comparison  # noqa: E402
from repro.trainers.config import load  # noqa: E402
from repro.trainers.process import run  # noqa: E402
from repro.trainers.run import set_environment  # noqa: E402


def compare(comparison: Comparison) -> None:
    set_environment(comparison.device)
    from repro.trainers.checks.accuracy import compare

    compare(comparison)


if __name__ == "__main__":
    sys.exit(run(lambda path: load(path, parse_comparison), compare))
