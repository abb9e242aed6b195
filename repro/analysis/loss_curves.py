"""Compares the loss curves of a run: how far each is from its reference's, and whether that is within the tolerance."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from repro.planning.loss_curves import CONTROL, ERROR, LAYOUT
from repro.runs.attempts import AttemptRecord
from repro.runs.failures import Failure
from repro.runs.files import RunPath
from repro.runs.metrics import METRICS, events
from repro.runs.plan import Plan
from repro.runs.unit import Unit
from repro.utils.i18n import N_
from repro.utils.stats import largest, nan_last

WINDOW = 10
FACTOR = 3
FLOOR = 2.0**-17
"""The least tolerance: 128 roundings of fp32, for where control perturbations change no digit."""
HALF_ROUNDING = 2.0**-11
HALF_ROUNDINGS = 10
"""About 100 roundings of fp16 lie between a batch and its loss; being independent they add up to the root of that."""


@dataclass(frozen=True)
class CurveDeviation:
    """How far one curve is from another, relative to the other: at the worst iteration, on average, and what decides.

    `windowed` is the largest mean of the absolute deviations of WINDOW iterations in a row: a single iteration that
    is off does not decide, and deviations of both signs do not cancel out.
    """

    largest: float
    mean: float
    windowed: float


@dataclass(frozen=True)
class CurveTolerance:
    """The windowed deviation that is allowed in one model and precision.

    FACTOR times `noise`, the largest that a control perturbation made; at least FLOOR; for AMP the roundings of fp16 added.
    """

    noise: float
    rounding: float

    @property
    def value(self) -> float:
        return largest((FACTOR * self.noise, FLOOR)) + self.rounding


@dataclass(frozen=True)
class CurveComparison:
    """The loss curves of one unit compared with its reference's, over all successful repeats of the unit.

    `problem` says why nothing can be compared; otherwise it is None.
    """

    unit: Unit
    losses: tuple[tuple[float, ...], ...] = ()
    reference_losses: tuple[float, ...] = ()
    deviation: CurveDeviation | None = None
    tolerance: CurveTolerance | None = None
    problem: Failure | None = None

    @property
    def holds(self) -> bool:
        """A layout must stay within the tolerance, an injected error must not; control perturbations set it.

        Nothing holds within a tolerance that is no number.
        """
        if self.deviation is None or self.tolerance is None or math.isnan(self.tolerance.value):
            return False
        within = self.deviation.windowed <= self.tolerance.value
        return not within if self.unit.role == ERROR else within


@dataclass(frozen=True)
class Curves:
    """All comparisons of a run, in the plan's order; references are in none."""

    comparisons: tuple[CurveComparison, ...]

    def of(self, role: str) -> list[CurveComparison]:
        """The comparisons of the units with this role."""
        return [comparison for comparison in self.comparisons if comparison.unit.role == role]

    @property
    def problems(self) -> list[str]:
        """One line per comparison that fails."""
        return [_problem(comparison) for comparison in self.comparisons if not comparison.holds]

    def summary(self) -> str:
        """The comparison and its result in one line."""
        layouts, errors = self.of(LAYOUT), self.of(ERROR)
        counts = (
            f"{sum(comparison.holds for comparison in layouts)} of {len(layouts)} loss curves agree with their references; "
            f"{sum(comparison.holds for comparison in errors)} of {len(errors)} injected errors were detected"
        )
        return "\n".join((counts, *self.problems))


def compare(plan: Plan, attempts: list[AttemptRecord], files: RunPath) -> Curves:
    """Compare every unit of a run that has a reference.

    Parameters
    ----------
    files : the run's; losses are read from the metrics of rank 0 there.
    """
    losses_by_unit: dict[str, list[tuple[float, ...]]] = {}
    for attempt in attempts:
        if attempt.status == "ok":
            losses_by_unit.setdefault(attempt.unit, []).append(read_losses(files / attempt.folder))
    named = {unit.name: unit for unit in plan.units}
    plain = [_comparison(unit, named.get(unit.reference), losses_by_unit) for unit in plan.units if unit.reference]
    return Curves(tuple(_judged(comparison, plain) for comparison in plain))


def read_losses(attempt: RunPath, name: str = "loss") -> tuple[float, ...]:
    """Loss, or another value of the metrics, at each iteration of an attempt from the first on, up to a gap."""
    rows = [event for event in events(attempt / METRICS.format(0)) if name in event]
    values = {event["iteration"]: event[name] for event in rows}
    gap = next(number for number in range(1, len(values) + 2) if number not in values)
    return tuple(values[iteration] for iteration in range(1, gap))


def deviation(losses: Sequence[float], reference: Sequence[float]) -> CurveDeviation:
    """How far two curves of the same length are apart, NaN if a loss is; ValueError for other lengths, or less than a window."""
    if len(losses) != len(reference) or len(losses) < WINDOW:
        raise ValueError(f"curves of {len(losses)} and {len(reference)} iterations, where {WINDOW} are needed")
    apart = [abs(a - b) / abs(b) for a, b in zip(losses, reference, strict=True)]
    windows = [math.fsum(apart[start : start + WINDOW]) / WINDOW for start in range(len(apart) - WINDOW + 1)]
    return CurveDeviation(largest(apart), math.fsum(apart) / len(apart), largest(windows))


def _comparison(unit: Unit, reference: Unit | None, losses_by_unit: dict) -> CurveComparison:
    """A unit's worst repeat, compared with the first repeat of its reference."""
    expected = next(iter(losses_by_unit.get(unit.reference, ())), ())
    losses = tuple(losses_by_unit.get(unit.name, ()))
    problem = _missing(unit, losses) or _missing(reference or unit, (expected,) if expected else ())
    if problem:
        return CurveComparison(unit, losses, expected, problem=problem)
    worst = max((deviation(curve, expected) for curve in losses), key=lambda candidate: nan_last(candidate.windowed))
    return CurveComparison(unit, losses, expected, worst)


def _missing(unit: Unit, curves: Sequence[Sequence[float]]) -> Failure | None:
    """Why a unit's curves cannot be compared: there is none, or one has not all its iterations or too few."""
    planned = unit.config.iterations
    if not curves:
        return Failure(N_("no repeat of {unit} succeeded"), {"unit": unit.name})
    short = min(map(len, curves))
    if short < max(planned, WINDOW):
        return Failure(
            N_("{unit} has the losses of {found} iterations, {needed} are needed"),
            {"unit": unit.name, "found": short, "needed": max(planned, WINDOW)},
        )
    return None


def _judged(comparison: CurveComparison, every: list[CurveComparison]) -> CurveComparison:
    """The comparison with its tolerance, for an error the widest of its model; none without a control perturbation."""
    model, precision = comparison.unit.model, comparison.unit.config.precision
    tolerances = _tolerances(model, every)
    if precision not in tolerances:
        missing = Failure(
            N_("no control perturbation of {model} in {precision} was measured"),
            {"model": model, "precision": precision},
        )
        return replace(comparison, problem=comparison.problem or missing)
    widest = max(tolerances.values(), key=lambda tolerance: nan_last(tolerance.value))
    return replace(comparison, tolerance=widest if comparison.unit.role == ERROR else tolerances[precision])


def _tolerances(model: str, every: list[CurveComparison]) -> dict[str, CurveTolerance]:
    """A model's tolerances by precision."""
    noises: dict[str, float] = {}
    for comparison in every:
        if comparison.unit.role == CONTROL and comparison.unit.model == model and comparison.deviation:
            precision = comparison.unit.config.precision
            noises[precision] = largest((noises.get(precision, 0.0), comparison.deviation.windowed))
    return {
        precision: CurveTolerance(noise, HALF_ROUNDINGS * HALF_ROUNDING if precision == "amp" else 0.0)
        for precision, noise in noises.items()
    }


def _problem(comparison: CurveComparison) -> str:
    name = comparison.unit.name
    if comparison.deviation is None or comparison.tolerance is None:
        return f"{name}: {comparison.problem.text() if comparison.problem else 'no tolerance is known'}"
    measured, allowed = comparison.deviation.windowed, comparison.tolerance.value
    if comparison.unit.role == ERROR:
        return f"{name}: this error deviates by {measured:.1e} only, which the tolerance {allowed:.1e} would let pass"
    return f"{name}: deviates by {measured:.1e} from {comparison.unit.reference}, allowed are {allowed:.1e}"
