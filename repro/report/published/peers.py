"""Published figures of other frameworks compared with a report's own."""

from __future__ import annotations

from collections.abc import Callable

from repro.published.cases import Case
from repro.published.claim_ids import claim_at
from repro.published.figures import Peer, PrintedNumber
from repro.report.document import Cell, Section, Table, Text
from repro.report.method import link
from repro.report.published.tables import TITLES, Sheet
from repro.report.tables import NONE, Field, count, table
from repro.utils.grouping import by_key
from repro.utils.i18n import Translate


def peers(sheet: Sheet) -> Section | None:
    """Other frameworks' figures compared with this report's, a table for each source."""
    _, tables = sheet._, []
    of_report = [peer for peer in sheet.result.material.peers if sheet.report.id in peer.reports]
    by_source = by_key(of_report, lambda peer: peer.source)
    for number, (source, source_peers) in enumerate(by_source.items(), 1):
        rows = _peer_rows if source_peers[0].case or source_peers[0].optimizer_sharding is not None else _peer_columns
        tables.append(rows(sheet, source_peers, f"peers-{number}", _("Source: {source}").format(source=_(source))))
    if not tables:
        return None
    text = Text(
        _(
            "Measured on the same cluster, with other versions. In parentheses: throughput of this report divided by that of the "
            "other framework ({method})."
        ).format(method=link(_, "comparable", _("what can be compared"), "../"))
    )
    return Section("peers", _("Compared with other frameworks"), (text, *tables))


def _ratio(own: PrintedNumber | None, other: PrintedNumber) -> Cell:
    return Cell(str(other), float(other), f"×{own / other:.3f}" if own else "")


def _peer_columns(sheet: Sheet, source_peers: list[Peer], identity: str, caption: str) -> Table:
    """A row for each number of GPUs, a column for each framework."""
    _ = sheet._
    batch = source_peers[0].micro_batch
    own = {case.layout.world_size: case for case in sheet.groups()[batch]}
    at = {(peer.gpus, _named(peer)): peer.throughput for peer in source_peers}
    title = _("This report ({framework} {version}, batch size {batch})").format(
        framework=sheet.report.framework, version=_version(sheet), batch=batch
    )

    def theirs(name: tuple[str, str, str, int]) -> Callable[[int], Cell]:
        return lambda gpus: _ratio(own[gpus].published.throughput if gpus in own else None, at[gpus, name])

    fields = [
        Field(_("GPUs"), lambda gpus: gpus, count),
        Field(title, lambda gpus: _own(own[gpus], "throughput") if gpus in own else NONE, numeric=True),
    ]
    fields += [
        Field(_peer_title(_, *name), theirs(name), numeric=True) for name in dict.fromkeys(map(_named, source_peers))
    ]
    return table(identity, dict.fromkeys(peer.gpus for peer in source_peers), fields, caption)


def _named(peer: Peer) -> tuple[str, str, str, int]:
    return peer.framework, peer.version, peer.variant, peer.micro_batch


def _version(sheet: Sheet) -> str:
    return sheet.report.version.removeprefix("v").split(",")[0]


def _peer_title(_: Translate, framework: str, version: str, variant: str, batch: int) -> str:
    named = f"{framework} {version}" + (f", {_(variant)}" if variant else "")
    return _("{framework}, batch size {batch}").format(framework=named, batch=batch)


def _peer_rows(sheet: Sheet, source_peers: list[Peer], identity: str, caption: str) -> Table:
    """A row for each case that the other framework ran too: this report's figures, then the other's."""
    _ = sheet._
    every = ("latency_ms", "memory_mib", "gpu_utilisation", "throughput")
    names = [name for name in every if any(getattr(peer, name) is not None for peer in source_peers)]
    first = _("{framework} {version}").format(framework=source_peers[0].framework, version=source_peers[0].version)

    def field(name: str, framework: str, value: Callable[[Case, Peer, str], Cell]) -> Field:
        title = _("{what}, {framework}").format(what=_(TITLES[name]), framework=framework)
        return Field(title, lambda row: value(row[0], row[1], name), numeric=True)

    fields = [Field(_("Case"), lambda row: row[0].name)]
    fields += [field(name, sheet.report.framework, lambda case, peer, name: _own(case, name)) for name in names]
    fields += [field(name, first, _theirs) for name in names]
    rows = [(next(case for case in sheet.cases if _same_test(case, peer)), peer) for peer in source_peers]
    return table(identity, rows, fields, caption)


def _theirs(case: Case, peer: Peer, name: str) -> Cell:
    value = getattr(peer, name)
    return _ratio(case.published.throughput, value) if name == "throughput" else Cell(str(value), value)


def _own(case: Case, name: str) -> Cell:
    value = getattr(case.published, name)
    return Cell(str(value), float(value), claim=claim_at(case.name, name))


def _same_test(case: Case, peer: Peer) -> bool:
    if peer.case:
        return peer.case == case.name
    return (peer.gpus, peer.micro_batch, peer.optimizer_sharding) == (
        case.layout.world_size,
        case.micro_batch,
        case.optimizer_sharding,
    )
