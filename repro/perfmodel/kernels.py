"""Fits what kernels reach on a generation of GPUs on half of the kept trainings, and holds the result against the others.

The constants are fitted on V100s. On other GPUs their errors are not scattered but biased, by program and model: another
host launches kernels faster, other libraries reach other shares of the peak. So three numbers are fitted for each group
of a generation, a program and a model.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cache

from repro.perfmodel.calibration import DIGITS, minimum
from repro.perfmodel.constants import Constants, Coverage, Group, KernelFit
from repro.perfmodel.errors import summary
from repro.perfmodel.predict import predict
from repro.perfmodel.validation import MeasuredTraining, load_measurements
from repro.perfmodel.work import ModelJob
from repro.utils.grouping import by_key

BOUNDS = {"launch_us": (1.0, 64.0), "matrix": (0.25, 4.0), "memory": (0.125, 8.0)}
"""Between which each number is sought, on a logarithmic scale; the pull is to the middle, where kernels are as on V100s."""
PULL = 0.15
LEAST = 2
"""The fewest distinct trainings that a group is fitted on."""


def halves(measurements: Sequence[MeasuredTraining]) -> tuple[list[MeasuredTraining], list[MeasuredTraining]]:
    """The half to fit on, and the half to check with: every second training of a program and family, in sorted order.

    A training that was measured on several GPU models is in one half with all of them.
    """
    order: dict[tuple[str, str], list[str]] = {}
    for measurement in sorted(measurements, key=lambda measurement: str(measurement.job)):
        trainings = order.setdefault((measurement.program, measurement.family), [])
        if str(measurement.job) not in trainings:
            trainings.append(str(measurement.job))
    first = [
        measurement
        for measurement in measurements
        if order[measurement.program, measurement.family].index(str(measurement.job)) % 2 == 0
    ]
    return first, [measurement for measurement in measurements if measurement not in first]


def fit_kernels(measurements: Iterable[MeasuredTraining], constants: Constants) -> dict[Group, KernelFit]:
    """The kernels of each group with at least LEAST distinct trainings, by the least squares of logarithmic errors."""
    groups = by_key(measurements, lambda measurement: measurement.group)
    return {
        group: _fit(mine, constants)
        for group, mine in sorted(groups.items())
        if len({measurement.job for measurement in mine}) >= LEAST
    }


def _fit(measurements: Sequence[MeasuredTraining], constants: Constants) -> KernelFit:
    def errors(point: Sequence[float]) -> list[float]:
        mine = _kernels(point).on(constants)
        return [error(measurement, mine) for measurement in measurements]

    kernels = _kernels(minimum(len(BOUNDS), PULL, errors))
    return KernelFit(**{name: float(f"{value:.{DIGITS}g}") for name, value in vars(kernels).items()})


def _kernels(point: Sequence[float]) -> KernelFit:
    values = (low * (high / low) ** at for (low, high), at in zip(BOUNDS.values(), point, strict=True))
    return KernelFit(**dict(zip(BOUNDS, values, strict=True)))


def error(measurement: MeasuredTraining, constants: Constants) -> float:
    """The logarithm of the modelled throughput over the measured one."""
    return math.log(predict(measurement.job, measurement.cluster, constants).throughput / measurement.throughput)


def left_out_factor(measurements: Sequence[MeasuredTraining], constants: Constants) -> float:
    """Within which nine in ten of the trainings lie, less one, each of them left out of the fit, on all its GPU models.

    A training counts once, where it is furthest off: on several GPU models its errors are much the same, and would count as
    several. Infinite if no group has two trainings besides one, so that nothing is known of it.
    """
    return _left_out_factor(tuple(measurements), constants)


@cache
def _left_out_factor(measurements: tuple[MeasuredTraining, ...], constants: Constants) -> float:
    furthest = []
    for (group, job), mine in by_key(measurements, lambda measurement: (measurement.group, measurement.job)).items():
        rest = (other for other in measurements if other.group == group and other.job != job)
        if kernels := fit_kernels(rest, constants).get(group):
            furthest.append(max(abs(error(measurement, kernels.on(constants))) for measurement in mine))
    return summary(map(math.expm1, furthest)).level if furthest else math.inf


def coverage(
    checked: Sequence[MeasuredTraining], kernels: Mapping[Group, KernelFit], constants: Constants, factor: float
) -> tuple[int, int]:
    """How many of the trainings have kernels, fitted on others, and how many of those lie within the factor."""
    errors = [
        error(measurement, kernels[measurement.group].on(constants))
        for measurement in checked
        if measurement.group in kernels
    ]
    return len(errors), sum(abs(deviation) <= math.log1p(factor) for deviation in errors)


def calibrate(
    measurements: Sequence[MeasuredTraining], constants: Constants, exchanged: bool = False
) -> tuple[dict[Group, KernelFit], dict[str, Coverage]]:
    """The kernels of each group from the first half of its trainings, and the coverage of each generation.

    The factor of a generation is that of the half that has the larger one, so that it does not depend on which half a
    training happens to be in. A generation with too few trainings to tell a factor gets no kernels and no coverage. With
    `exchanged` the kernels come from the second half.
    """
    fitted, checked = reversed(halves(measurements)) if exchanged else halves(measurements)
    kernels = fit_kernels(fitted, constants)
    coverages = {}
    for generation in dict.fromkeys(group[0] for group in kernels):
        mine, others = (
            [measurement for measurement in half if measurement.group[0] == generation] for half in (fitted, checked)
        )
        factor = max(left_out_factor(half, constants) for half in (mine, others))
        if math.isfinite(factor):
            coverages[generation] = Coverage(len(mine), factor, *coverage(others, kernels, constants, factor))
    return {group: fit for group, fit in kernels.items() if group[0] in coverages}, coverages


@cache
def fitted_trainings() -> frozenset[tuple[str, ModelJob]]:
    """Program and job of the trainings that the kernels in the repository are fitted on: they check nothing."""
    return frozenset((measurement.program, measurement.job) for measurement in halves(load_measurements())[0])
