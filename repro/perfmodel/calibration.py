"""Fits the model's constants on a few published cases, and again without each family."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

from repro.perfmodel.constants import BOUNDS, MEMORY_CONSTANTS, Constants
from repro.perfmodel.hardware import ClusterModel
from repro.perfmodel.predict import predict
from repro.perfmodel.training import training_cases
from repro.perfmodel.work import ModelJob
from repro.published.cases import Case

PULL, ROUNDS, DIGITS = 0.05, 200, 5
MOST_DAMPING = 1e12
"""Steps that are damped more are too short to show in any digit."""


@dataclass(frozen=True)
class CalibrationTarget:
    """A job with its published samples/s, and MiB if printed."""

    job: ModelJob
    throughput: float
    memory_mib: float | None


def target(case: Case) -> CalibrationTarget:
    """The published values that the fit may use."""
    memory = case.published.memory_mib
    return CalibrationTarget(
        ModelJob.of(case), float(case.published.throughput), None if memory is None else float(memory)
    )


def fit(targets: Sequence[CalibrationTarget], cluster: ClusterModel) -> Constants:
    """The constants that minimise the squared relative errors on `targets`, within their bounds.

    The targets hardly determine some constants together (a slower network and less interference explain the same
    times). A weak penalty then pulls them to the middle of their bounds: a constant at a bound counts as much as one
    case with an error of 2.5%.
    """
    times = [name for name in BOUNDS if name not in MEMORY_CONSTANTS]
    fitted = _least_squares(middle(), times, lambda tried: _time_errors(targets, cluster, tried))
    fitted = _least_squares(fitted, MEMORY_CONSTANTS, lambda tried: _memory_errors(targets, cluster, tried))
    return Constants(**{name: float(f"{value:.{DIGITS}g}") for name, value in asdict(fitted).items()})


def fit_without(cases: Sequence[Case], cluster: ClusterModel) -> dict[str, Constants]:
    """For each family the constants fitted on the training cases of all others."""
    training = training_cases(cases)
    return {
        family: fit([target(case) for case in training if case.family != family], cluster)
        for family in dict.fromkeys(case.family for case in cases)
    }


def middle() -> Constants:
    """All constants in the middle of their bounds, where every fit begins."""
    return Constants(**{name: (low + high) / 2 for name, (low, high) in BOUNDS.items()})


def _time_errors(targets: Sequence[CalibrationTarget], cluster: ClusterModel, constants: Constants) -> list[float]:
    return [math.log(predict(target.job, cluster, constants).throughput / target.throughput) for target in targets]


def _memory_errors(targets: Sequence[CalibrationTarget], cluster: ClusterModel, constants: Constants) -> list[float]:
    printed = [(target.job, target.memory_mib) for target in targets if target.memory_mib is not None]
    return [math.log(predict(job, cluster, constants).memory.total_mib / memory_mib) for job, memory_mib in printed]


def _least_squares(start: Constants, names: Sequence[str], errors: Callable[[Constants], list[float]]) -> Constants:
    """The constants of these names that minimise the squares of errors, and of what pulls them to the middle."""
    return _moved(start, names, minimum(len(names), PULL, lambda point: errors(_moved(start, names, point))))


def minimum(size: int, pull: float, errors: Callable[[Sequence[float]], list[float]]) -> list[float]:
    """The point between 0 and 1 in each of `size` directions with the least squares of its errors.

    By Levenberg's and Marquardt's method within these ends, without any randomness. A direction at an end counts as an error of half of
    `pull`.
    """

    def residuals(point: list[float]) -> list[float]:
        return errors(point) + [pull * (value - 0.5) for value in point]

    point, damping = [0.5] * size, 1e-3
    values = residuals(point)
    slopes: list[list[float]] = []
    for _ in range(ROUNDS):
        slopes = slopes or [_slope(residuals, values, point, index) for index in range(size)]
        step = _inward(point, slopes, values, damping)
        tried = [min(1.0, max(0.0, value + move)) for value, move in zip(point, step, strict=True)]
        new = residuals(tried)
        if _squares(new) < _squares(values):
            settled = _squares(values) - _squares(new) < 1e-12
            point, values, slopes, damping = tried, new, [], damping / 3
            if settled:
                break
        elif damping > MOST_DAMPING:
            break
        else:
            damping *= 4
    return point


def _moved(start: Constants, names: Sequence[str], point: Sequence[float]) -> Constants:
    values = (BOUNDS[name][0] + v * (BOUNDS[name][1] - BOUNDS[name][0]) for name, v in zip(names, point, strict=True))
    return replace(start, **dict(zip(names, values, strict=True)))


def _slope(residuals: Callable, values: list[float], point: list[float], index: int) -> list[float]:
    sign = 1 if point[index] < 0.5 else -1
    moved = [*point[:index], point[index] + sign * 1e-5, *point[index + 1 :]]
    return [(new - old) / (sign * 1e-5) for new, old in zip(residuals(moved), values, strict=True)]


def _inward(point: list[float], slopes: list[list[float]], values: list[float], damping: float) -> list[float]:
    """The step, 0 in each direction in which the point is at an end and would leave it: the others step as if alone."""
    pushes = [-_dot(slope, values) for slope in slopes]
    free = [
        index
        for index, value in enumerate(point)
        if not ((value == 0 and pushes[index] < 0) or (value == 1 and pushes[index] > 0))
    ]
    moves = dict(zip(free, _solve([slopes[index] for index in free], values, damping), strict=True))
    return [moves.get(index, 0.0) for index in range(len(point))]


def _solve(slopes: list[list[float]], values: list[float], damping: float) -> list[float]:
    """The damped normal equations, by Gauss and Jordan; the pull keeps them well away from singular."""
    size = len(slopes)
    rows = [[_dot(a, b) * (1 + damping * (a is b)) for b in slopes] + [-_dot(a, values)] for a in slopes]
    for i in range(size):
        pivot = rows[i][i]
        rows[i] = [value / pivot for value in rows[i]]
        for j in range(size):
            if j != i:
                rows[j] = [value - rows[j][i] * top for value, top in zip(rows[j], rows[i], strict=True)]
    return [row[-1] for row in rows]


def _dot(one: Sequence[float], other: Sequence[float]) -> float:
    return math.fsum(a * b for a, b in zip(one, other, strict=True))


def _squares(values: Sequence[float]) -> float:
    return _dot(values, values)
