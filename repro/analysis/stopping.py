"""When a case needs no more repeats: its verdict is decided at a look that the run was planned with, or cannot be."""

import math
from collections.abc import Sequence

from repro.analysis.results import summarise
from repro.analysis.verdict import DECIDED, case_ratio, judge_case, outcome
from repro.published.cases import Case
from repro.runs.attempts import AttemptRecord
from repro.runs.plan import PUBLISHED, Plan
from repro.runs.record import Run
from repro.runs.unit import Unit
from repro.utils.sequential import Looks

BEYOND = (math.inf, -math.inf)
"""Throughputs above and below any other, as those that further repeats are assumed to have."""


def why_enough(run: Run, plan: Plan, attempts: list[AttemptRecord], unit: Unit) -> str | None:
    """Why a unit of a run needs no more repeats by the plan's stopping rule; None while it does.

    From the first look on: what `enough` says, or "no verdict" if there can be none whatever is measured.
    """
    succeeded = [attempt for attempt in attempts if attempt.unit == unit.name and attempt.status == "ok"]
    if not plan.looks or len(succeeded) < plan.looks[0].repeats:
        return None
    case = unit.published_case if plan.scale == PUBLISHED else None
    if case is None:
        return "no verdict"
    (result,) = (candidate for candidate in summarise(plan, attempts) if candidate.unit.name == unit.name)
    verdict = judge_case(run, plan, attempts, case, result)
    if verdict.tolerance is None:
        return "no verdict"
    return enough(case, result.throughputs, plan.looks, verdict.tolerance.value)


def enough(case: Case, throughputs: Sequence[float], looks: Looks, allowed: float) -> str | None:
    """ "decided" if these throughputs give a verdict within a tolerance, "undecidable" if no further ones could.

    None while further repeats may decide it: if they were as published, or far faster or slower, whatever helps.
    """
    if outcome(case_ratio(case, throughputs, looks), allowed) in DECIDED:
        return "decided"
    assumed = (float(case.published.throughput), *BEYOND)
    further = ([throughput] * (look.repeats - len(throughputs)) for look in looks for throughput in assumed)
    if any(outcome(case_ratio(case, (*throughputs, *more), looks), allowed) in DECIDED for more in further):
        return None
    return "undecidable"
