"""Selects the kept runs of a host that may be withdrawn: those whose every figure the page lists as superseded."""

from __future__ import annotations

from collections.abc import Iterable

from repro.report.host.notes import named
from repro.report.host.results import Host
from repro.report.host.rows import Measurement, rows
from repro.report.host.run import KeptRun
from repro.runs.digests import Withdrawal
from repro.runs.files import ARCHIVE


def withdrawable(host: Host) -> list[Withdrawal]:
    """The runs of a host that may be withdrawn, oldest first, with the runs that supersede them.

    Such a run measured speed; no row counts it and no text of the page names it. Each of its units that gave a figure
    gave one with newer program code in a later run, in the same configuration, iterations included, and each that failed
    gave one in a later run: a failure that nothing followed stays. So does the only run of a published case, even if its
    configuration ran again as another's. Runs that show loss curves, convergence or profiles are all shown, so none of
    these is withdrawn.
    """
    every = [Measurement(kept, each, None, None) for kept in host.measured for each in kept.results]
    measured = rows(each for each in every if each.result.throughputs)
    newest = {row.measurements[-1].configuration: row.measurements[-1] for row in measured}
    counting = (*host.ratios, *host.gains, *host.efficiencies, *host.layouts)
    shown = {kept.run.id for row in counting for kept in row.runs}
    staying = sorted(host.measured, key=lambda kept: kept.age)
    found = []
    for kept in tuple(staying):
        tried = [each for each in every if each.kept is kept and (each.result.throughputs or each.result.failed)]
        pairs = [(each, newest[each.configuration]) for each in tried if each.configuration in newest]
        again = [(each, later) for each, later in pairs if _followed(host, each, later)]
        others = [each for each in staying if each is not kept]
        if not tried or len(again) < len(tried) or kept.run.id in shown or named(host.notes, kept.run.id):
            continue
        if _published([kept]) <= _published(others):
            staying = others
            units = {each.result.unit.name: later.result.unit.name for each, later in again}
            successors = tuple(sorted({later.kept.run.id for _each, later in again}))
            found.append(Withdrawal(f"{host.name}/runs/{kept.run.id}{ARCHIVE}", units, successors))
    return found


def _followed(host: Host, each: Measurement, later: Measurement) -> bool:
    """Whether a newer run replaces what this run has for a unit's configuration, a figure or a failure."""
    if each.result.throughputs:
        return (each.kept.run.id, each.result.unit.name) in host.superseded
    return later.kept.age > each.kept.age


def _published(runs: Iterable[KeptRun]) -> set[tuple[str, ...]]:
    """What runs have of published cases, by program: throughput and memory, a derived form of the case, its scaling."""
    found: set[tuple[str, ...]] = set()
    for kept in runs:
        for each in kept.results:
            unit = each.unit
            if each.throughputs and not unit.baseline_of:
                found |= {("ran", unit.program, case) for case in unit.stands_for}
                found |= {("memory", unit.program, case) for case in unit.stands_for if each.memory_mib}
                found |= {("derived", unit.program, case) for case in unit.derived_from}
        found |= {(each.kind, each.case) for each in kept.judgement.comparisons if each.kind == "scaling"}
    return found
