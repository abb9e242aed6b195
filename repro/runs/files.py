"""Opens the raw files of a run, which lie there as they were written, or compressed where the run was kept."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import BinaryIO

PACKED = ".gz"
KEPT = "kept.json"
"""What a kept run says of how it differs from the run as it was recorded; written by `repro.report.host.keep`."""

GPU_FILE = "gpu.csv"
GPU_FIELDS = ("index", "uuid", "utilization.gpu", "memory.used", "clocks.sm", "temperature.gpu")
"""The samples of GPUs in an attempt's folder, a CSV file without a header: nvidia-smi's names of its columns."""


def opened(path: Path) -> BinaryIO:
    """The content of a file: its own, or that of `<path>.gz`; a path that ends in .gz is unpacked as well.

    FileNotFoundError if there is neither.
    """
    packed = path if path.suffix == PACKED else path.with_name(path.name + PACKED)
    if packed != path and path.exists():
        return open(path, "rb")
    return gzip.open(packed, "rb")


def present(path: Path) -> bool:
    """Whether there is such a file, compressed or not."""
    return path.is_file() or path.with_name(path.name + PACKED).is_file()


def lines(path: Path) -> list[str]:
    """The whole lines of a file, without their ends; none if there is no such file."""
    if not present(path):
        return []
    with opened(path) as file:
        return file.read().decode("utf-8").split("\n")[:-1]
