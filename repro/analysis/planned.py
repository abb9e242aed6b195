"""Holds a plan against the catalogue and against itself: rules, batches, and what a unit shares with the one it follows."""

from __future__ import annotations

import re
from collections.abc import Iterator

from repro.analysis.difference import Difference
from repro.published.cases import load_catalogue
from repro.published.rules import Rule
from repro.runs.plan import BENCH, PUBLISHED, Plan
from repro.runs.unit import Unit

PLAN = "run.json"
REPEATS = re.compile(r"\bREPEATS=(\d{1,9})\b")
OF_VARIANT = {"case", "baseline", "program", "data"}
"""Keys of a configuration in which a unit may differ from the one that it follows; a page says which data each has."""


def contradictions(plan: Plan, command: str) -> Iterator[Difference]:
    """Where units are not what the plan's cases give: a rule that is bent bends the figure of every repeat.

    `command` is the one that began the run.
    """
    asked = REPEATS.search(command)
    if asked and int(asked[1]) != plan.repeats:
        yield Difference(PLAN, "repeats", (("its plan", plan.repeats), ("its command", int(asked[1]))))
    units = {unit.name: unit for unit in plan.units}
    for unit in plan.units:
        yield from _of_unit(unit)
        if (plan.kind, plan.scale) == (BENCH, PUBLISHED) and not unit.baseline_of:
            yield from _of_rule(unit)
        if unit.follows and unit.follows not in units:
            yield Difference(
                unit.name, "unit that it follows", ((PLAN, unit.follows), ("its units", "none of this name"))
            )
        elif unit.follows:
            yield from _of_followed(unit, units[unit.follows])


def _of_unit(unit: Unit) -> Iterator[Difference]:
    batch, program = unit.config.global_batch, unit.config.program
    if batch != unit.global_batch:
        says = (PLAN, unit.global_batch), ("its configuration", batch)
        yield Difference(unit.name, "global batch", says)
    if unit.framework == "oneflow" and program != unit.program:
        yield Difference(unit.name, "program", ((PLAN, unit.program), ("its configuration", program)))


def _of_rule(unit: Unit) -> Iterator[Difference]:
    """A unit of a published report's program has a case of it, and its rule; smoke runs and models from outside have their own."""
    case = unit.case
    if case is None:
        reports = {case.report for case in load_catalogue().cases}
        if unit.report in reports:
            yield Difference(
                unit.name,
                "case",
                ((PLAN, unit.unknown_case or "none"), ("its report", f"none of this name in {unit.report}")),
            )
        return
    if case.report != unit.report:
        yield Difference(unit.name, "report", ((PLAN, unit.report), (case.name, case.report)))
    named = {*unit.stands_for, *unit.derived_from}
    if named and case.name not in named:
        yield Difference(unit.name, "case", ((PLAN, case.name), ("the cases that it is of", ", ".join(sorted(named)))))
    if _text(unit.rule) != _text(case.rule):
        yield Difference(
            unit.name, "measuring rule", ((PLAN, _text(unit.rule)), (f"the report of {case.name}", _text(case.rule)))
        )


def _of_followed(unit: Unit, followed: Unit) -> Iterator[Difference]:
    """A unit that takes turns with another trains the same, by the same rule."""
    if _text(unit.rule) != _text(followed.rule):
        said = ((PLAN, _text(unit.rule)), (followed.name, _text(followed.rule)))
        yield Difference(unit.name, "measuring rule", said)
    own, other = unit.config.as_json(), followed.config.as_json()
    for key in sorted((own.keys() | other.keys()) - OF_VARIANT):
        if own.get(key) != other.get(key):
            yield Difference(unit.name, key, ((PLAN, own.get(key)), (followed.name, other.get(key))))


def _text(rule: Rule) -> str:
    return f"{rule.kind} {rule.parameters}"
