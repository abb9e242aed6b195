"""The counters of this node's RDMA adapters, as the kernel has them; needs Python 3.8 and nothing else."""

from __future__ import annotations

import glob
import os

CLASS = "/sys/class/infiniband"
GROUPS = ("counters", "hw_counters")
"""Folders of a port: what every port of InfiniBand counts, and what a driver counts besides."""


def counters(place: str = CLASS) -> dict[str, dict[str, int]]:
    """Every counter that can be read, such as counters/port_xmit_data, by "device:port"; empty without an adapter."""
    counts: dict[str, dict[str, int]] = {}
    for port in sorted(glob.glob(os.path.join(place, "*", "ports", "*"))):
        device, _, number = port[len(place) + 1 :].split("/")
        values = counts.setdefault(f"{device}:{number}", {})
        for path in sorted(path for group in GROUPS for path in glob.glob(os.path.join(port, group, "*"))):
            value = _number(path)
            if value is not None:
                values[path[len(port) + 1 :]] = value
    return counts


def _number(path: str) -> int | None:
    """A file's number; None where there is none: some counters of a port can only be written, or are not supported."""
    try:
        with open(path) as file:
            text = file.read().strip()
    except (OSError, UnicodeDecodeError):
        return None
    return int(text) if text.isascii() and text.isdigit() else None
