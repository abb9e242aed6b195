"""The section of a run's report on its network: what adapters counted, beside what programs say that they used."""

from __future__ import annotations

from collections.abc import Sequence

from repro.analysis.adapter_traffic import claims, silent_nodes, traffic
from repro.report.document import Cell, Section, Table, Text
from repro.report.numbers import short, span, whole
from repro.report.tables import columns, holds
from repro.runs.attempts import AttemptRecord
from repro.runs.plan import Plan
from repro.runs.unit import Unit
from repro.utils.i18n import Translate

MIB = 2**20


def network_section(_: Translate, plan: Plan, attempts: list[AttemptRecord]) -> list[Section]:
    """A row for each configuration and adapter, all nodes of its successful attempts; nothing where no adapter was read."""
    rows: list[tuple[Cell, ...]] = []
    for unit in plan.units:
        own = [attempt for attempt in attempts if attempt.unit == unit.name and attempt.status == "ok"]
        read = [attempt for attempt in own if attempt.adapters]
        adapters = sorted({port for attempt in read for ports in attempt.adapters.values() for port in ports})
        rows += [_row(_, unit, adapter, read) for adapter in adapters]
    if not rows:
        return []
    text = _(
        "The agent of each node reads the counters of its RDMA adapters before and after each attempt. Sums over all "
        "nodes; smallest and largest of the attempts. A program that says that it used RDMA while a node's adapters sent "
        "fewer packets than the attempt had iterations is contradicted. Some drivers count packets, but no bytes."
    )
    counted = (_("Sent (MiB)"), _("Received (MiB)"), _("Packets sent"))
    titles = (
        *columns(_("Configuration"), _("Adapter"), numeric=counted),
        *columns(_("According to the programs"), _("Agrees")),
    )
    return [Section("network", _("Traffic of the RDMA adapters"), (Text(text), Table("network", titles, tuple(rows))))]


def _row(_: Translate, unit: Unit, adapter: str, attempts: list[AttemptRecord]) -> tuple[Cell, ...]:
    by_attempt = [[port for port in traffic(attempt.adapters) if port.adapter == adapter] for attempt in attempts]
    device = unit.config.device
    said = sorted({claim for attempt in attempts for claim in claims(attempt.transport, attempt.rdma, device)})
    silent = any(silent_nodes(attempt.adapters, unit.config.iterations) for attempt in attempts)
    return (
        Cell(unit.name),
        Cell(f"`{adapter}`"),
        _sums([[port.sent_bytes for port in ports] for ports in by_attempt], MIB),
        _sums([[port.received_bytes for port in ports] for ports in by_attempt], MIB),
        _sums([[port.sent_packets for port in ports] for ports in by_attempt]),
        Cell(", ".join(said) or "–"),
        holds(_, not silent) if said else Cell("–"),
    )


def _sums(counts: Sequence[Sequence[int | None]], unit: int = 1) -> Cell:
    """The smallest and the largest sum of the attempts; a dash where a port does not count this."""
    sums = sorted(sum(filter(None, values)) / unit for values in counts if None not in values)
    show = whole if unit == 1 else short
    return Cell(span([show(total) for total in (sums[:1] + sums[-1:])])) if sums else Cell("–")
