"""Published comparisons of OneFlow with other frameworks on the same cluster, each a claim: a ratio of two figures.

None of the sources prints a ratio; it follows from the two throughputs that they print in one row.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from repro.published.cases import Case, Catalogue
from repro.published.claim_ids import claim_id
from repro.published.figures import Peer, PrintedNumber

ONEFLOW = "OneFlow"


@dataclass(frozen=True)
class Comparison:
    """The throughput of OneFlow over that of a peer, both as printed.

    `case` is the published case that OneFlow's figure belongs to; None for releases that no case is of.
    """

    oneflow: PrintedNumber
    version: str
    peer: Peer
    case: Case | None

    @property
    def ratio(self) -> float:
        return self.oneflow / self.peer.throughput

    @property
    def subject(self) -> str:
        """The case, or what would be its name."""
        if self.case:
            return self.case.name
        peer = self.peer
        return f"{peer.model}_{peer.gpus}gpu_bs{peer.micro_batch}" + (f"_{_slug(peer.variant)}" if peer.variant else "")

    @property
    def id(self) -> str:
        """The claim's name: `DP_1x1x1_2_1536x16/over-megatron-lm`."""
        return claim_id(self.subject, f"over-{_slug(self.peer.framework)}")


def comparisons(catalogue: Catalogue, peers: Sequence[Peer]) -> Iterator[Comparison]:
    """Every peer beside OneFlow's figure: that of the case it ran, or of OneFlow's column in the same table.

    A table of the largest batch sizes has those of each framework, so there the batch sizes may differ.
    """
    for peer in peers:
        if peer.framework == ONEFLOW:
            continue
        case = catalogue.case(peer.case) if peer.case else _same_sharding(catalogue.cases, peer)
        if case:
            yield Comparison(case.published.throughput, catalogue.report(case.report).version, peer, case)
        elif own := next((other for other in peers if _same_row(other, peer)), None):
            yield Comparison(own.throughput, own.version, peer, None)


def _same_sharding(cases: Sequence[Case], peer: Peer) -> Case | None:
    """The case with the optimizer sharding that the peer varied."""
    if peer.optimizer_sharding is None:
        return None
    for case in cases:
        same = (case.layout.world_size, case.micro_batch, case.optimizer_sharding)
        if case.report in peer.reports and same == (peer.gpus, peer.micro_batch, peer.optimizer_sharding):
            return case
    return None


def _same_row(own: Peer, peer: Peer) -> bool:
    same = ("source", "model", "gpus", "variant")
    return own.framework == ONEFLOW and all(getattr(own, name) == getattr(peer, name) for name in same)


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
