"""The model FLOPs utilization (MFU) of GPT's trainings, beside that of the published ones."""

from __future__ import annotations

from functools import partial

from repro.models.programs import KINDS, TUNED
from repro.perfmodel.hardware import describe
from repro.report import numbers, tables
from repro.report.document import Cell, Section
from repro.report.host import cells
from repro.report.host.cells import SHORT_PROGRAMS
from repro.report.host.configurations import Configuration, configurations
from repro.report.host.coverage import same_configuration
from repro.report.host.results import MeasuredHost, rate_at_peak
from repro.report.method import link
from repro.report.tables import Field
from repro.utils.i18n import Translate


def peak(_: Translate, host: MeasuredHost) -> list[Section]:
    """A row for each configuration of GPT that was measured with the newest code; nothing without one."""
    rows = [row for row in host.peaks if row.current]
    if not rows:
        return []
    programs = [program for program in KINDS if any(row.unit.program == program for row in rows)]
    fields = (
        Field(_("Configuration"), lambda configuration: cells.titled(_, configuration)),
        *(
            Field(_(SHORT_PROGRAMS[program]), partial(cells.percentage, _, program=program), numeric=True)
            for program in programs
        ),
        Field(_("Goal"), lambda configuration: cells.goal(_, configuration.of(TUNED)), minor=True),
        Field(_("Published (V100)"), partial(_published, host), numeric=True),
    )
    caption = _(
        "Model FLOPs utilization (MFU): the operations a second that the model needs, over the GPU's dense fp16 peak "
        "({counted})."
    ).format(counted=link(_, "peak", _("how they are counted")))
    table = tables.table("peak", configurations(rows), fields, caption)
    return [Section("peak", _("How much of the GPU's peak does GPT reach?"), (table,))]


def _published(host: MeasuredHost, configuration: Configuration) -> Cell:
    """The utilization that a published throughput amounts to; nothing where the case had another layout."""
    case = same_configuration(configuration.unit)
    if case is None or case.published.throughput is None:
        return tables.NONE
    gpu = describe(host.catalogue.report(case.report).cluster).gpu
    share = case.published.throughput / rate_at_peak(case.shape, gpu, case.layout.world_size)
    return Cell(numbers.percentage(share), share)
