"""Plans a profile: short runs of published cases and their baselines, just long enough to reach a steady state."""

from collections.abc import Sequence
from dataclasses import asdict, replace

from repro.planning.plan import PUBLISHED, Plan, PlanError, Unit, make_plan
from repro.planning.programs import DEFAULT_PROGRAMS
from repro.published.cases import Case, Rule

KIND = "profile"
ITERATIONS, INTERVAL = 40, 10
"""Iterations of each attempt, and iterations per printed row: a profile is made of the last interval."""
RULE = asdict(Rule("mean_rows", skip_first=1))


def make_profile_plan(
    cases: Sequence[Case],
    gpus: int,
    max_gpus: tuple[int, ...] = (),
    baselines: tuple[str, ...] = (),
    precision: str | None = None,
    programs: tuple[str, ...] = DEFAULT_PROGRAMS,
) -> Plan:
    """Plan one short run of each case in its published shape, and of its baselines right after it.

    `max_gpus`, `baselines`, `precision` and `programs` are those of `make_plan`. No unit represents a published case,
    since traced runs do not measure speed.

    Raises
    ------
    PlanError
        There is no GPU here, or `make_plan` has nothing to run.
    """
    if not gpus:
        raise PlanError("make profile traces what a GPU does, and nvidia-smi shows none here")
    plan = make_plan(cases, gpus, PUBLISHED, 1, max_gpus, baselines, precision=precision, programs=programs)
    return replace(plan, kind=KIND, units=tuple(map(_short, plan.units)))


def _short(unit: Unit) -> Unit:
    config = {**unit.config, "iterations": ITERATIONS, "log_interval": INTERVAL}
    return replace(unit, config=config, rule=RULE, stands_for=(), derived_from=unit.derived_from or unit.stands_for)
