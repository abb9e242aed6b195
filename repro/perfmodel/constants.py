"""The few numbers that the performance model cannot take from a data sheet: what they mean, their bounds and values."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from pathlib import Path

from repro.utils.paths import DATA

FILE = DATA / "calibration.toml"


@dataclass(frozen=True)
class Constants:
    """Fitted once for a software stack, on training cases alone (calibration.py).

    matrix_tensor, matrix_fp32: share of the peak that large matrix products and convolutions reach;
    memory: share of the memory bandwidth that kernels reach;
    network: share of the port's rate that collectives reach;
    interference: how much a hidden transfer slows the computation that hides it, as a share of its own time;
    jitter: standard deviation of the ranks' speeds, as all wait for the slowest;
    launch_us: fixed overhead of a kernel;
    context_mib: CUDA context, libraries and their workspaces;
    communicator_mib: what NCCL and the network layer take once there is more than one rank.
    """

    matrix_tensor: float
    matrix_fp32: float
    memory: float
    network: float
    interference: float
    jitter: float
    launch_us: float
    context_mib: float
    communicator_mib: float


BOUNDS = {
    "matrix_tensor": (0.30, 0.95),
    "matrix_fp32": (0.30, 1.00),
    "memory": (0.40, 0.95),
    "network": (0.50, 0.98),
    "interference": (0.0, 1.0),
    "jitter": (0.0, 0.05),
    "launch_us": (2.0, 40.0),
    "context_mib": (300.0, 2000.0),
    "communicator_mib": (0.0, 1500.0),
}
MEMORY_CONSTANTS = ("context_mib", "communicator_mib")


@dataclass(frozen=True)
class Uncertainty:
    """Relative error within which nine in ten held-out cases of a kind lie, for throughput and for memory."""

    throughput: float
    memory: float


@dataclass(frozen=True)
class Calibration:
    """The constants and how far they can be trusted; `uncertainty` maps a kind of case to an Uncertainty."""

    constants: Constants
    uncertainty: dict[str, Uncertainty]


def load_calibration(file: Path = FILE) -> Calibration:
    """The calibration that `make model` wrote."""
    with open(file, "rb") as stream:
        data = tomllib.load(stream)
    constants = Constants(**{field.name: float(data["constants"][field.name]) for field in fields(Constants)})
    return Calibration(constants, {kind: Uncertainty(**value) for kind, value in data["uncertainty"].items()})
