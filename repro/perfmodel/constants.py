"""The constants of the performance model that no data sheet has: meaning, bounds and values."""

from __future__ import annotations

import tomllib
from dataclasses import asdict, dataclass
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


CONFIDENCE = 0.9
"""The share of cases that lie within an uncertainty."""
JUDGES_WITHIN = 0.25
"""The largest uncertainty with which an expectation judges a measurement: a factor of 1.25 either way."""
ELSEWHERE = "elsewhere"
"""The kind of case with too few measurements for an uncertainty of its own."""


@dataclass(frozen=True)
class Uncertainty:
    """How far nine in ten of `cases` are off, for throughput and for memory: a factor less one, either way.

    0.25 says that a measurement lies between the expectation over 1.25 and 1.25 times the expectation.
    """

    cases: int
    throughput: float
    memory: float


@dataclass(frozen=True)
class Calibration:
    """The constants and how far they can be trusted.

    uncertainty: that of a kind of published case (`training.kind_of`) on the GPUs that the constants are fitted on, and
    ELSEWHERE; measured: that of a program on a GPU for a family of cases, from kept runs; without: the constants fitted
    without a family.
    """

    constants: Constants
    uncertainty: dict[str, Uncertainty]
    measured: dict[tuple[str, str, str], Uncertainty]
    without: dict[str, Constants]


def load_calibration(file: Path = FILE) -> Calibration:
    """The calibration that `make model` wrote."""
    with open(file, "rb") as stream:
        data = tomllib.load(stream)
    measured = {
        (program, gpu, family): Uncertainty(**values)
        for program, gpus in data["measured"].items()
        for gpu, families in gpus.items()
        for family, values in families.items()
    }
    return Calibration(
        Constants(**data["constants"]),
        {kind: Uncertainty(**values) for kind, values in data["uncertainty"].items()},
        measured,
        {family: Constants(**values) for family, values in data["without"].items()},
    )


def as_toml(calibration: Calibration) -> str:
    """The calibration file."""
    lines = ["# Written by `make model`; reports/model/ shows what it is worth. Uncertainties are factors less one."]
    tables: dict[str, Constants | Uncertainty] = {"constants": calibration.constants}
    tables |= {f"uncertainty.{kind}": level for kind, level in calibration.uncertainty.items()}
    tables |= {f"measured.{'.'.join(group)}": level for group, level in calibration.measured.items()}
    tables |= {f"without.{family}": constants for family, constants in calibration.without.items()}
    for title, values in tables.items():
        lines += ["", f"[{title}]", *(f"{name} = {_number(value)}" for name, value in asdict(values).items())]
    return "\n".join(lines) + "\n"


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.5g}"
