"""Reads the records of earlier releases in the terms of today; nothing else knows how they were.

Baselines were called peers, data sets corpora, control perturbations of loss curves harmless changes, and a plan's scale
was also the kind of its run. What is now the framework of a unit was called its program: there was only the tuned one of
today. Until the end of November 2026 a unit did not say which report, which case and which variant it is of: its name,
and the letter of its log's format, told them.
"""

from __future__ import annotations

from repro.models.registry import specs

OLD_SCALES = {"curves": ("curves", "reduced"), "learn": ("convergence", "reduced"), "profile": ("profile", "published")}
"""Kind and scale of plans from when the kind of a run, other than a bench, was called its scale."""
TUNED_SUFFIX = ".tuned"
ATTEMPT_MARK = ".attempt-"
"""What the names of units of the tuned program ended in, and what precedes the number of an attempt in its folder."""


def description(record: dict) -> dict:
    """A run's description, changed in place."""
    plan = record.get("plan") or {}
    if "scale" in plan and "kind" not in plan:
        plan["kind"], plan["scale"] = OLD_SCALES.get(plan["scale"], ("bench", plan["scale"]))
    if "peer" in record:
        record["baseline"] = record.pop("peer")
    if "corpora" in record:
        record["datasets"] = record.pop("corpora")
    for unit in plan.get("units", ()):
        _rename(unit)
        _identify(unit)
    return record


def configuration(record: dict) -> dict:
    """An attempt's configuration of a trainer, changed in place."""
    if "peer" in record:
        record["baseline"] = record.pop("peer")
    record.setdefault("program", "tuned")
    return record


def attempt(record: dict) -> dict:
    """A recorded attempt, changed in place: its folder alone had its number."""
    number = record.get("folder", "").rpartition(ATTEMPT_MARK)[2]
    if "attempt" not in record and number.isdecimal():
        record["attempt"] = int(number)
    return record


def _rename(unit: dict) -> None:
    """Give the parts of a unit the names of today."""
    if "peer_of" in unit:
        unit["baseline_of"] = unit.pop("peer_of")
    if unit.get("role") == "harmless":
        unit["role"] = "control"
    if "framework" not in unit:
        unit["framework"] = unit.pop("program", "oneflow")
        unit["program"] = configuration(unit["config"])["program"]


def _identify(unit: dict) -> None:
    """Say what a unit is that has only its name for it."""
    baseline_of, derived_from = unit.get("baseline_of"), unit.get("derived_from") or ()
    unit.setdefault("report", _report(unit.get("model"), unit["config"].get("log_generation")))
    if "case" not in unit:
        whole = "" if baseline_of else unit["name"].removesuffix(TUNED_SUFFIX)
        unit["case"] = derived_from[0] if derived_from else whole
    if "variant" not in unit:
        unit["variant"] = unit["name"].removeprefix(f"{baseline_of}.") if baseline_of else None


def _report(model: object, letter: object) -> str:
    """The report of a unit by its model and the format of its log, the oldest of that format; empty for another model."""
    programs = (program for spec in specs() if spec.name == model for program in spec.programs)
    return next((program.report for program in programs if program.log_generation == letter), "")
