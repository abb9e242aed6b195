"""Lists the performance-relevant libraries that this process has loaded."""

from __future__ import annotations

from pathlib import Path

LIBRARIES = ("liboneflow", "libtorch_", "libnccl", "libcublas", "libcudnn", "libcuda.", "libibverbs")


def libraries() -> list:
    """Paths of the libraries mapped into this process."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    paths = {line.split(maxsplit=5)[5] for line in maps if line.count("/")}
    return sorted(path for path in paths if Path(path).name.startswith(LIBRARIES))
