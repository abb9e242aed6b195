"""Fits the model's constants on few published cases, and says how well it predicts all the others."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median

from repro.perfmodel.constants import BOUNDS, MEMORY_CONSTANTS, Constants, Uncertainty
from repro.perfmodel.hardware import Cluster
from repro.perfmodel.predict import kind_of, predict
from repro.perfmodel.work import Job
from repro.published.cases import Case

PULL, ROUNDS, DIGITS = 0.05, 200, 5
CONFIDENCE = 0.9


@dataclass(frozen=True)
class Target:
    """A job with what was published of it: samples/s, and MiB where printed."""

    job: Job
    throughput: float
    memory_mib: float | None


@dataclass(frozen=True)
class Outcome:
    """A case and its prediction; errors are relative to the published figure, predicted less published."""

    case: Case
    trained: bool
    throughput: float
    memory_mib: float
    error: float
    memory_error: float | None


def training_cases(cases: Iterable[Case]) -> list[Case]:
    """The few cases that the constants are fitted on.

    Those on one GPU, and those that are data-parallel over several nodes, without optimizer sharding; of several
    batch sizes of one model in one report, only the first.
    """
    first: dict[tuple, int] = {}
    chosen = []
    for case in cases:
        layout = case.layout
        plain = layout.tensor == layout.pipeline == 1 and not case.optimizer_sharding
        if plain and (layout.world_size == 1 or case.nodes > 1):
            key = (case.report, tuple(sorted(case.shape.items())))
            if first.setdefault(key, case.micro_batch) == case.micro_batch:
                chosen.append(case)
    return chosen


def target(case: Case) -> Target:
    """What the fit may see of a case."""
    memory = case.published.memory_mib
    return Target(Job.of(case), float(case.published.throughput), None if memory is None else float(memory))


def fit(targets: Sequence[Target], cluster: Cluster) -> Constants:
    """The constants with the least squares of relative errors on `targets`, within their bounds.

    Some constants the targets hardly determine together (a slower network and less interference explain the same
    times). A weak pull towards the middle of the bounds decides there: a constant that stands at a bound counts as
    much as one case off by 2.5 %.
    """
    times = [name for name in BOUNDS if name not in MEMORY_CONSTANTS]
    found = _least_squares(middle(), times, lambda tried: _time_errors(targets, cluster, tried))
    found = _least_squares(found, MEMORY_CONSTANTS, lambda tried: _memory_errors(targets, cluster, tried))
    return Constants(**{name: float(f"{value:.{DIGITS}g}") for name, value in asdict(found).items()})


def middle() -> Constants:
    """All constants in the middle of their bounds, where every fit begins."""
    return Constants(**{name: (low + high) / 2 for name, (low, high) in BOUNDS.items()})


def _time_errors(targets: Sequence[Target], cluster: Cluster, constants: Constants) -> list[float]:
    return [math.log(predict(each.job, cluster, constants).throughput / each.throughput) for each in targets]


def _memory_errors(targets: Sequence[Target], cluster: Cluster, constants: Constants) -> list[float]:
    printed = [(each.job, each.memory_mib) for each in targets if each.memory_mib is not None]
    return [math.log(predict(job, cluster, constants).memory.total_mib / memory_mib) for job, memory_mib in printed]


def _least_squares(start: Constants, names: Sequence[str], errors: Callable[[Constants], list[float]]) -> Constants:
    """Levenberg's and Marquardt's method on constants scaled to their bounds, without any randomness."""

    def residuals(point: list[float]) -> list[float]:
        return errors(_moved(start, names, point)) + [PULL * (value - 0.5) for value in point]

    point, damping = [0.5] * len(names), 1e-3
    values = residuals(point)
    for _ in range(ROUNDS):
        slopes = [_slope(residuals, values, point, index) for index in range(len(names))]
        step = _solve(slopes, values, damping)
        tried = [min(1.0, max(0.0, value + move)) for value, move in zip(point, step, strict=True)]
        new = residuals(tried)
        if _squares(new) < _squares(values):
            settled = _squares(values) - _squares(new) < 1e-12
            point, values, damping = tried, new, damping / 3
            if settled:
                break
        else:
            damping *= 4
    return _moved(start, names, point)


def _moved(start: Constants, names: Sequence[str], point: Sequence[float]) -> Constants:
    values = (BOUNDS[name][0] + v * (BOUNDS[name][1] - BOUNDS[name][0]) for name, v in zip(names, point, strict=True))
    return replace(start, **dict(zip(names, values, strict=True)))


def _slope(residuals: Callable, values: list[float], point: list[float], index: int) -> list[float]:
    sign = 1 if point[index] < 0.5 else -1
    moved = [*point[:index], point[index] + sign * 1e-5, *point[index + 1 :]]
    return [(new - old) / (sign * 1e-5) for new, old in zip(residuals(moved), values, strict=True)]


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


def outcomes(cases: Sequence[Case], cluster: Cluster, constants: Constants) -> list[Outcome]:
    """Every case with its prediction."""
    trained = {case.name for case in training_cases(cases)}
    return [_outcome(case, case.name in trained, cluster, constants) for case in cases]


def _outcome(case: Case, trained: bool, cluster: Cluster, constants: Constants) -> Outcome:
    predicted = predict(Job.of(case), cluster, constants)
    memory, printed = predicted.memory.total_mib, case.published.memory_mib
    return Outcome(
        case=case,
        trained=trained,
        throughput=predicted.throughput,
        memory_mib=memory,
        error=predicted.throughput / case.published.throughput - 1,
        memory_error=None if printed is None else memory / printed - 1,
    )


@dataclass(frozen=True)
class Summary:
    """Median and worst absolute relative error of some cases, and the level below which nine in ten lie."""

    cases: int
    median: float
    worst: float
    level: float


def summary(errors: Iterable[float | None]) -> Summary:
    """The summary of errors, None left out; ValueError where there is none."""
    sizes = sorted(abs(error) for error in errors if error is not None)
    if not sizes:
        raise ValueError("no errors to summarise")
    level = sizes[min(len(sizes), math.ceil(CONFIDENCE * (len(sizes) + 1))) - 1]
    return Summary(len(sizes), median(sizes), sizes[-1], level)


def uncertainties(results: Sequence[Outcome]) -> dict[str, Uncertainty]:
    """For each kind of case, the error within which nine in ten held-out cases of it lie."""
    held_out = [each for each in results if not each.trained]
    kinds = sorted({_kind(each) for each in held_out})
    return {kind: _uncertainty([each for each in held_out if _kind(each) == kind]) for kind in kinds}


def _uncertainty(results: Sequence[Outcome]) -> Uncertainty:
    throughput = summary(each.error for each in results).level
    printed = [each.memory_error for each in results if each.memory_error is not None]
    return Uncertainty(throughput, summary(printed).level if printed else float("nan"))


def _kind(outcome: Outcome) -> str:
    return kind_of(outcome.case.layout, outcome.case.optimizer_sharding)


def as_toml(constants: Constants, uncertainty: dict[str, Uncertainty]) -> str:
    """The calibration file."""
    lines = ["# Written by `make model`, which fits these on the training cases alone; reports/model/ shows how well."]
    lines += ["", "[constants]", *(f"{name} = {value!r}" for name, value in asdict(constants).items())]
    for kind, level in uncertainty.items():
        lines += ["", f"[uncertainty.{kind}]", *(f"{name} = {value:.4f}" for name, value in asdict(level).items())]
    return "\n".join(lines) + "\n"
