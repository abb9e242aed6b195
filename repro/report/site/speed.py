"""What was measured, on the first screen: OneFlow over each baseline by model, and data parallel scaling."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from repro.models.programs import PUBLISHED, TUNED
from repro.report import numbers, tables
from repro.report.document import Cell, Table
from repro.report.host.cells import listed, subject
from repro.report.host.measured import current, grouped, ratio_span
from repro.report.host.results import MeasuredHost
from repro.report.host.rows import HostRow
from repro.report.tables import Field
from repro.utils.i18n import Translate


def table(_: Translate, hosts: Sequence[MeasuredHost]) -> Table | None:
    """A row for each host, model and baseline: the ratios of both programs in the published precision; None without one."""
    groups = [
        (host, group)
        for host in hosts
        for group in sorted(grouped(_comparable(host.ratios), _kind), key=lambda group: _kind(group[0]))
    ]
    if not groups:
        return None
    fields = (
        Field(_("Measured on"), lambda of: f"[{gpu(of[0])}](host-{of[0].name}.html)"),
        Field(_("Model"), lambda of: subject(of[1][0].unit)),
        Field(_("Baseline"), lambda of: of[1][0].base.label),
        Field(_("GPUs"), lambda of: _sizes(_, of[1])),
        Field(_("Port / baseline"), lambda of: _range(of[1], PUBLISHED), numeric=True),
        Field(_("Tuned / baseline"), lambda of: _range(of[1], TUNED), numeric=True),
    )
    caption = _("Throughput of OneFlow 0.8.0 / that of a baseline in the same run, in the published precision")
    return tables.table("speed", groups, fields, caption)


def how_to_read(_: Translate) -> str:
    """What the numbers of the table are."""
    return _(
        "Lowest to highest of the configurations; above 1 OneFlow is faster. n: sessions behind the least measured of "
        "them; one session says nothing about another machine or day. Port: computes what was published. Tuned: the same "
        "model, made faster. `pytorch` uses fused attention and optimizers, as people do now; `pytorch-unfused` computes "
        "what the published program does."
    )


def gpu(host: MeasuredHost) -> str:
    """The model of a host's GPUs; the host's own name if no run measured speed."""
    return next((kept_run.gpus[0]["name"] for kept_run in host.measured if kept_run.gpus), host.name)


def scaling(_: Translate, hosts: Sequence[MeasuredHost]) -> str:
    """One sentence on data parallel efficiency, lowest to highest of the ports; empty if no port ran on several GPUs."""
    rows = [row for host in hosts for row in _comparable(host.efficiencies) if row.unit.program == PUBLISHED]
    if not rows:
        return ""
    text = _("Data parallel on {gpus} GPUs, a port has {efficiency} of the throughput of as many single GPUs.")
    return text.format(gpus=_sizes(_, rows), efficiency=ratio_span(rows, numbers.percentage))


def _comparable(rows: Iterable[HostRow]) -> list[HostRow]:
    """The rows of OneFlow with the newest code in the precision of the case that they are or were derived from."""
    return [row for row in current(rows) if row.unit.case_in_precision]


def _kind(row: HostRow) -> tuple[str, str]:
    return subject(row.unit), row.base.label


def _sizes(_: Translate, rows: Iterable[HostRow]) -> str:
    return listed(_, map(str, sorted({row.unit.world_size for row in rows})))


def _range(rows: Iterable[HostRow], program: str) -> Cell:
    """The lowest and the highest ratio of a program, with the number of sessions behind the least measured; a dash for none."""
    mine = [row for row in rows if row.unit.program == program and row.ratio]
    if not mine:
        return tables.NONE
    least = min(len(row.sessions) for row in mine)
    return Cell(f"{ratio_span(mine, numbers.ratio)} (n = {least})", min(row.ratio.value for row in mine if row.ratio))
