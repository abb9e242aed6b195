"""The sections of a host's page on runs that show something else than speed: loss curves, learning, and profiles."""

from __future__ import annotations

import math

from repro.analysis.kernel_classes import TITLES
from repro.analysis.profiles import Profiled
from repro.planning.convergence import KIND as CONVERGENCE
from repro.planning.loss_curves import ERROR, LAYOUT
from repro.planning.loss_curves import KIND as CURVES
from repro.planning.profiling import KIND as PROFILE
from repro.report.document import Block, Cell, Figure, Section, Table, Text, figure, percent, scientific, words
from repro.report.host.measured import columns, link, share
from repro.report.host.results import Host, KeptRun
from repro.report.run.profile import program


def shown(_, host: Host, language: str) -> list[Section]:
    """Loss curves that were compared, what was learned, and where the time goes: a section for each, run by run."""
    kinds = (
        ("curves", _("Loss curves"), CURVES, _curves),
        ("learning", _("Real data are learned"), CONVERGENCE, _learning),
        ("profile", _("Where the GPU's time goes"), PROFILE, _profiles),
    )
    sections = [
        Section(
            name,
            title,
            tuple(block for told in host.runs if told.plan.kind == kind for block in blocks(_, told, language)),
        )
        for name, title, kind, blocks in kinds
    ]
    return [section for section in sections if section.blocks]


def _curves(_, told: KeptRun, language: str) -> list[Block]:
    compared = [each for each in told.findings.comparisons if each.unit.role == LAYOUT]
    errors = [each for each in told.findings.comparisons if each.unit.role == ERROR]
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
        "Run {run}: {good} of {of} loss curves agree with their references; {seen} of {made} errors made on "
        "purpose were seen."
    ).format(
        run=link(told, language),
        good=sum(each.holds for each in compared),
        of=len(compared),
        seen=sum(each.holds for each in errors),
        made=len(errors),
    )
    table = Table(
        f"curves-{told.label}",
        columns(
            _("Model"),
            _("Precision"),
            numeric=(_("Curves that agree"), _("GPUs at most"), _("Largest deviation"), _("Tolerance")),
        ),
        tuple(rows),
    )
    models = dict.fromkeys(model for model, precision in kinds)
    drawn = [each for model in models for each in _kept_figure(_, told, f"curves-{model}", language)]
    return [Text(text), table, *drawn]


def _kept_figure(_, told: KeptRun, name: str, language: str) -> list[Figure]:
    file = told.run.folder / "figures" / f"{name}.{language}.svg"
    said = _("From run {run}, whose report has its numbers.").format(run=told.label)
    return [Figure(f"{told.label}-{name}", file, name, said)] if file.exists() else []


def _learning(_, told: KeptRun, language: str) -> list[Block]:
    rows = tuple(
        (
            *words(each.unit.name, each.unit.config["precision"], each.goal.meaning.text(_)),
            figure(each.unit.config["iterations"], 0),
            figure(each.goal.limit / math.log(2), 3),
            figure(None if each.reached is None else each.reached / math.log(2), 3),
            percent(each.top_1, 1),
            Cell(_("yes"), tone="good") if each.holds else Cell(_("NO"), tone="bad"),
        )
        for each in told.findings.results
    )
    text = _(
        "Run {run}: {good} of {of} trainings on real data come below the loss that follows from the data's entropy."
    ).format(
        run=link(told, language), good=sum(each.holds for each in told.findings.results), of=len(told.findings.results)
    )
    titles = columns(
        _("Configuration"),
        _("Precision"),
        _("Must be below"),
        numeric=(_("Iterations"), _("Must be below (bits)"), _("Reached (bits)"), _("Right labels")),
    )
    table = Table(f"learning-{told.label}", (*titles, *columns(_("Learned"))), rows)
    return [Text(text), table, *_kept_figure(_, told, "learning", language)]


def _profiles(_, told: KeptRun, language: str) -> list[Block]:
    """Each case beside each of its peers; a case without a peer stands alone."""
    rows = []
    for comparison in told.findings.comparisons:
        if comparison.own.profile:
            rows += [_profile_row(_, comparison.own, baseline) for baseline in comparison.baselines or (None,)]
    text = _(
        "Run {run}: rank 0's GPU traced for a few iterations, which costs time, so that nothing here is a "
        "throughput. The last column names the class of kernels in which OneFlow spends most more than its peer, "
        "and how much an iteration; the run's report has all classes, kernels and gaps."
    ).format(run=link(told, language))
    titles = columns(
        _("Configuration"), _("Peer"), numeric=("OneFlow (ms)", _("Busy share"), "PyTorch (ms)", _("Its busy share"))
    )
    table = Table(f"profile-{told.label}", (*titles, *columns(_("Most more time in"))), tuple(rows))
    drawn = [
        each
        for number in range(1, len(told.findings.comparisons) + 1)
        for each in _kept_figure(_, told, f"profile-{number}", language)
    ]
    return [Text(text), table, *drawn]


def _profile_row(_, own: Profiled, baseline: Profiled | None) -> tuple[Cell, ...]:
    ours, theirs = own.profile, baseline and baseline.profile
    return (
        *words(own.unit.name, program(baseline) if baseline else "–"),
        figure(ours.iteration_ms, 2),
        percent(ours.busy_ms / ours.iteration_ms, 1),
        figure(theirs and theirs.iteration_ms, 2),
        percent(theirs and theirs.busy_ms / theirs.iteration_ms, 1),
        Cell(_slower_in(_, ours, theirs) if theirs else "–"),
    )


def _slower_in(_, ours, theirs) -> str:
    """The class, or idle time, with the largest difference, if OneFlow takes longer in any."""
    spent, other = (profile.by_class() | {"": profile.idle_ms} for profile in (ours, theirs))
    apart = {kind: spent.get(kind, 0.0) - other.get(kind, 0.0) for kind in spent}
    worst = max(apart, key=apart.get)
    name = _(TITLES[worst]) if worst else _("GPU idle")
    return f"{name} (+{apart[worst]:.2f} ms)" if apart[worst] > 0 else "–"
