"""What was measured, on the first screen: OneFlow over each baseline by model, and data parallel scaling."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from repro.models.programs import PUBLISHED, TUNED
from repro.planning.derived import published_case
from repro.report import numbers
from repro.report.document import Cell, Column, Table
from repro.report.host.cells import family, listed, name
from repro.report.host.results import MeasuredHost
from repro.report.host.rows import HostRow
from repro.report.tables import NONE
from repro.utils.i18n import Translate


def table(_: Translate, hosts: Sequence[MeasuredHost]) -> Table | None:
    """A row for each host, model and baseline: the ratios of both programs in the published precision; None without one."""
    rows = []
    for host in hosts:
        groups: dict[tuple[str, str, str], list[HostRow]] = {}
        for row in filter(_as_published, host.ratios):
            key = (name(family(row.unit.report)), name(row.unit.precision), row.base.label)
            groups.setdefault(key, []).append(row)
        for (model, precision, baseline), group in sorted(groups.items()):
            sizes = listed(_, map(str, sorted({row.unit.world_size for row in group})))
            by_program = [[row for row in group if row.unit.program == program] for program in (PUBLISHED, TUNED)]
            rows.append(
                (
                    Cell(f"[{gpu(host)}](host-{host.name}.html)"),
                    Cell(f"{model}, {precision}"),
                    Cell(baseline),
                    Cell(sizes),
                    *map(_range, by_program),
                )
            )
    if not rows:
        return None
    columns = (
        *map(Column, (_("Measured on"), _("Model"), _("Baseline"), _("GPUs"))),
        Column(_("Port / baseline"), numeric=True),
        Column(_("Tuned / baseline"), numeric=True),
    )
    caption = _("Throughput of OneFlow 0.8.0 / that of a baseline in the same run, in the published precision")
    return Table("speed", columns, tuple(rows), caption)


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
    rows = [row for host in hosts for row in host.efficiencies if _as_published(row) and row.unit.program == PUBLISHED]
    if not rows:
        return ""
    text = _("Data parallel on {gpus} GPUs, a port has {efficiency} of the throughput of as many single GPUs.")
    sizes = listed(_, map(str, sorted({row.unit.world_size for row in rows})))
    return text.format(gpus=sizes, efficiency=numbers.span(map(numbers.percentage, _values(rows))))


def _as_published(row: HostRow) -> bool:
    """Whether a row with today's code is of OneFlow in the precision of the case that it is or was derived from."""
    case = published_case(row.unit)
    return row.current and not row.unit.baseline_of and case is not None and case.precision == row.unit.precision


def _values(rows: Iterable[HostRow]) -> list[float]:
    return sorted(row.ratio.value for row in rows if row.ratio)


def _range(rows: list[HostRow]) -> Cell:
    """The lowest and the highest ratio, with the number of sessions behind the least measured; a dash for none."""
    values = _values(rows)
    if not values:
        return NONE
    least = min(len(row.sessions) for row in rows)
    return Cell(f"{numbers.span(map(numbers.ratio, values))} (n = {least})", values[0])
