"""What is profiled: published cases and their baselines, each for as long as it takes to become steady."""

from collections.abc import Sequence
from dataclasses import asdict, replace

from repro.planning.plan import Plan, PlanError, Unit, make_plan
from repro.published.cases import Case, Rule

SCALE = "profile"
ITERATIONS, INTERVAL = 40, 10
"""A row is printed every so many iterations: the last interval is what a profile is made of."""
RULE = asdict(Rule("mean_rows", skip_first=1))


def make_profile_plan(
    cases: Sequence[Case],
    gpus: int,
    fit: tuple[int, ...] = (),
    baselines: tuple[str, ...] = (),
    precision: str | None = None,
) -> Plan:
    """Plan one short run of each case in its published shape, and of its baselines right after it.

    `fit`, `baselines` and `precision` are `make_plan`'s. Nothing stands for a published case: a traced run is no
    measurement of its speed.

    Raises
    ------
    PlanError
        There is no GPU here, or `make_plan` has nothing to run.
    """
    if not gpus:
        raise PlanError("make profile traces what a GPU does, and nvidia-smi shows none here")
    plan = make_plan(cases, gpus, "published", 1, fit, baselines, precision=precision)
    return replace(plan, scale=SCALE, units=tuple(map(_short, plan.units)))


def _short(unit: Unit) -> Unit:
    config = {**unit.config, "iterations": ITERATIONS, "log_interval": INTERVAL}
    return replace(unit, config=config, rule=RULE, stands_for=(), derived_from=unit.derived_from or unit.stands_for)
