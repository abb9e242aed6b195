"""The part of a run's report on training programs: which ran, and how they differ from the published ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from repro.models.programs import KINDS, PUBLISHED, TUNED
from repro.published.deviations import Deviation, deviations
from repro.report.document import Block, Cell, Section, Text
from repro.report.effects import effects, gain_text, gains
from repro.report.programs import deviation_table
from repro.report.run.data import ReportData
from repro.report.tables import words
from repro.runs.unit import Unit
from repro.utils.grouping import by_key
from repro.utils.i18n import N_, Translate

OWN_OPERATORS = {
    "repro_attention": N_("Attention fused by cuDNN"),
    "repro_parts": N_("Sharded optimizer with flat parameters"),
}
"""What operators of our own do in the tuned program, by their types."""
PROGRAMS = {PUBLISHED: N_("port of the published program"), TUNED: N_("tuned program")}


def found_deviations(units: Iterable[Unit]) -> list[Deviation]:
    """Deviations of the programs of these units, as configured."""
    own = _own(units)
    return [deviation for deviation in deviations() if any(deviation.applies(unit.report, unit.config) for unit in own)]


def _own(units: Iterable[Unit]) -> list[Unit]:
    """The units that OneFlow trains."""
    return [unit for unit in units if not unit.baseline_of]


def _named(_: Translate, programs: Iterable[tuple[str, str]]) -> str:
    """Training programs, each kind with the reports whose program it is."""
    every = list(programs)
    return _("; ").join(
        _("{program} ({reports})").format(program=_(PROGRAMS[kind]), reports=", ".join(reports))
        for kind in KINDS
        if (reports := dict.fromkeys(report for program, report in every if program == kind))
    )


def _having(_: Translate, deviation: Deviation, units: Iterable[Unit]) -> str:
    """Which programs of these units have a deviation, in one of their configurations."""
    of_programs = by_key(units, lambda unit: (unit.program, unit.report))
    having = [
        program
        for program, mine in of_programs.items()
        if any(deviation.applies(unit.report, unit.config) for unit in mine)
    ]
    return _("all of them") if len(having) == len(of_programs) else _named(_, having)


def program_rows(_: Translate, data: ReportData) -> list[tuple[Cell, ...]]:
    """Rows of a report's first table: the program, its deviations, and the release of OneFlow."""
    units = _own(data.plan.units)
    labels = {unit.label for unit in units}
    versions = [start.get("versions") or {} for label, start in data.starts.items() if label in labels]
    releases = dict.fromkeys(str(by_library["oneflow"]) for by_library in versions if "oneflow" in by_library)
    own = {
        kind: [unit.name for unit in units if any(kind in operators for operators in _censuses(data, unit.name))]
        for kind in OWN_OPERATORS
    }
    listed = _('{n}, listed under "Deviations from the published programs"').format(n=len(found_deviations(units)))
    return [
        words(_("Training program"), _named(_, ((unit.program, unit.report) for unit in units))),
        words(_("Deviations"), listed),
        words("OneFlow", ", ".join(releases) or _("not known")),
        *(words(_(OWN_OPERATORS[kind]), ", ".join(names)) for kind, names in own.items() if names),
    ]


def _censuses(data: ReportData, unit: str) -> Iterator[Mapping[str, int]]:
    """How often each type of operator was in the compiled job, for each attempt of a unit that recorded it."""
    return (attempt.operators for attempt in data.attempts if attempt.unit == unit and attempt.operators)


def deviation_section(_: Translate, language: str, every: Iterable[Unit]) -> Section:
    """Deviations from the published programs in these units, and the options of the tuned program, if it ran."""
    units = _own(every)
    reports = list(dict.fromkeys(unit.report for unit in units))
    text = Text(
        _(
            "The runs use ports of the published programs to a newer OneFlow release. These are the differences that "
            "apply to the configurations on this page."
        )
    )
    of_units = found_deviations(units)
    having = {deviation.id: _having(_, deviation, units) for deviation in of_units}
    measured = effects(_, reports)
    blocks: list[Block] = [
        text,
        deviation_table(_, language, id="deviations", deviations=of_units, having=having, measured=measured),
    ]
    if case_gains := gains(reports):
        blocks.append(gain_text(_, case_gains))
    tuned = dict.fromkeys(unit.report for unit in units if unit.program == TUNED)
    if tuned:
        message = _(
            "The tuned program has the same mathematics, with faster operators and other options, which "
            "`reports/published/` lists by report ({reports}). It never affects a verdict."
        )
        blocks.append(Text(message.format(reports=", ".join(tuned))))
    return Section("deviations", _("Deviations from the published programs"), tuple(blocks))
