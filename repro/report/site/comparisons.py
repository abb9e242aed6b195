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
    return [_row(comparison, audit, hosts) for comparison in comparisons(material.catalogue, material.peers)]


def _row(comparison: Comparison, audit: Audit, hosts: Iterable[MeasuredHost]) -> dict:
    peer, case = comparison.peer, comparison.case
    findings = [finding.id for finding in audit.of(PEERS) if finding.place.row == peer.name]
    measured = max(
        _measured(comparison, hosts), key=lambda claim: (claim.program != "tuned", claim.kept_run.run.id), default=None
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
        "coverage": NOT_RUN if measured is None else OTHERWISE if measured.program == "tuned" else AS_PUBLISHED,
        "measured": measured and f"{measured.value:.6g}",
        "repeats": measured and str(measured.repeats),
        "program": measured and measured.program,
        "hardware": measured and measured.gpu,
        "verdict": measured.outcome if measured else "not-measured",
        "run": measured and measured.kept_run.run.id,
        "evidence": measured and f"reports/reproduced/{measured.host}/runs/{measured.kept_run.run.path.name}",
        "row": measured and measured.row,
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
        for kept_run in host.measured:
            own = [
                result
                for result in kept_run.results
                if case.name in result.unit.stands_for and not result.unit.baseline_of
            ]
            others = {result.unit.baseline_of: result for result in kept_run.results if result.unit.variant == variant}
            for ours in own:
                theirs = others.get(ours.unit.tuned_of or ours.unit.name)
                if ours.throughput and theirs and theirs.throughput:
                    ratio, repeats = ours.throughput / theirs.throughput, len(ours.throughputs)
                    yield MeasuredClaim(host.name, kept_run, ours.unit.program, ratio, repeats, ours.unit.name, None)
