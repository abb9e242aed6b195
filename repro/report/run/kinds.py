"""The kinds of run: how each is analysed, and the sections and figures of its report. A new kind is one entry here."""

from collections.abc import Callable
from dataclasses import dataclass

from repro.analysis import bench, convergence, loss_curves, profiles
from repro.analysis.results import Result
from repro.planning import convergence as convergence_plan
from repro.planning import loss_curves as curves_plan
from repro.planning import profiling
from repro.planning.plan import BENCH, Plan, PlanError
from repro.report.charts.figure import FigureSpec
from repro.report.document import Section
from repro.report.run.bench import bench_sections, method_section
from repro.report.run.data import Findings, ReportData
from repro.report.run.figures import bench_figures
from repro.report.run.learning import learning_figures, learning_section
from repro.report.run.loss_curves import curve_figures, curve_section
from repro.report.run.profile import profile_figures, profile_section
from repro.runs.files import RunPath
from repro.runs.record import Run
from repro.utils.i18n import N_, Translate


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
    analyse: Callable[[Run, Plan, list[dict], list[Result]], Findings]
    sections: Callable[[Translate, ReportData], list[Section]]
    figures: Callable[[ReportData, RunPath], list[FigureSpec]]
    figures_after: str
    closing: Callable[[Translate, ReportData], list[Section]] = lambda _, data: []
    judges_speed: bool = False
    side_by_side: bool = False


KINDS: dict[str, Kind] = {}


def register(kind: Kind) -> Kind:
    """Add a kind of run; ValueError if there is another of its name."""
    if kind.name in KINDS:
        raise ValueError(f"there is a kind of run named {kind.name} already")
    KINDS[kind.name] = kind
    return kind


def kind_of(plan: Plan) -> Kind:
    """The kind of a planned run; PlanError if this release does not know it."""
    if plan.kind not in KINDS:
        raise PlanError(f"this run is of the kind {plan.kind}, which is not known here; known: {', '.join(KINDS)}")
    return KINDS[plan.kind]


register(
    Kind(
        BENCH,
        N_("bench: cases measured by the rules of their reports"),
        lambda run, plan, attempts, results: bench.examine(plan, attempts, results),
        bench_sections,
        bench_figures,
        figures_after="results",
        closing=lambda _, data: [method_section(_, data)],
        judges_speed=True,
    )
)
register(
    Kind(
        curves_plan.KIND,
        N_("curves: loss curves of every layout and precision, compared with one device's"),
        lambda run, plan, attempts, results: loss_curves.compare(plan, attempts, run.files),
        lambda _, data: [curve_section(_, data.findings, data.description)],
        lambda data, files: curve_figures(data.findings),
        figures_after="curves",
        side_by_side=True,
    )
)
register(
    Kind(
        convergence_plan.KIND,
        N_("convergence: real data, trained to a stated loss on one device"),
        lambda run, plan, attempts, results: convergence.learned(plan, attempts, run.files, run.description()["goals"]),
        lambda _, data: [learning_section(_, data.findings, data.description)],
        lambda data, files: learning_figures(data.findings),
        figures_after="learning",
        side_by_side=True,
    )
)
register(
    Kind(
        profiling.KIND,
        N_("profile: a few iterations of each configuration, with every GPU kernel traced"),
        lambda run, plan, attempts, results: profiles.profiles(plan, attempts, run.files),
        lambda _, data: [profile_section(_, data.findings)],
        lambda data, files: profile_figures(data.findings),
        figures_after="profile",
    )
)
