"""The sections of a host's page on runs that show something else than speed: loss curves, convergence, and profiles."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

from repro.analysis.convergence import Convergence
from repro.analysis.kernel_classes import TITLES
from repro.analysis.kernel_trace import Profile
from repro.analysis.loss_curves import CurveComparison, Curves
from repro.analysis.profiles import Profiles
from repro.planning.loss_curves import ERROR, LAYOUT
from repro.planning.unit import Unit
from repro.report import numbers
from repro.report.charts.figure import FigureSpec
from repro.report.charts.waterfall import Waterfall, WaterfallChart
from repro.report.document import Block, Cell, Figure, Section, Table
from repro.report.host.cells import figures_of, link, links, name, outof
from repro.report.host.results import Host
from repro.report.host.run import KeptRun
from repro.report.run.learning import learning_figures
from repro.report.run.loss_curves import curve_figures
from repro.report.run.profile import stacked_figure
from repro.report.tables import columns, count, measured, scientific, share, words
from repro.utils.i18n import Translate

Findings = TypeVar("Findings")
SMALL_STEP = 0.005
"""Steps of a waterfall below this share of the iteration are drawn as one."""


def shown(_: Translate, host: Host, drawn: list[Figure]) -> list[Section]:
    """Loss curves that were compared, what was learned, and where the time goes; none for what was not run."""
    return [*curves(_, host, drawn), *learning(_, host, drawn), *profile(_, host, drawn)]


def shown_figures(host: Host) -> list[FigureSpec]:
    """Loss curves of each run, what was learned in all, and the profiles; none without such runs."""
    learned = [result for _kept, found in _with(host, Convergence) for result in found.results]
    bars = [
        (f"{comparison.own.unit.name} · {kept.label} · {each.unit.label}", each.profile)
        for kept, found in _with(host, Profiles)
        for comparison in found.comparisons
        for each in (comparison.own, *comparison.others)
        if each.profile
    ]
    return [
        *(
            replace(spec, id=f"{kept.run.id}-{spec.id}")
            for kept, found in _with(host, Curves)
            for spec in curve_figures(found)
        ),
        *learning_figures(Convergence(tuple(learned))),
        *([_waterfalls(pairs)] if (pairs := profiled(host)) else []),
        *([stacked_figure("profile", bars, lambda _: _("Where iteration time goes"))] if bars else []),
    ]


def _with(host: Host, kind: type[Findings]) -> list[tuple[KeptRun, Findings]]:
    """The runs whose findings are of that kind, with these."""
    return [(kept, kept.findings) for kept in host.runs if isinstance(kept.findings, kind)]


def curves(_: Translate, host: Host, drawn: list[Figure]) -> list[Section]:
    """How many loss curves agree with their references, by model and precision; then run by run, with the figures."""
    found = _with(host, Curves)
    if not found:
        return []
    every = [each for _kept, curves in found for each in curves.comparisons]
    layouts = [each for each in every if each.unit.role == LAYOUT]
    errors = [each for each in every if each.unit.role == ERROR]
    absent = sum(each.deviation is None for each in layouts)
    agree = sum(each.holds for each in layouts)
    caption = _(
        "{good} of {of} loss curves agree with their references, {differ} differ, {absent} did not run; {seen} of {made} "
        "injected errors were detected."
    ).format(
        good=agree,
        of=len(layouts),
        differ=len(layouts) - agree - absent,
        absent=absent,
        seen=sum(each.holds for each in errors),
        made=len(errors),
    )
    titles = columns(
        _("Model"), numeric=(_("Curves that agree"), _("Differ"), _("Did not run"), _("Deviation / tolerance (max)"))
    )
    rows = []
    for mine in _by_kind(layouts):
        compared = [each for each in mine if each.deviation]
        rows.append(
            (
                *words(_subject(mine[0].unit)),
                outof(sum(each.holds for each in mine), len(mine)),
                count(sum(not each.holds for each in compared)),
                count(len(mine) - len(compared)),
                share(max((_used(each) for each in compared), default=None)),
            )
        )
    detail = [block for kept, each in found for block in _curves_of(_, kept, each, drawn)]
    return [
        Section("curves", _("Do all layouts train the same?"), (Table("curves", titles, tuple(rows), caption),)),
        Section("curves-runs", _("Loss curves, run by run"), tuple(detail), level=3, folded=True),
    ]


def _subject(unit: Unit) -> str:
    return f"{name(unit.model)}, {name(unit.config['precision'])}"


def _by_kind(comparisons: list[CurveComparison]) -> list[list[CurveComparison]]:
    """Comparisons of one model and precision together."""
    groups: dict[str, list[CurveComparison]] = {}
    for each in comparisons:
        groups.setdefault(_subject(each.unit), []).append(each)
    return list(groups.values())


def _used(each: CurveComparison) -> float:
    """The share of its tolerance that a curve's deviation takes."""
    if each.deviation is None or each.tolerance is None:
        return math.inf
    return each.deviation.windowed / each.tolerance.value


def _curves_of(_: Translate, kept: KeptRun, curves: Curves, drawn: list[Figure]) -> list[Block]:
    compared = [each for each in curves.comparisons if each.unit.role == LAYOUT]
    errors = [each for each in curves.comparisons if each.unit.role == ERROR]
    rows = []
    for mine in _by_kind(compared):
        apart = [each.deviation.windowed for each in mine if each.deviation]
        allowed = next((each.tolerance.value for each in mine if each.tolerance), None)
        rows.append(
            (
                *words(_subject(mine[0].unit)),
                outof(sum(each.holds for each in mine), len(mine)),
                count(max((each.unit.world_size for each in mine), default=None)),
                scientific(max(apart, default=None)),
                scientific(allowed),
            )
        )
    caption = _(
        "Run {run}: {good} of {of} loss curves agree with their references; {seen} of {made} injected errors were detected."
    ).format(
        run=link(kept),
        good=sum(each.holds for each in compared),
        of=len(compared),
        seen=sum(each.holds for each in errors),
        made=len(errors),
    )
    titles = columns(
        _("Model"), numeric=(_("Curves that agree"), _("GPUs at most"), _("Largest deviation"), _("Tolerance"))
    )
    figures = [each for each in drawn if each.id.startswith(f"figure-{kept.run.id}-")]
    return [Table(f"curves-{kept.label}", titles, tuple(rows), caption), *figures]


def learning(_: Translate, host: Host, drawn: list[Figure]) -> list[Section]:
    """The loss that each training on real data reached, and the threshold it had to reach."""
    found = _with(host, Convergence)
    if not found:
        return []
    results = [(kept, each) for kept, learned in found for each in learned.results]
    rows = tuple(
        (
            *words(_subject(each.unit)),
            Cell(_("yes"), tone="good") if each.holds else Cell(_("NO"), tone="bad"),
            measured(None if each.reached is None else each.reached / math.log(2)),
            measured(each.goal.limit / math.log(2)),
            share(each.top_1),
        )
        for _kept, each in results
    )
    caption = _(
        "{good} of {of} trainings on real data reach a loss below the threshold that follows from the entropy of the data "
        "(runs {runs})."
    ).format(
        good=sum(each.holds for _kept, each in results), of=len(results), runs=links(_, (kept for kept, _each in found))
    )
    titles = (
        *columns(_("Model"), _("Learned")),
        *columns(numeric=(_("Loss (bits)"), _("Threshold (bits)"), _("Right labels"))),
    )
    goals = tuple(
        (
            *words(each.unit.name),
            count(each.unit.config["iterations"]),
            *words(each.goal.meaning.text(_)),
            *words(link(kept)),
        )
        for kept, each in results
    )
    detail = Table(
        "thresholds",
        (*columns(_("Configuration")), *columns(numeric=(_("Iterations"),)), *columns(_("Threshold"), _("Run"))),
        goals,
        _("What each threshold is:"),
    )
    blocks: tuple[Block, ...] = (detail, *figures_of(drawn, "learning"))
    return [
        Section("learning", _("Do the models learn?"), (Table("learning", titles, rows, caption),)),
        Section("learning-runs", _("Losses on real data"), blocks, level=3, folded=True),
    ]


@dataclass(frozen=True)
class ProfilePair:
    """A traced configuration and what it is compared with, from one run."""

    kept: KeptRun
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
        found = {kind: classes[0].get(kind, 0.0) - classes[1].get(kind, 0.0) for kind in TITLES}
        found = {kind: value for kind, value in found.items() if any(kind in each for each in classes)}
        return found | {"": idle[0] - idle[1]}


def profiled(host: Host) -> list[ProfilePair]:
    """The newest profile of each configuration with each of its baselines, if of the newest code of its program."""
    found = {}
    for kept, profiles in sorted(_with(host, Profiles), key=lambda pair: pair[0].age):
        for comparison in profiles.comparisons:
            own = comparison.own
            if not own.profile or not host.is_current(kept, own.unit):
                continue
            for other in comparison.others:
                if other.profile:
                    pair = ProfilePair(kept, own.unit, own.profile, other.unit, other.profile)
                    found[own.unit.name, other.unit.label] = pair
    return list(found.values())


def profile(_: Translate, host: Host, drawn: list[Figure]) -> list[Section]:
    """One traced iteration of OneFlow and of its baseline, and where they differ most; then every profile."""
    runs = _with(host, Profiles)
    if not runs:
        return []
    pairs = profiled(host)
    rows = tuple(
        (
            *words(each.unit.name, each.other.label),
            measured(each.ours.iteration_ms),
            measured(each.theirs.iteration_ms),
            Cell(_slower_in(_, each)),
        )
        for each in pairs
    )
    titles = (
        *columns(_("Case"), _("Baseline")),
        *columns(numeric=("OneFlow (ms)", _("Baseline (ms)"))),
        *columns(_("Most time lost in")),
    )
    caption = _(
        "One iteration on rank 0's GPU, traced, which costs time: do not read it as throughput. The last column names the "
        "class of kernels in which OneFlow takes longest beyond the baseline. Profiles of older program code are in the "
        "list below only."
    )
    blocks: tuple[Block, ...] = (Table("profile", titles, rows, caption),) if pairs else ()
    every = tuple(row for kept, found in runs for row in _profile_rows(_, kept, found))
    titles = (
        *columns(_("Configuration"), _("Program")),
        *columns(numeric=(_("Iteration (ms)"), _("GPU busy"))),
        *columns(_("Run")),
    )
    detail = Table("profiles", titles, every, _("Every traced iteration; the run's report has all kernels and gaps."))
    figures = [*figures_of(drawn, "waterfall"), *figures_of(drawn, "profile")]
    return [
        *([Section("profile", _("Where does the time go?"), blocks)] if blocks else []),
        Section("profile-runs", _("Time by class of kernel"), (*figures, detail), level=3, folded=True),
    ]


def _profile_rows(_: Translate, kept: KeptRun, found: Profiles) -> Iterator[tuple[Cell, ...]]:
    for comparison in found.comparisons:
        for each in (comparison.own, *comparison.others):
            if each.profile:
                yield (
                    *words(comparison.own.unit.name, each.unit.label),
                    measured(each.profile.iteration_ms),
                    share(each.profile.busy_ms / each.profile.iteration_ms),
                    *words(link(kept)),
                )


def _class(_: Translate, kind: str) -> str:
    return _(TITLES[kind]) if kind else _("GPU idle")


def _slower_in(_: Translate, pair: ProfilePair) -> str:
    """The class, or idle time, with the largest difference, if OneFlow takes longer in any."""
    apart = pair.differences
    worst = max(apart, key=lambda kind: apart[kind])
    return f"{_class(_, worst)} (+{apart[worst]:.2f} ms)" if apart[worst] > 0 else numbers.NOTHING


def _waterfalls(pairs: list[ProfilePair]) -> FigureSpec:
    """From OneFlow's iteration to each baseline's by class of kernel."""

    def chart(_: Translate) -> WaterfallChart:
        return WaterfallChart(
            _("From OneFlow's iteration to the baseline's"),
            _("ms per iteration on rank 0's GPU, by class of kernel"),
            tuple(_steps(_, pair) for pair in pairs),
            (_("the baseline takes less"), _("the baseline takes more")),
        )

    return FigureSpec("waterfall", chart, lambda _: _("Each field has its own scale, which does not start at zero."))


def _steps(_: Translate, pair: ProfilePair) -> Waterfall:
    """The classes that differ by SMALL_STEP of the iteration or more, largest gain of the baseline first."""
    least = SMALL_STEP * pair.ours.iteration_ms
    large = {kind: value for kind, value in pair.differences.items() if abs(value) >= least}
    rest = pair.ours.iteration_ms - pair.theirs.iteration_ms - math.fsum(large.values())
    steps = sorted(((_class(_, kind), -value) for kind, value in large.items()), key=lambda step: step[1])
    return Waterfall(
        f"{pair.unit.name}, {pair.other.label} ({pair.kept.label})",
        (pair.unit.label, pair.ours.iteration_ms),
        (*steps, (_("all other, and kernels at the same time"), -rest)),
        (pair.other.label, pair.theirs.iteration_ms),
    )
