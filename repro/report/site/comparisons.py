"""The published comparisons with other frameworks in the table of claims, with what kept runs measured of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from repro.analysis.results import Result
from repro.published.audit.engine import Audit
from repro.published.audit.findings import PEERS
from repro.published.comparisons import Comparison, comparisons
from repro.report.host.results import MeasuredHost
from repro.report.host.run import KeptRun
from repro.report.site.claims import MeasuredClaim, command, coverage, measured_columns

METRIC = "ratio"
PROGRAMS = {"Megatron-LM": "megatron-unfused"}
"""The variant of the baselines that computes what a peer's program did."""


class BesidePeer(NamedTuple):
    """What a kept run of a host has of OneFlow, and its throughput over that of a peer's program in the same training.

    `shared` is whether another program used the host's processors meanwhile.
    """

    host: str
    kept_run: KeptRun
    ours: Result
    ratio: float
    shared: bool


def comparison_rows(audit: Audit, hosts: Sequence[MeasuredHost]) -> list[dict]:
    """The rows of `claims.csv`, with the columns of a claim that apply."""
    material = audit.material
    return [_row(comparison, audit, hosts) for comparison in comparisons(material.catalogue, material.peers)]


def _row(comparison: Comparison, audit: Audit, hosts: Iterable[MeasuredHost]) -> dict:
    peer, case = comparison.peer, comparison.case
    findings = [finding.id for finding in audit.of(PEERS) if finding.place.row == peer.name]
    pairs = list(_pairs(comparison, hosts))
    ran = list(_measured(comparison, pairs))
    measured = max(
        (claim for claim in ran if not claim.shared),
        key=lambda claim: (claim.program != "tuned", claim.kept_run.run.id),
        default=None,
    )
    return {
        "id": comparison.id,
        "report": case.report if case else peer.reports[-1],
        "model": peer.model,
        "gpus": peer.gpus,
        "layout": str(case.layout) if case else f"{peer.gpus}x1x1",
        "precision": peer.precision,
        "micro_batch": peer.micro_batch,
        "metric": METRIC,
        "published": f"{comparison.ratio:.3f}",
        "unit": "×",
        "source": peer.url,
        "place": f"OneFlow {comparison.version} {comparison.oneflow} / {peer.framework} {peer.version} {peer.throughput} {peer.unit}",
        "audit": "; ".join(findings) or "consistent",
        "coverage": coverage(ran, bool(pairs)),
        **measured_columns(measured),
        "check": f"{command([case])} BASELINES={PROGRAMS[peer.framework]}"
        if case and peer.framework in PROGRAMS
        else None,
    }


def _pairs(comparison: Comparison, hosts: Iterable[MeasuredHost]) -> Iterator[BesidePeer]:
    """OneFlow's figures for this case or one derived from it, each beside the peer's program in the same kept run."""
    variant, case = PROGRAMS.get(comparison.peer.framework), comparison.case
    if variant is None or case is None:
        return
    for host in hosts:
        for kept_run in host.measured:
            others = {result.unit.baseline_of: result for result in kept_run.results if result.unit.variant == variant}
            for ours in kept_run.results:
                theirs = others.get(ours.unit.tuned_of or ours.unit.name)
                of_case = case.name in (*ours.unit.stands_for, *ours.unit.derived_from)
                if of_case and not ours.unit.baseline_of and ours.throughput and theirs and theirs.throughput:
                    ratio = ours.throughput / theirs.throughput
                    yield BesidePeer(host.name, kept_run, ours, ratio, host.is_shared(kept_run))


def _measured(comparison: Comparison, pairs: Iterable[BesidePeer]) -> Iterator[MeasuredClaim]:
    """The ratio of throughputs of the pairs that ran this very case."""
    for pair in pairs:
        unit, repeats = pair.ours.unit, len(pair.ours.throughputs)
        if comparison.case and comparison.case.name in unit.stands_for:
            yield MeasuredClaim(
                pair.host,
                pair.kept_run,
                program=unit.program,
                value=pair.ratio,
                repeats=repeats,
                row=unit.name,
                verdict=None,
                shared=pair.shared,
            )
