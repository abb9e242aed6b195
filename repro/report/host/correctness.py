"""The sections of a host's page on runs that show something else than speed: loss curves, convergence, and profiles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import TypeVar

from repro.analysis.convergence import Convergence
from repro.analysis.kernel_classes import TITLES
from repro.analysis.kernel_trace import Profile
from repro.analysis.loss_curves import CurveComparison, Curves
from repro.analysis.profiles import Profiles
from repro.planning.loss_curves import ERROR, LAYOUT
from repro.report import method, numbers
from repro.report.charts.figure import FigureSpec
from repro.report.document import Block, Cell, Figure, Section, Text
from repro.report.host.cells import figures_of, link, links, outof
from repro.report.host.results import MeasuredHost
from repro.report.host.run import KeptRun
from repro.report.names import name
from repro.report.run.learning import learning_figures
from repro.report.run.loss_curves import curve_figures
from repro.report.run.profile import stacked_figure
from repro.report.tables import Field, count, holds, measured, share, table
from repro.runs.unit import Unit
from repro.utils.grouping import by_key
from repro.utils.i18n import Translate

Findings = TypeVar("Findings")
BIT = math.log(2)
"""A bit of entropy, in the unit of losses."""


def shown(_: Translate, host: MeasuredHost, drawn: list[Figure]) -> list[Section]:
    """Loss curves that were compared, what was learned, and where the time goes; none for what was not run."""
    return [*curves(_, host, drawn), *learning(_, host, drawn), *profile(_, host, drawn)]


def shown_figures(host: MeasuredHost) -> list[FigureSpec]:
    """Loss curves of each run, what was learned in all, and the profiles; none without such runs."""
    learned = [result for _kept_run, findings in _with(host, Convergence) for result in findings.results]
    bars = [
        (f"{comparison.own.unit.name} · {kept_run.began} · {profiled_unit.unit.label}", profiled_unit.profile)
        for kept_run, findings in _with(host, Profiles)
        for comparison in findings.comparisons
        for profiled_unit in (comparison.own, *comparison.others)
        if profiled_unit.profile
    ]
    return [
        *(
            replace(spec, id=f"{kept_run.run.id}-{spec.id}")
            for kept_run, findings in _with(host, Curves)
            for spec in curve_figures(findings)
        ),
        *learning_figures(Convergence(tuple(learned))),
        *([stacked_figure("profile", bars, lambda _: _("Where iteration time goes"))] if bars else []),
    ]


def _with(host: MeasuredHost, kind: type[Findings]) -> list[tuple[KeptRun, Findings]]:
    """The runs whose findings are of that kind, with these."""
    return [(kept_run, kept_run.findings) for kept_run in host.runs if isinstance(kept_run.findings, kind)]


def curves(_: Translate, host: MeasuredHost, drawn: list[Figure]) -> list[Section]:
    """How many loss curves agree with their references, by model and precision; then run by run, with the figures."""
    by_run = _with(host, Curves)
    if not by_run:
        return []
    every = [comparison for _kept_run, curves in by_run for comparison in curves.comparisons]
    layouts = [comparison for comparison in every if comparison.unit.role == LAYOUT]
    errors = [comparison for comparison in every if comparison.unit.role == ERROR]
    skipped = {case.case for kept_run, _curves in by_run for case in kept_run.plan.skipped}
    skipped -= {comparison.unit.name for comparison in every}
    absent = sum(comparison.deviation is None for comparison in layouts)
    agree = sum(comparison.holds for comparison in layouts)
    caption = _(
        "Loss curves that agree with their references: {good} of {of}; that differ: {differ}; that did not run: {absent}. "
        "Configurations skipped for want of GPUs: {skipped}. Injected errors that were detected: {seen} of {made}."
    ).format(
        good=agree,
        of=len(layouts),
        differ=len(layouts) - agree - absent,
        absent=absent,
        skipped=len(skipped),
        seen=sum(comparison.holds for comparison in errors),
        made=len(errors),
    )
    of_newest_code = {
        _subject(comparison.unit)
        for kept_run, curves in by_run
        for comparison in curves.comparisons
        if comparison.unit.role == LAYOUT and not _older(host, kept_run, comparison.unit)
    }

    def dated(mine: Sequence[CurveComparison]) -> Cell:
        subject = _subject(mine[0].unit)
        return _dated(_, subject, subject not in of_newest_code)

    fields = (
        Field(_("Model"), dated),
        Field(_("Curves that agree"), _agreeing, numeric=True),
        Field(
            _("Differ"),
            lambda mine: sum(not comparison.holds for comparison in mine if comparison.deviation),
            count,
            minor=True,
        ),
        Field(_("Did not run"), lambda mine: sum(not comparison.deviation for comparison in mine), count, minor=True),
        Field(
            _("Deviation / tolerance (max)"),
            lambda mine: max((_used(comparison) for comparison in mine if comparison.deviation), default=None),
            share,
        ),
    )
    rows = by_key(layouts, _model_and_precision).values()
    detail: list[Block] = []
    for kept_run, _curves in by_run:
        detail += [Text(_("Run {run}:").format(run=link(kept_run))), *figures_of(drawn, f"{kept_run.run.id}-curves")]
    return [
        Section("curves", _("Do all layouts train the same?"), (table("curves", rows, fields, caption),)),
        Section("curves-runs", _("Loss curves, run by run"), tuple(detail), level=3, folded=True),
    ]


def _older(host: MeasuredHost, kept_run: KeptRun, unit: Unit) -> bool:
    """Whether a run of the same program has newer code; baselines have none of ours."""
    return not unit.baseline_of and not host.is_current(kept_run, unit)


def _dated(_: Translate, text: str, older: bool) -> Cell:
    """What a row is of, marked if only older code was measured."""
    return Cell(text, note=_("older code") if older else "")


def _subject(unit: Unit) -> str:
    return f"{name(unit.model)} {name(unit.config.precision)}"


def _model_and_precision(comparison: CurveComparison) -> str:
    return _subject(comparison.unit)


def _agreeing(mine: Sequence[CurveComparison]) -> Cell:
    """How many of the curves agree with their references."""
    return outof(sum(comparison.holds for comparison in mine), len(mine))


def _used(comparison: CurveComparison) -> float:
    """The share of its tolerance that a curve's deviation takes."""
    if comparison.deviation is None or comparison.tolerance is None:
        return math.inf
    return comparison.deviation.windowed / comparison.tolerance.value


def learning(_: Translate, host: MeasuredHost, drawn: list[Figure]) -> list[Section]:
    """The loss that each training on real data reached, and the threshold it had to reach."""
    by_run = _with(host, Convergence)
    if not by_run:
        return []
    results = [(kept_run, result) for kept_run, learned in by_run for result in learned.results]
    fields = (
        Field(_("Model"), lambda row: _dated(_, _subject(row[1].unit), _older(host, row[0], row[1].unit))),
        Field(_("Converged"), lambda row: holds(_, row[1].holds)),
        Field(_("Loss (bits)"), lambda row: None if row[1].reached is None else row[1].reached / BIT, measured),
        Field(_("Threshold (bits)"), lambda row: row[1].goal.limit / BIT, measured),
        Field(_("Accuracy"), lambda row: row[1].top_1, share),
    )
    caption = _(
        "Trainings on real data whose loss falls below the threshold that follows from the entropy of the data: {good} of {of} "
        "({runs})."
    ).format(
        good=sum(result.holds for _kept_run, result in results),
        of=len(results),
        runs=links(_, (kept_run for kept_run, _learned in by_run)),
    )
    thresholds = (
        Field(_("Configuration"), lambda row: row[1].unit.name),
        Field(_("Iterations"), lambda row: row[1].unit.config.iterations, count),
        Field(_("Threshold"), lambda row: row[1].goal.meaning.text(_)),
        Field(_("Run"), lambda row: link(row[0])),
    )
    detail = table("thresholds", results, thresholds, _("What each threshold is:"))
    blocks: tuple[Block, ...] = (detail, *figures_of(drawn, "learning"))
    return [
        Section("learning", _("Do the models learn?"), (table("learning", results, fields, caption),)),
        Section("learning-runs", _("Losses on real data"), blocks, level=3, folded=True),
    ]


@dataclass(frozen=True)
class ProfilePair:
    """A traced configuration and what it is compared with, from one run."""

    kept_run: KeptRun
    unit: Unit
    ours: Profile
    other: Unit
    theirs: Profile

    @property
    def differences(self) -> dict[str, float]:
        """Milliseconds that OneFlow takes more, by class of kernel; "" is the time in which the GPU idles.

        Kernels that run at the same time both count in their classes, so that the sum may differ from the difference of
        the iterations.
        """
        classes = [profile.by_class() for profile in (self.ours, self.theirs)]
        idle = [profile.idle_ms for profile in (self.ours, self.theirs)]
        difference_ms = {kind: classes[0].get(kind, 0.0) - classes[1].get(kind, 0.0) for kind in TITLES}
        difference_ms = {
            kind: value for kind, value in difference_ms.items() if any(kind in by_class for by_class in classes)
        }
        return difference_ms | {"": idle[0] - idle[1]}


def profiled(host: MeasuredHost) -> list[ProfilePair]:
    """The newest profile of each configuration with each of its baselines, if of the newest code of its program."""
    newest = {}
    for kept_run, profiles in sorted(_with(host, Profiles), key=lambda pair: pair[0].age):
        for comparison in profiles.comparisons:
            own = comparison.own
            if not own.profile or not host.is_current(kept_run, own.unit):
                continue
            for other in comparison.others:
                if other.profile:
                    pair = ProfilePair(kept_run, own.unit, own.profile, other.unit, other.profile)
                    newest[own.unit.name, other.unit.label] = pair
    return list(newest.values())


def profile(_: Translate, host: MeasuredHost, drawn: list[Figure]) -> list[Section]:
    """One traced iteration of OneFlow and of its baseline, and where they differ most; then every profile."""
    runs = _with(host, Profiles)
    if not runs:
        return []
    pairs = profiled(host)
    fields = (
        Field(_("Case"), lambda pair: pair.unit.name),
        Field(_("Baseline"), lambda pair: pair.other.label),
        Field("OneFlow (ms)", lambda pair: _iteration(_, pair.ours), numeric=True),
        Field(_("Baseline (ms)"), lambda pair: _iteration(_, pair.theirs), numeric=True),
        Field(_("Kernel class furthest behind the baseline"), lambda pair: _slower_in(_, pair)),
    )
    caption = _("One traced iteration on rank 0's GPU ({method}).").format(
        method=method.link(_, "profiles", _("what the columns say"))
    )
    blocks: tuple[Block, ...] = (table("profile", pairs, fields, caption),) if pairs else ()
    every = [
        (kept_run, comparison.own.unit.name, profiled_unit)
        for kept_run, profiles in runs
        for comparison in profiles.comparisons
        for profiled_unit in (comparison.own, *comparison.others)
        if profiled_unit.profile
    ]
    columns_of_all = (
        Field(_("Configuration"), itemgetter(1)),
        Field(_("Program"), lambda row: _dated(_, row[2].unit.label, _older(host, row[0], row[2].unit))),
        Field(_("Iteration (ms)"), lambda row: row[2].profile.iteration_ms, measured),
        Field(_("GPU busy"), lambda row: row[2].profile.busy_ms / row[2].profile.iteration_ms, share),
        Field(_("Run"), lambda row: link(row[0]), minor=True),
    )
    detail = table(
        "profiles", every, columns_of_all, _("Every traced iteration; the run's report has all kernels and gaps.")
    )
    return [
        *([Section("profile", _("Where does the time go?"), blocks)] if blocks else []),
        Section(
            "profile-runs", _("Time by class of kernel"), (*figures_of(drawn, "profile"), detail), level=3, folded=True
        ),
    ]


def _iteration(_: Translate, of: Profile) -> Cell:
    """How long a traced iteration took, and for what share of it the GPU was busy."""
    busy = _("GPU busy {share}").format(share=numbers.percentage(of.busy_ms / of.iteration_ms))
    return replace(measured(of.iteration_ms), note=busy)


def _class(_: Translate, kind: str) -> str:
    return _(TITLES[kind]) if kind else _("GPU idle")


def _slower_in(_: Translate, pair: ProfilePair) -> str:
    """The class, or idle time, with the largest difference, if OneFlow takes longer in any."""
    apart = pair.differences
    worst = max(apart, key=lambda kind: apart[kind])
    return f"{_class(_, worst)} (+{apart[worst]:.2f} ms)" if apart[worst] > 0 else numbers.NOTHING
