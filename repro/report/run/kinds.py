"""The kinds of run by their names: how each is analysed, and the sections and figures of its report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from repro.analysis.results import Result
from repro.report.document import Section
from repro.report.run.data import ReportData, RunFindings
from repro.runs.attempts import AttemptRecord
from repro.runs.files import RunPath
from repro.runs.plan import Plan
from repro.runs.record import Run
from repro.utils.errors import PlanError
from repro.utils.i18n import Translate

if TYPE_CHECKING:
    from repro.report.charts.figure import FigureSpec

# Imported when a run of the kind is at hand: what the other kinds need takes as long to import as a short run.
OWN = {
    "bench": "repro.report.run.bench",
    "rehearsal": "repro.report.run.rehearsal",
    "curves": "repro.report.run.loss_curves",
    "convergence": "repro.report.run.learning",
    "profile": "repro.report.run.profile",
}


@dataclass(frozen=True)
class Kind:
    """One kind of run.

    Parameters
    ----------
    name : `Plan.kind` of its plans.
    title : what such a run is, for its report; a message for translation.
    analyse : the findings of a run, from its plan, attempts and results.
    sections : the report's sections between the outcome and the failed attempts.
    figures : the report's figures; the path is that of the run's files.
    figures_after : id of the section that the figures follow.
    closing : the report's last sections, after the environment.
    judges_speed : whether its throughputs are results. Then the report task's status and summary are the verdicts';
        otherwise they are the findings'.
    side_by_side : whether attempts may run at the same time, on different GPUs.
    """

    name: str
    title: str
    analyse: Callable[[Run, Plan, list[AttemptRecord], list[Result]], RunFindings]
    sections: Callable[[Translate, ReportData], list[Section]]
    figures: Callable[[ReportData, RunPath], list[FigureSpec]]
    figures_after: str
    closing: Callable[[Translate, ReportData], list[Section]] = lambda _, data: []
    judges_speed: bool = False
    side_by_side: bool = False


registered: dict[str, Kind] = {}


def register(kind: Kind) -> Kind:
    """Add a kind of run; ValueError if there is another of its name."""
    if kind.name in registered:
        raise ValueError(f"there is a kind of run named {kind.name} already")
    registered[kind.name] = kind
    return kind


def names() -> tuple[str, ...]:
    """The names of all kinds, those of this package first."""
    return (*OWN, *(name for name in registered if name not in OWN))


def find(name: str) -> Kind:
    """The kind of this name; PlanError if this release does not know it."""
    if name not in registered and name in OWN:
        import_module(OWN[name])
    if name not in registered:
        raise PlanError(f"this run is of the kind {name}, which is not known here; known: {', '.join(names())}")
    return registered[name]


def kind_of(plan: Plan) -> Kind:
    """The kind of a planned run; PlanError if this release does not know it."""
    return find(plan.kind)
