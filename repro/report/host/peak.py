"""How much of the GPUs' peak GPT's trainings reach, beside the share that the published latencies amount to."""

from __future__ import annotations

from functools import partial

from repro.models.programs import KINDS
from repro.perfmodel.hardware import describe
from repro.published.audit.flops import efficiency
from repro.report import numbers, tables
from repro.report.charts.figure import gpus_text
from repro.report.document import Cell, Section
from repro.report.host import cells
from repro.report.host.cells import SHORT_PROGRAMS
from repro.report.host.configurations import Configuration, configurations
from repro.report.host.results import MeasuredHost
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
        Field(_("Published (V100)"), partial(_published, _, host), numeric=True),
    )
    caption = _(
        "Operations a second over the GPU's dense fp16 peak ({counted}). Published: that of the original case, on the number of "
        "V100s in parentheses ({method})."
    ).format(
        counted=link(_, "peak", _("how they are counted")),
        method=link(_, "comparable", _("what can be compared")),
    )
    table = tables.table("peak", configurations(rows), fields, caption)
    return [Section("peak", _("How much of the GPU's peak does GPT reach?"), (table,))]


def _published(_: Translate, host: MeasuredHost, configuration: Configuration) -> Cell:
    case = configuration.unit.case_in_precision
    if case is None or case.published.latency_ms is None:
        return tables.NONE
    gpu = describe(host.catalogue.report(case.report).cluster).gpu
    share = efficiency(case, gpu.tensor_tflops).share_of_peak
    return Cell(numbers.percentage(share), share, note=gpus_text(_, case.layout.world_size))
