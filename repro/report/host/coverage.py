"""How far each published case was brought on a host: run in its published configuration, run otherwise, or not run."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from repro.published.cases import Case, Catalogue
from repro.report.charts.coverage import AS_PUBLISHED, AUDITED, DERIVED, NOTHING, CoveredCase
from repro.report.host.results import MeasuredHost
from repro.report.names import family, name
from repro.runs.unit import Unit
from repro.utils.i18n import Translate


def units_run(host: MeasuredHost) -> list[Unit]:
    """OneFlow's units that a run on GPUs has a throughput of."""
    return [
        result.unit
        for kept_run in host.measured
        for result in kept_run.results
        if result.throughputs and not result.unit.baseline_of
    ]


def every_unit(hosts: Iterable[MeasuredHost]) -> list[Unit]:
    """The same of several hosts."""
    return [unit for host in hosts for unit in units_run(host)]


def levels(units: Iterable[Unit], cases: Iterable[Case], audited: Collection[str]) -> dict[str, int]:
    """The level of each case, by its name; `audited` are those whose figures were audited."""
    exact: set[str] = set()
    derived: set[str] = set()
    for unit in units:
        exact.update(unit.stands_for)
        derived.update(unit.derived_from)
    return {
        case.name: AS_PUBLISHED
        if case.name in exact
        else DERIVED
        if case.name in derived
        else AUDITED
        if case.name in audited
        else NOTHING
        for case in cases
    }


def levels_of(host: MeasuredHost) -> dict[str, int]:
    """The same of a host; the audit reads every case of the catalogue."""
    cases = host.catalogue.ported
    return levels(units_run(host), cases, [case.name for case in cases])


def covered_cases(_: Translate, catalogue: Catalogue, case_levels: dict[str, int]) -> tuple[CoveredCase, ...]:
    """What the matrix of coverage draws of these levels."""
    dates = {report.id: report.date for report in catalogue.reports if report.ported}
    several = [family(report_id) for report_id in dates]
    return tuple(
        CoveredCase(
            name(family(case.report)) + (f" {dates[case.report]}" if several.count(family(case.report)) > 1 else ""),
            _varied(_, case),
            case.layout.world_size,
            case_levels[case.name],
        )
        for case in catalogue.ported
    )


def _varied(_: Translate, case: Case) -> str:
    """What a report varies besides the number of GPUs: its case's label without the sizes of the layout, else its batch."""
    if case.label:
        return case.label.removesuffix(str(case.layout)).rstrip()
    sharded = _(", sharded") if case.optimizer_sharding else ""
    return f"bs {case.micro_batch}{sharded}"


def same_configuration(unit: Unit) -> Case | None:
    """The published case whose layout, precision and batch a unit has, whatever its iterations; None if it has other."""
    case = unit.case_in_precision
    return case if case and case.layout == unit.config.layout else None
