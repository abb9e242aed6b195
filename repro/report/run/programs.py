"""What a run's report says of the training programs: which ran, and how they differ from the published ones."""

from __future__ import annotations

from repro.models.programs import KINDS, PUBLISHED, TUNED, Program
from repro.models.registry import spec_of
from repro.planning.plan import Unit
from repro.published.deviations import Deviation, deviations, published_program
from repro.report.document import Block, Cell, Section, Text, words
from repro.report.programs import choice_table, deviation_table
from repro.report.run.data import ReportData
from repro.utils.i18n import N_, Translate

PROGRAMS = {PUBLISHED: N_("published program"), TUNED: N_("tuned program")}


def own_units(data: ReportData) -> list[Unit]:
    """The units of a run that OneFlow trains."""
    return [unit for unit in data.plan.units if not unit.baseline_of]


def found_deviations(data: ReportData) -> list[Deviation]:
    """What the programs of a run, as they are configured there, cannot keep of the published ones."""
    configs = [unit.config for unit in own_units(data)]
    return [each for each in deviations() if any(each.applies(config) for config in configs)]


def program_rows(_: Translate, data: ReportData) -> list[tuple[Cell, ...]]:
    """Rows of a report's first table: the program, its deviations, and the release of OneFlow."""
    ran = {
        kind: dict.fromkeys(published_program(unit.config) for unit in own_units(data) if unit.program == kind)
        for kind in KINDS
    }
    named = [
        _("{program} of {reports}").format(program=_(PROGRAMS[kind]), reports=", ".join(reports))
        for kind, reports in ran.items()
        if reports
    ]
    releases = dict.fromkeys(
        str(release)
        for label, start in data.starts.items()
        if label.startswith("OneFlow") and (release := (start.get("versions") or {}).get("oneflow"))
    )
    listed = _('{n}, listed under "Deviations from the published programs"').format(n=len(found_deviations(data)))
    return [
        words(_("Training program"), _("; ").join(named)),
        words(_("Deviations"), listed),
        words("OneFlow", ", ".join(releases) or _("not known")),
    ]


def deviation_section(_: Translate, language: str, data: ReportData) -> Section:
    """What differs from the published programs, and, if the tuned one ran, what it chooses otherwise."""
    found, units = found_deviations(data), own_units(data)
    reports = list(dict.fromkeys(published_program(unit.config) for unit in units))
    text = Text(
        _(
            "What ran are ports of the published programs to another release of OneFlow. This is what the ports cannot "
            "keep, as far as it applies to what ran here."
        )
    )
    blocks: list[Block] = [text, deviation_table(_, language, "deviations", found, reports)]
    tuned: dict[str, Program] = {
        published_program(unit.config): spec_of(unit.model).program(PUBLISHED, unit.config["log_generation"])
        for unit in units
        if unit.program == TUNED
    }
    if tuned:
        blocks.append(
            Text(
                _(
                    "The tuned program computes the same with other operators and settings. It never decides a verdict. "
                    "Besides faster operators, it chooses otherwise:"
                )
            )
        )
    for report, program in tuned.items():
        blocks += [Text(f"`{report}`"), choice_table(_, f"tuning-{report}", program, only_tuned=True)]
    return Section("deviations", _("Deviations from the published programs"), tuple(blocks))
