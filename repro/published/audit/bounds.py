"""Rules on what a figure can be at all: of a larger batch, a GPU's memory and utilisation, or a composed cell."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from math import inf
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from repro.published.audit.findings import PEERS, RESULTS, Finding, Findings, Place, unless
from repro.published.figures import Peer
from repro.utils.i18n import N_, Message

if TYPE_CHECKING:
    from repro.published.audit.material import Material


LESS = 0.05
"""How much slower a larger batch may be; in the published reports 0.4 %, of other frameworks 4 %."""
CARD = Message("the total that nvidia-smi shows of this GPU")
OF_CASE = ("report", "layout", "accumulation_steps", "shape", "optimizer_sharding", "precision")
OF_PEER = ("framework", "version", "variant", "model", "precision", "gpus", "optimizer_sharding")
"""What two cases, or two peers, must have in common if only their micro-batches differ."""
RISES = "+↑"


def larger_batches(material: Material) -> Findings:
    """A larger batch is not much slower in the same layout, of other frameworks either."""
    for smaller, larger in _by_batch(material.cases, OF_CASE):
        place = Place(RESULTS, larger.name, "throughput")
        yield _not_slower(
            smaller.published.throughput,
            larger.published.throughput,
            other=smaller.name,
            report=larger.report,
            place=place,
        )
    for smaller, larger in _by_batch([peer for peer in material.peers if not peer.case], OF_PEER):
        place = Place(PEERS, larger.name, "batch")
        yield _not_slower(smaller.throughput, larger.throughput, other=smaller.name, report=PEERS, place=place)


def _not_slower(before: float, after: float, other: str, report: str, place: Place) -> Finding | None:
    rule = Message(
        "{other} has {before} samples/s with a smaller batch, this is {share}% of it",
        other=other,
        before=before,
        share=f"{100 * after / before:.1f}",
    )
    fits = after >= before * (1 - LESS)
    return unless(fits, "larger-batch", report, place, printed=after, rule=rule, severity="warning")


def _by_batch(measured: Iterable[Any], keys: Iterable[str]) -> Iterator[Sequence[Any]]:
    """Every two cases or peers that differ in their micro-batch alone of these attributes, the smaller one first."""
    for pair in combinations(measured, 2):
        first, second = ([getattr(one, key) for key in keys] for one in pair)
        if first == second and pair[0].micro_batch != pair[1].micro_batch:
            yield sorted(pair, key=attrgetter("micro_batch"))


def devices(material: Material) -> Findings:
    """No GPU is busy for more than all of the time, or uses more memory than it has; of cases, `memory` looks at this."""
    for case in material.cases:
        used, place = case.published.gpu_utilisation, Place(RESULTS, case.name, "gpu_utilisation")
        yield from _within(used, 100, check="utilisation", report=case.report, place=place)
    described = [cluster.get("hardware", {}) for cluster in material.clusters.values()]
    card_mib = max((hardware["gpu_memory_mib"] for hardware in described if "gpu_memory_mib" in hardware), default=inf)
    for peer in material.peers:
        place = Place(PEERS, peer.name, "memory_mib")
        yield from _within(peer.memory_mib, card_mib, check="card", report=PEERS, place=place, source=CARD)
        place = Place(PEERS, peer.name, "gpu_utilisation")
        yield from _within(peer.gpu_utilisation, 100, check="utilisation", report=PEERS, place=place)


def _within(
    used: float | None, most: float, check: str, report: str, place: Place, source: Message | None = None
) -> Findings:
    if used is not None:
        rule = Message("there are {most} at most, and more than 0", most=most)
        fits = 0 < used <= most
        yield unless(fits, check, report, place, printed=used, expected=f"<= {most}", rule=rule, source=source)


def sharded_peers(material: Material) -> Findings:
    """Of other frameworks too, a sharded optimizer takes less memory than an unsharded one."""
    plain = {_unsharded(peer): peer for peer in material.peers if peer.optimizer_sharding == 0}
    for peer in material.peers:
        other = plain.get(_unsharded(peer)) if peer.optimizer_sharding else None
        if other and other.memory_mib is not None and peer.memory_mib is not None:
            rule = Message("without sharding it takes {before} MiB", before=other.memory_mib)
            place = Place(PEERS, peer.name, "memory_mib")
            fits = peer.memory_mib < other.memory_mib
            yield unless(fits, "sharded-peer", PEERS, place, printed=peer.memory_mib, rule=rule, severity="warning")


def _unsharded(peer: Peer) -> tuple:
    return peer.framework, peer.version, peer.model, peer.precision, peer.gpus, peer.micro_batch


def signs(material: Material) -> Findings:
    """The signs and arrows in a cell such as "9547(-1754,↓15.5%)" are those of the recorded changes."""
    for case in material.cases:
        printed = case.published.printed
        for column in ("memory", "throughput"):
            changes = [printed.get(f"{column}_change"), printed.get(f"{column}_change_percent")]
            expected = [change > 0 for change in changes if change]
            if column not in printed or not expected:
                continue
            marks = [mark in RISES for mark in re.findall(r"[-−+↓↑]", printed[column])]
            rule = Message(
                "the recorded changes are {changes}", changes=[f"{change:+g}" for change in changes if change]
            )
            place = Place(RESULTS, case.name, f"{column}_sign")
            yield unless(marks == expected, "sign", case.report, place, printed=printed[column], rule=rule)


RULES = (
    ("larger-batch", N_("speed of larger batches"), larger_batches),
    ("card", N_("memory and utilisation against the GPU"), devices),
    ("sharded-peer", N_("memory of other frameworks with a sharded optimizer"), sharded_peers),
    ("sign", N_("signs and arrows of changes"), signs),
)
