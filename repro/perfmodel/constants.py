"""The constants of the performance model that no data sheet has: meaning, bounds and values."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
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


Group = tuple[str, str, str]
"""A generation of GPUs, a program and a model, whose kernels are fitted together."""


@dataclass(frozen=True)
class KernelFit:
    """What the kernels of a group reach, fitted on half of its kept trainings (kernels.py).

    launch_us: fixed overhead of a kernel; matrix, memory: factors on the shares of the peak and of the bandwidth that the
    constants have. Work is counted for the published program, so fused kernels, which move fewer bytes, reach more.
    """

    launch_us: float
    matrix: float
    memory: float

    def on(self, constants: Constants) -> Constants:
        """The constants for this group."""
        return replace(
            constants,
            launch_us=self.launch_us,
            matrix_tensor=self.matrix * constants.matrix_tensor,
            matrix_fp32=self.matrix * constants.matrix_fp32,
            memory=self.memory * constants.memory,
        )


@dataclass(frozen=True)
class Coverage:
    """How a generation's expectations held where they were not fitted.

    `within` of the `checked` trainings, on which nothing was fitted, lie within 1 + `factor` of the expectation. That is
    what nine in ten trainings of a half lie within, each left out of its own fit and taken where it is furthest off, of
    the half where it is larger.
    """

    fitted: int
    factor: float
    checked: int
    within: int


@dataclass(frozen=True)
class Calibration:
    """The constants and how far they can be trusted.

    uncertainty: that of a kind of published case (`training.kind_of`) on the GPUs that the constants are fitted on, and
    ELSEWHERE; without: the constants fitted without a family; kernels: those of each group that kept runs measured;
    generations: how well these hold; measured: the uncertainty of each of these groups.
    """

    constants: Constants
    uncertainty: dict[str, Uncertainty]
    without: dict[str, Constants]
    kernels: dict[Group, KernelFit] = field(default_factory=dict)
    generations: dict[str, Coverage] = field(default_factory=dict)
    measured: dict[Group, Uncertainty] = field(default_factory=dict)

    def constants_of(self, group: Group) -> Constants:
        """The constants of a group: its own kernels, where they were fitted."""
        return self.kernels[group].on(self.constants) if group in self.kernels else self.constants


def load_calibration(file: Path = FILE) -> Calibration:
    """The calibration that `make model` wrote."""
    with open(file, "rb") as stream:
        data = tomllib.load(stream)
    return Calibration(
        Constants(**data["constants"]),
        {kind: Uncertainty(**values) for kind, values in data["uncertainty"].items()},
        without={family: Constants(**values) for family, values in data["without"].items()},
        kernels={group: KernelFit(**values) for group, values in _groups(data["kernels"])},
        generations={generation: Coverage(**values) for generation, values in data["generation"].items()},
        measured={group: Uncertainty(**values) for group, values in _groups(data["measured"])},
    )


def _groups(tables: dict) -> Iterator[tuple[Group, dict]]:
    for generation, programs in tables.items():
        for program, models in programs.items():
            for model, values in models.items():
                yield (generation, program, model), values


def as_toml(calibration: Calibration) -> str:
    """The calibration file."""
    lines = ["# Written by `make model`; reports/model/ shows what it is worth. Uncertainties are factors less one."]
    tables: dict[str, Constants | Uncertainty | KernelFit | Coverage] = {"constants": calibration.constants}
    tables |= {f"uncertainty.{kind}": level for kind, level in calibration.uncertainty.items()}
    tables |= {f"kernels.{'.'.join(group)}": kernels for group, kernels in calibration.kernels.items()}
    tables |= {f"generation.{name}": coverage for name, coverage in calibration.generations.items()}
    tables |= {f"measured.{'.'.join(group)}": level for group, level in calibration.measured.items()}
    tables |= {f"without.{family}": constants for family, constants in calibration.without.items()}
    for title, values in tables.items():
        lines += ["", f"[{title}]", *(f"{name} = {_number(value)}" for name, value in asdict(values).items())]
    return "\n".join(lines) + "\n"


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.5g}"
