"""Plans a profile: short runs of published cases and their baselines, just long enough to reach a steady state."""

from dataclasses import replace

from repro.published.rules import MeanRows
from repro.runs.plan import Plan
from repro.runs.unit import Unit

KIND = "profile"
ITERATIONS, INTERVAL = 40, 10
"""Iterations of each attempt, and iterations per printed row: a profile is made of the last interval."""
FOR_GPUS = "make profile traces what a GPU does"
RULE = MeanRows(skip_first=1)


def as_profile(plan: Plan) -> Plan:
    """One short run of each unit of a plan. None represents a published case: traced runs do not measure speed."""
    return replace(plan, kind=KIND, repeats=1, looks=(), units=tuple(map(_short, plan.units)))


def _short(unit: Unit) -> Unit:
    config = replace(unit.config, iterations=ITERATIONS, log_interval=INTERVAL)
    return replace(unit, config=config, rule=RULE, stands_for=(), derived_from=unit.derived_from or unit.stands_for)
