"""Draws the verdict on each case of a run: conditions first, then reproduced, faster, slower or inconclusive.

`verdicts.json` follows the schema in `repro/data/verdicts.schema.json`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from repro.analysis.comparability import (
    NO_SUCCESS,
    NO_SUCH_CASE,
    SMOKE_RUN,
    Reason,
    configuration_reasons,
    remarks,
)
from repro.analysis.conditions import UnitEvidence, unmet
from repro.analysis.cross_hardware import HardwareComparison, Order, comparisons, orders
from repro.analysis.process_info import process_info
from repro.analysis.ratio import Ratio, published_ratio
from repro.analysis.results import Result
from repro.perfmodel.past_kernels import Gain, gain
from repro.published.cases import Case, Catalogue, load_catalogue
from repro.published.figures import load_published_cluster
from repro.published.noise import published_noise
from repro.runs.attempts import AttemptRecord
from repro.runs.plan import PUBLISHED, SMOKE, Plan
from repro.runs.record import Run
from repro.runs.unit import Unit
from repro.utils.sequential import Looks
from repro.utils.stats import Interval

SCHEMA = "repro/verdicts/2"
OUTCOMES = ("reproduced", "faster", "slower", "inconclusive", "none")
HELD, NOT_HELD, NOTHING_TO_JUDGE = 0, 1, 3
DECIDED = ("reproduced", "faster", "slower")
NOISE_FACTOR = 3
GIVEN = "given"


@dataclass(frozen=True)
class Tolerance:
    """How far a ratio may be from one, and where this limit comes from.

    `basis` is "given", or whose noise it was derived from: "report", "model" or "all". `noise` is the largest relative
    deviation between equal configurations there, and `estimated_on` are the cases whose figures show it.
    """

    value: float
    basis: str
    noise: float | None = None
    estimated_on: tuple[str, ...] = ()

    def as_json(self) -> dict:
        return {**vars(self), "estimated_on": list(self.estimated_on)}


@dataclass(frozen=True)
class Verdict:
    """One published case. `outcome` is one of OUTCOMES: "none" wherever `reasons` forbid a verdict on speed.

    `comparable` is None if nothing was measured, and true without a verdict if what was measured is not sound.
    `published` and the measured `throughputs` are in samples/s; neither `ratio` nor `tolerance` nor the expected `gain`
    is given without a verdict.
    """

    case: str
    report: str | None
    unit: str
    comparable: bool | None
    outcome: str
    reasons: tuple[Reason, ...]
    remarks: tuple[Reason, ...]
    published: float | None
    throughputs: tuple[float, ...]
    planned: int
    failed: int
    interrupted: int
    ratio: Ratio | None = None
    tolerance: Tolerance | None = None
    gain: Gain | None = None

    @property
    def complete(self) -> bool:
        return len(self.throughputs) >= self.planned

    @property
    def shortfall(self) -> str:
        """Why a case was not reproduced, in a few words."""
        if not self.throughputs:
            return "no repeat succeeded"
        if self.reasons:
            return "; ".join(reason.text() for reason in self.reasons)
        missing = "" if self.complete else f", {len(self.throughputs)} of {self.planned} repeats"
        interval = self.ratio.interval if self.ratio and not self.ratio.decisive else None
        if isinstance(interval, Interval):
            return f"{self.outcome}{missing}: the repeats give a confidence of {interval.confidence:.1%} only"
        return self.outcome + missing + (f": {interval}" if interval is not None else "")

    @property
    def chance(self) -> float:
        """The probability with which its interval misses the true ratio; 0 where nothing was decided."""
        if self.outcome not in DECIDED or not self.ratio or not self.ratio.interval:
            return 0.0
        return 1 - self.ratio.interval.confidence

    def as_json(self) -> dict:
        repeats = {
            "planned": self.planned,
            "succeeded": len(self.throughputs),
            "failed": self.failed,
            "interrupted": self.interrupted,
        }
        return {
            "case": self.case,
            "report": self.report,
            "unit": self.unit,
            "comparable": self.comparable,
            "outcome": self.outcome,
            "reasons": [reason.as_json() for reason in self.reasons],
            "remarks": [remark.as_json() for remark in self.remarks],
            "published_samples_per_s": self.published,
            "measured_samples_per_s": list(self.throughputs),
            "repeats": repeats,
            "ratio": self.ratio and self.ratio.as_json(),
            "tolerance": self.tolerance and self.tolerance.as_json(),
            **({"expected_faster": self.gain.as_json()} if self.gain else {}),
        }


@dataclass(frozen=True)
class Judgement:
    """The verdicts of a run in the plan's order, what else was compared, and what could not be run here."""

    run: str
    scale: str
    given: float | None
    verdicts: tuple[Verdict, ...]
    comparisons: tuple[HardwareComparison, ...]
    orders: tuple[Order, ...]
    skipped: tuple[str, ...]
    failed: int
    interrupted: int
    looks: Looks = ()

    @property
    def counts(self) -> dict[str, int]:
        """Number of verdicts per outcome."""
        outcomes = [verdict.outcome for verdict in self.verdicts]
        return {outcome: outcomes.count(outcome) for outcome in OUTCOMES}

    @property
    def false_verdicts(self) -> float:
        """Upper bound of the expected number of wrong verdicts.

        Each verdict has the confidence of its own interval, without correction for their number. A verdict is wrong
        only if its interval misses the true ratio.
        """
        return sum(verdict.chance for verdict in self.verdicts)

    @property
    def short_of(self) -> list[Verdict]:
        """Verdicts that keep a run from holding: slower, inconclusive, not sound, or a planned repeat missing."""
        judged = [verdict for verdict in self.verdicts if verdict.comparable is not False]
        return [
            verdict for verdict in judged if verdict.outcome not in ("reproduced", "faster") or not verdict.complete
        ]

    @property
    def status(self) -> int:
        """0: every comparable case is reproduced or faster and complete; 1: one is not; 3: nothing is comparable.

        At the published scale a case without a single success counts as not held; a smoke run is never judged.
        """
        if self.short_of:
            return NOT_HELD
        return HELD if any(verdict.comparable for verdict in self.verdicts) else NOTHING_TO_JUDGE

    def summary(self) -> str:
        """One line that says what `status` stands for, and which cases it comes from."""
        if self.status == HELD:
            held = ", ".join(f"{n} {outcome}" for outcome, n in self.counts.items() if n and outcome != "none")
            held += f" within the given tolerance of {self.given:.3g}" if self.given is not None else ""
            return f"every comparable case holds: {held}; attempts that failed: {self.failed}"
        if self.status == NOT_HELD:
            cases = ", ".join(f"{verdict.case} ({verdict.shortfall})" for verdict in self.short_of)
            return f"does not hold: {cases}; attempts that failed: {self.failed}"
        reasons = {reason.text() for verdict in self.verdicts for reason in verdict.reasons}
        return f"nothing here can be judged: {'; '.join(sorted(reasons)) or 'no unit stands for a published case'}"

    def as_json(self) -> dict:
        """The content of `verdicts.json`; the same run yields the same content."""
        return {
            "schema": SCHEMA,
            "run": self.run,
            "scale": self.scale,
            "status": self.status,
            "tolerance_given": self.given,
            "outcomes": self.counts,
            "false_verdicts_expected": self.false_verdicts,
            "looks": [dict(vars(look)) for look in self.looks],
            "attempts": {"failed": self.failed, "interrupted": self.interrupted},
            "verdicts": [verdict.as_json() for verdict in self.verdicts],
            "comparisons": [
                *(comparison.as_json() for comparison in self.comparisons),
                *(order.as_json() for order in self.orders),
            ],
            "left_out": list(self.skipped),
        }


def judge(
    run: Run, plan: Plan, attempts: list[AttemptRecord], results: list[Result], given: float | None = None
) -> Judgement:
    """Judge every published case that a run covers.

    Parameters
    ----------
    results : what `repro.analysis.results.summarise` made of the attempts.
    given : a relative tolerance that replaces the derived ones and those of the relative comparisons.
    """
    catalogue = load_catalogue()
    judged = _Judge(run, plan, attempts, catalogue, given)
    pairs = [(name, catalogue.by_name.get(name), result) for result in results for name in result.unit.stands_for]
    if plan.scale == SMOKE:
        verdicts, measured = (
            [
                judged.none(name, case, result, Reason("scale", "differs", SMOKE_RUN, PUBLISHED, SMOKE))
                for name, case, result in pairs
            ],
            [],
        )
    else:
        verdicts = [judged.verdict(name, case, result) for name, case, result in pairs]
        measured = [(case, result) for _, case, result in pairs if case and same_work(case, result.unit)]
    return Judgement(
        run=judged.run_id,
        scale=plan.scale,
        given=given,
        verdicts=tuple(verdicts),
        comparisons=tuple(comparisons(measured, given)),
        orders=tuple(orders(measured, lambda case: tolerance(case, catalogue, given).value)),
        skipped=tuple(skipped.case for skipped in plan.skipped),
        failed=sum(result.failed for result in results),
        interrupted=sum(result.interrupted for result in results),
        looks=plan.looks,
    )


def judge_case(run: Run, plan: Plan, attempts: list[AttemptRecord], case: Case, result: Result) -> Verdict:
    """The verdict on one published case covered by a unit, with the derived tolerance."""
    return _Judge(run, plan, attempts=attempts, catalogue=load_catalogue(), given=None).verdict(case.name, case, result)


def case_ratio(case: Case, throughputs: Sequence[float], looks: Looks = ()) -> Ratio:
    """Measured over published, which is known to half a unit of its last digit; `looks` are the run's."""
    published = case.published.repeats or (case.published.throughput,)
    return published_ratio(throughputs, published, max(figure.half_unit for figure in published), looks)


class _Judge:
    """Draws the verdicts of one run."""

    def __init__(self, run: Run, plan: Plan, attempts: list[AttemptRecord], catalogue: Catalogue, given: float | None):
        self._run, self._plan, self._attempts, self._catalogue, self._given = run, plan, attempts, catalogue, given
        description = run.description()
        self.run_id, self._environment = description.id, description.environment

    def none(self, name: str, case: Case | None, result: Result, *why: Reason) -> Verdict:
        return self._with(name, case, result, comparable=False, outcome="none", reasons=why)

    def verdict(self, name: str, case: Case | None, result: Result) -> Verdict:
        """The conditions first; only then the ratio and the outcome."""
        if case is None:
            return self.none(name, case, result, Reason("case", "missing", NO_SUCH_CASE, name))
        if not result.throughputs:
            failed = (Reason("measurement", "missing", NO_SUCCESS),)
            return self._with(name, case, result, comparable=None, outcome="none", reasons=failed)
        report = self._catalogue.report(case.report)
        cluster = load_published_cluster(report.cluster)
        attempts = [attempt for attempt in self._attempts if attempt.unit == result.unit.name]
        info = process_info(self._run.files, attempts, result.unit.world_size)
        comparable, why = unmet(
            UnitEvidence(
                case, result.unit, attempts=attempts, environment=self._environment, cluster=cluster, info=info
            )
        )
        noted = remarks(case, report, result.unit, self._environment, cluster, info, attempts)
        if why:
            return self._with(name, case, result, comparable=comparable, outcome="none", reasons=why, remarks=noted)
        ratio = case_ratio(case, result.throughputs, self._plan.looks)
        allowed = tolerance(case, self._catalogue, self._given)
        return self._with(
            name,
            case,
            result,
            comparable=True,
            outcome=outcome(ratio, allowed.value),
            reasons=why,
            remarks=noted,
            ratio=ratio,
            tolerance=allowed,
            gain=gain(case),
        )

    def _with(self, name: str, case: Case | None, result: Result, **rest: Any) -> Verdict:
        return Verdict(
            case=name,
            report=case.report if case else None,
            unit=result.unit.name,
            published=float(case.published.throughput) if case else None,
            throughputs=result.throughputs,
            planned=result.planned,
            failed=result.failed,
            interrupted=result.interrupted,
            **{"remarks": (), **rest},
        )


def outcome(ratio: Ratio, allowed: float) -> str:
    """What a ratio to a published figure means: the interval, not the value, decides.

    Wholly within 1 ± `allowed` it is "reproduced", wholly above "faster", wholly below "slower"; an interval that
    crosses a limit, or that has too little confidence, is "inconclusive".
    """
    interval = ratio.decisive
    if not interval:
        return "inconclusive"
    if interval.low > 1 + allowed:
        return "faster"
    if interval.high < 1 - allowed:
        return "slower"
    return "reproduced" if interval.low >= 1 - allowed and interval.high <= 1 + allowed else "inconclusive"


def tolerance(case: Case, catalogue: Catalogue, given: float | None = None) -> Tolerance:
    """Three times the largest published noise of the case's report, of its model, or of all reports.

    It is the first of these whose noise was seen in cases of the same kind: on as many nodes or more, and with pipeline
    parallelism if the case has it. Elsewhere the noise of all reports counts, which is never smaller.
    """
    if given is not None:
        return Tolerance(given, GIVEN)
    related = {
        "report": [other for other in catalogue.cases if other.report == case.report],
        "model": [other for other in catalogue.ported if other.model == case.model],
    }
    for basis, cases in related.items():
        noise = published_noise(cases)
        seen = [other for other in cases if other.name in noise.cases]
        if any(other.nodes >= case.nodes and _pipelined(other) >= _pipelined(case) for other in seen):
            return Tolerance(NOISE_FACTOR * noise.largest, basis, noise.largest, noise.cases)
    noise = published_noise(catalogue.ported)
    return Tolerance(NOISE_FACTOR * noise.largest, "all", noise.largest, noise.cases)


def _pipelined(case: Case) -> bool:
    return case.layout.pipeline > 1


def same_work(case: Case, unit: Unit) -> bool:
    """Whether a unit runs a case as it was published, on whatever hardware."""
    return not any(reason.aspect != "hardware.device" for reason in configuration_reasons(case, unit))
