"""The sections of a published report on its training program: options and deviations of the port."""

from __future__ import annotations

from repro.published.deviations import deviations
from repro.published.ports import published_program
from repro.report.document import Section, Text
from repro.report.effects import effects, gain_table, gain_text, gains, measurement_section
from repro.report.method import link
from repro.report.programs import choice_table, deviation_table
from repro.report.published.tables import Sheet


def choices(sheet: Sheet) -> Section | None:
    """What `PROGRAM=published` and `PROGRAM=tuned` choose for the cases of this report."""
    _, report = sheet._, sheet.report
    if not report.ported:
        return None
    program = published_program(report.model, report.id)
    text = Text(
        _(
            "`PROGRAM=published`, the default, runs the port with the options of the published program, `PROGRAM=tuned` the tuned "
            "program with those of the second column ({method})."
        ).format(method=link(_, "programs", _("what the programs are"), "../"))
    )
    return Section("program", _("Training program"), (text, choice_table(_, "program", program)))


def kept_otherwise(sheet: Sheet, language: str) -> Section | None:
    """Deviations of the port of this report's program to another OneFlow release."""
    _, report = sheet._, sheet.report
    if not report.ported:
        return None
    report_deviations = [deviation for deviation in deviations() if deviation.of(report.id)]
    text = Text(
        _(
            "The published program ran on {published}. Its port to oneflow 0.8.0 differs as follows "
            "(`repro/models/deviations.toml`):"
        ).format(published=f"`{report.version}`")
    )
    table = deviation_table(_, language, "deviations", report_deviations, measured=effects(_, (report.id,)))
    gained = gains((report.id,))
    more = (
        (gain_text(_, gained, link(_, "kernels", _("how they were timed"), "../")), gain_table(_, "gains", gained))
        if gained
        else ()
    )
    return Section("deviations", _("Deviations from the published program"), (text, table, *more))


def past_kernels(sheet: Sheet) -> Section | None:
    """What was timed for the deviations in kernels."""
    _ = sheet._
    method = link(_, "kernels", _("how they were timed"), "../")
    return measurement_section(_, sheet.cases, method) if sheet.report.ported else None
