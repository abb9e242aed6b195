"""The sections of a host's page on runs that show something else than speed: loss curves, convergence, and profiles."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from repro.analysis.convergence import Convergence
from repro.analysis.kernel_classes import TITLES
from repro.analysis.kernel_trace import Profile
from repro.analysis.loss_curves import Curves
from repro.analysis.profiles import Profiled, Profiles
from repro.planning.loss_curves import ERROR, LAYOUT
from repro.report.charts.figure import FigureSpec
from repro.report.document import Block, Cell, Figure, Section, Table, Text, figure, percent, scientific, words
from repro.report.host.measured import columns, figures_of, link, share
from repro.report.host.results import Host
from repro.report.host.run import KeptRun
from repro.report.run.learning import learning_figures
from repro.report.run.loss_curves import curve_figures
from repro.report.run.profile import stacked_figure
from repro.utils.i18n import Translate


def shown(_: Translate, host: Host, drawn: list[Figure]) -> list[Section]:
    """Loss curves that were compared, what was learned, and where the time goes: a section for each, run by run."""
    kinds: tuple[tuple[str, str, type, Callable], ...] = (
        ("curves", _("Loss curves"), Curves, _curves),
        ("learning", _("Real data are learned"), Convergence, _learning),
        ("profile", _("Where GPU time goes"), Profiles, _profiles),
    )
    sections = []
    for name, title, kind, blocks in kinds:
        runs = [kept for kept in host.runs if isinstance(kept.findings, kind)]
        if runs:
            found = [block for kept in runs for block in blocks(_, kept, kept.findings, drawn)]
            sections.append(Section(name, title, (*found, *figures_of(drawn, name))))
    return sections


def shown_figures(host: Host) -> list[FigureSpec]:
    """Loss curves of each run, what was learned in all, and all profiles side by side; none without such runs."""
    curves = [(kept.run.id, kept.findings) for kept in host.runs if isinstance(kept.findings, Curves)]
    learned = [
        result for kept in host.runs if isinstance(kept.findings, Convergence) for result in kept.findings.results
    ]
    bars = [
        (f"{comparison.own.unit.name} · {kept.label} · {each.unit.label}", each.profile)
        for kept in host.runs
        if isinstance(kept.findings, Profiles)
        for comparison in kept.findings.comparisons
        for each in (comparison.own, *comparison.others)
        if each.profile
    ]
    return [
        *(replace(spec, id=f"{run}-{spec.id}") for run, found in curves for spec in curve_figures(found)),
        *learning_figures(Convergence(tuple(learned))),
        *([stacked_figure("profile", bars, lambda _: _("Where iteration time goes"))] if bars else []),
    ]


def _curves(_: Translate, kept: KeptRun, curves: Curves, drawn: list[Figure]) -> list[Block]:
    compared = [each for each in curves.comparisons if each.unit.role == LAYOUT]
    errors = [each for each in curves.comparisons if each.unit.role == ERROR]
    kinds = dict.fromkeys((each.unit.model, each.unit.config["precision"]) for each in compared)
    rows = []
    for model, precision in kinds:
        mine = [each for each in compared if (each.unit.model, each.unit.config["precision"]) == (model, precision)]
        apart = [each.deviation.windowed for each in mine if each.deviation]
        allowed = next((each.tolerance.value for each in mine if each.tolerance), None)
        rows.append(
            (
                *words(model, precision),
                share(sum(each.holds for each in mine), len(mine)),
                figure(max((each.unit.world_size for each in mine), default=None), 0),
                scientific(max(apart, default=None)),
                scientific(allowed),
            )
        )
    text = _(
        "Run {run}: {good} of {of} loss curves agree with their references; {seen} of {made} injected errors "
        "were detected."
    ).format(
        run=link(kept),
        good=sum(each.holds for each in compared),
        of=len(compared),
        seen=sum(each.holds for each in errors),
        made=len(errors),
    )
    table = Table(
        f"curves-{kept.label}",
        columns(
            _("Model"),
            _("Precision"),
            numeric=(_("Curves that agree"), _("GPUs at most"), _("Largest deviation"), _("Tolerance")),
        ),
        tuple(rows),
    )
    figures = [each for each in drawn if each.id.startswith(f"figure-{kept.run.id}-")]
    return [Text(text), table, *figures]


def _learning(_: Translate, kept: KeptRun, learned: Convergence, drawn: list[Figure]) -> list[Block]:
    rows = tuple(
        (
            *words(each.unit.name, each.unit.config["precision"], each.goal.meaning.text(_)),
            figure(each.unit.config["iterations"], 0),
            figure(each.goal.limit / math.log(2), 3),
            figure(None if each.reached is None else each.reached / math.log(2), 3),
            percent(each.top_1, 1),
            Cell(_("yes"), tone="good") if each.holds else Cell(_("NO"), tone="bad"),
        )
        for each in learned.results
    )
    text = _(
        "Run {run}: {good} of {of} trainings on real data come below the loss that follows from the data's entropy."
    ).format(run=link(kept), good=sum(each.holds for each in learned.results), of=len(learned.results))
    titles = columns(
        _("Configuration"),
        _("Precision"),
        _("Must be below"),
        numeric=(_("Iterations"), _("Must be below (bits)"), _("Reached (bits)"), _("Right labels")),
    )
    table = Table(f"learning-{kept.label}", (*titles, *columns(_("Learned"))), rows)
    return [Text(text), table]


def _profiles(_: Translate, kept: KeptRun, profiles: Profiles, drawn: list[Figure]) -> list[Block]:
    """A row for each case and what ran in turn with it, or for a case alone."""
    rows = []
    for comparison in profiles.comparisons:
        if comparison.own.profile:
            rows += [_profile_row(_, comparison.own, other) for other in comparison.others or (None,)]
    text = _(
        "Run {run}: rank 0's GPU traced for a few iterations, which costs time, so that nothing here is a "
        "throughput. The last column names the class of kernels in which OneFlow spends most more than the other, "
        "and how much an iteration; the run's report has all classes, kernels and gaps."
    ).format(run=link(kept))
    titles = columns(
        _("Configuration"),
        _("Against"),
        numeric=("OneFlow (ms)", _("Busy share"), _("Compared with (ms)"), _("Its busy share")),
    )
    table = Table(f"profile-{kept.label}", (*titles, *columns(_("Most more time in"))), tuple(rows))
    return [Text(text), table]


def _profile_row(_: Translate, own: Profiled, other: Profiled | None) -> tuple[Cell, ...]:
    ours, theirs = own.profile, other.profile if other else None
    assert ours is not None  # only what has a profile has a row
    return (
        *words(own.unit.name, other.unit.label if other else "–"),
        figure(ours.iteration_ms, 2),
        percent(ours.busy_ms / ours.iteration_ms, 1),
        figure(theirs.iteration_ms if theirs else None, 2),
        percent(theirs.busy_ms / theirs.iteration_ms if theirs else None, 1),
        Cell(_slower_in(_, ours, theirs) if theirs else "–"),
    )


def _slower_in(_: Translate, ours: Profile, theirs: Profile) -> str:
    """The class, or idle time, with the largest difference, if OneFlow takes longer in any."""
    spent, other = (profile.by_class() | {"": profile.idle_ms} for profile in (ours, theirs))
    apart = {kind: spent.get(kind, 0.0) - other.get(kind, 0.0) for kind in spent}
    worst = max(apart, key=lambda kind: apart[kind])
    name = _(TITLES[worst]) if worst else _("GPU idle")
    return f"{name} (+{apart[worst]:.2f} ms)" if apart[worst] > 0 else "–"
