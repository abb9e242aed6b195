"""The published comparisons with other frameworks in the table of claims, with what kept runs measured of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from repro.published.audit.engine import Audit
from repro.published.audit.findings import PEERS
from repro.published.comparisons import Comparison, comparisons
from repro.report.host.results import MeasuredHost
from repro.report.site.claims import AS_PUBLISHED, NOT_RUN, OTHERWISE, MeasuredClaim, command

METRIC = "ratio"
PROGRAMS = {"Megatron-LM": "megatron-unfused"}
"""The variant of the baselines that computes what a peer's program did."""


def comparison_rows(audit: Audit, hosts: Sequence[MeasuredHost]) -> list[dict]:
    """The rows of `claims.csv`, with the columns of a claim that apply."""
    material = audit.material
    return [_row(each, audit, hosts) for each in comparisons(material.catalogue, material.peers)]


def _row(comparison: Comparison, audit: Audit, hosts: Iterable[MeasuredHost]) -> dict:
    peer, case = comparison.peer, comparison.case
    findings = [finding.id for finding in audit.of(PEERS) if finding.place.row == peer.name]
    found = max(
        _measured(comparison, hosts), key=lambda each: (each.program != "tuned", each.kept.run.id), default=None
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
        "coverage": NOT_RUN if found is None else OTHERWISE if found.program == "tuned" else AS_PUBLISHED,
        "measured": found and f"{found.value:.6g}",
        "repeats": found and str(found.repeats),
        "program": found and found.program,
        "hardware": found and found.gpu,
        "verdict": found.outcome if found else "not-measured",
        "run": found and found.kept.run.id,
        "evidence": found and f"reports/reproduced/{found.host}/runs/{found.kept.run.path.name}",
        "row": found and found.row,
        "check": f"{command([case])} BASELINES={PROGRAMS[peer.framework]}"
        if case and peer.framework in PROGRAMS
        else None,
    }


def _measured(comparison: Comparison, hosts: Iterable[MeasuredHost]) -> Iterator[MeasuredClaim]:
    """OneFlow over the peer's program in each kept run that has both for this very case, by throughput."""
    variant, case = PROGRAMS.get(comparison.peer.framework), comparison.case
    if variant is None or case is None:
        return
    for host in hosts:
        for kept in host.measured:
            own = [each for each in kept.results if case.name in each.unit.stands_for and not each.unit.baseline_of]
            others = {each.unit.baseline_of: each for each in kept.results if each.unit.variant == variant}
            for ours in own:
                theirs = others.get(ours.unit.tuned_of or ours.unit.name)
                if ours.throughput and theirs and theirs.throughput:
                    ratio, repeats = ours.throughput / theirs.throughput, len(ours.throughputs)
                    yield MeasuredClaim(host.name, kept, ours.unit.program, ratio, repeats, ours.unit.name, None)
