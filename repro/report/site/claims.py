"""The claims: each published throughput, speed-up and memory, and everything that is known about it.

A claim's id is its case and its metric, such as `bert_1n1g_bs96/throughput`. It never changes, and every page has the
claim under it as an anchor.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pandas as pd

from repro.analysis.verdict import Verdict, tolerance
from repro.models.programs import PUBLISHED
from repro.perfmodel.hardware import describe
from repro.perfmodel.plan_table import PlanRow as Planned
from repro.perfmodel.plan_table import plan_rows
from repro.published.audit.engine import Audit
from repro.published.audit.findings import Finding
from repro.published.cases import Case, Report
from repro.published.claim_ids import MEMORY, SPEEDUP, THROUGHPUT, anchor, claim_id
from repro.published.figures import PrintedNumber
from repro.report.host.results import MeasuredHost
from repro.report.host.run import KeptRun
from repro.runs.unit import Unit

UNITS = {THROUGHPUT: "samples/s", SPEEDUP: "×", MEMORY: "MiB"}
PUBLISHED_CLUSTER = "v100x32"
AS_PUBLISHED, OTHERWISE, DERIVED, NOT_RUN = "as-published", "tuned", "derived", "not-run"
"""What has run that has a claim's figure: the port, the tuned program only, only a derived form of its case, nothing."""


@dataclass(frozen=True)
class MeasuredClaim:
    """What a host's newest run with a case gives for a claim; `value` is in the unit of the claim.

    `program` is "published" or "tuned"; `repeats` is how many attempts succeeded; `row` names the row of `results.csv`.
    `shared` is whether another program used the host's processors meanwhile.
    """

    host: str
    kept_run: KeptRun
    program: str
    value: float
    repeats: int
    row: str
    verdict: Verdict | None
    shared: bool = False

    @property
    def gpu(self) -> str:
        return self.kept_run.gpus[0]["name"] if self.kept_run.gpus else "CPU"

    @property
    def outcome(self) -> str:
        """The verdict's outcome; "none" where the measurement cannot be compared with the published figure."""
        return self.verdict.outcome if self.verdict else "none"

    @property
    def confidence(self) -> float | None:
        """The confidence that the verdict's interval has, None without a verdict."""
        interval = self.verdict.ratio.interval if self.verdict and self.verdict.ratio else None
        return interval.confidence if interval else None


@dataclass(frozen=True)
class Claim:
    """One published figure.

    `expected` is the performance model's figure for the published cluster and `within` its uncertainty as a factor, both
    None for a speed-up of a case without one on a single GPU. `minutes` are those of the repeats after which a verdict
    can be reached, None where the program cannot be run here; `gpu` is that of the published cluster, `allowed` the
    relative tolerance around the published figure.
    """

    case: Case
    report: Report
    metric: str
    published: PrintedNumber
    findings: tuple[Finding, ...]
    expected: float | None
    within: float | None
    measured: tuple[MeasuredClaim, ...]
    coverage: str
    minutes: float | None
    gpu: str
    allowed: float

    @property
    def id(self) -> str:
        return claim_id(self.case.name, self.metric)

    @property
    def anchor(self) -> str:
        """The id as an anchor within a page."""
        return anchor(self.id)

    @property
    def command(self) -> str:
        """How to check it; empty for a case whose program cannot be run here."""
        return command([self.case]) if self.case.ported else ""

    @property
    def needs(self) -> str:
        """The GPUs of the published run, as nodes x GPUs per node."""
        return f"{self.case.nodes} x {self.case.gpus_per_node}"


def command(cases: Sequence[Case]) -> str:
    """What runs these cases of one model, on the published cluster if they need several nodes."""
    cluster = f" CLUSTER={PUBLISHED_CLUSTER}" if any(case.nodes > 1 for case in cases) else ""
    return f"make bench MODEL={cases[0].model} CASES={','.join(case.name for case in cases)}{cluster}"


def claims(audit: Audit, hosts: Sequence[MeasuredHost]) -> list[Claim]:
    """All claims, in the order in which the figures were published; throughput before speed-up before memory."""
    material = audit.material
    cluster = describe(PUBLISHED_CLUSTER)
    planned = {row.case.name: row for row in plan_rows(material.cases, cluster)}
    all_claims = []
    for case in material.cases:
        report = material.catalogue.report(case.report)
        for metric, printed in _printed(case):
            expected, within = _expected(metric, case, planned, material.cases)
            ran = tuple(_measured(hosts, case, metric))
            all_claims.append(
                Claim(
                    case,
                    report,
                    metric=metric,
                    published=printed,
                    findings=tuple(_findings(audit, case, metric)),
                    expected=expected,
                    within=within,
                    measured=tuple(measured for measured in ran if not measured.shared),
                    coverage=coverage(ran, _derived(hosts, case, metric)),
                    minutes=60 * planned[case.name].first_look_hours if case.ported else None,
                    gpu=material.cluster(report)["hardware"]["gpu"],
                    allowed=tolerance(case, material.catalogue).value,
                )
            )
    return all_claims


def _printed(case: Case) -> Iterator[tuple[str, PrintedNumber]]:
    """The figures of a case that are claims; one GPU has no speed-up."""
    yield THROUGHPUT, case.published.throughput
    if case.published.speedup is not None and case.layout.world_size > 1:
        yield SPEEDUP, case.published.speedup
    if case.published.memory_mib is not None:
        yield MEMORY, case.published.memory_mib


def _expected(
    metric: str, case: Case, planned: dict[str, Planned], cases: Iterable[Case]
) -> tuple[float | None, float | None]:
    """The model's figure for the published program on the published cluster, and its uncertainty as a factor."""
    expectation = planned[case.name].expectation
    if expectation is None:
        return None, None
    if metric == MEMORY:
        return expectation.memory_mib, 1 + expectation.memory_uncertainty
    if metric == THROUGHPUT:
        return expectation.throughput, 1 + expectation.uncertainty
    alone = next((other for other in cases if _same_on_one_gpu(other, case)), None)
    one = planned[alone.name].expectation if alone else None
    return (expectation.throughput / one.throughput, 1 + expectation.uncertainty) if one else (None, None)


def _same_on_one_gpu(other: Case, case: Case) -> bool:
    same = ("report", "micro_batch", "accumulation_steps", "shape")
    return other.layout.world_size == 1 and all(getattr(other, name) == getattr(case, name) for name in same)


def _findings(audit: Audit, case: Case, metric: str) -> Iterator[Finding]:
    """What the audit found at the figure itself."""
    for finding in audit.of(case.report):
        if finding.claim == claim_id(case.name, metric):
            yield finding


def _measured(hosts: Iterable[MeasuredHost], case: Case, metric: str) -> Iterator[MeasuredClaim]:
    """The newest run of each host and program that ran this very case.

    As on the host's page, one on synthetic batches is taken only where none reads files, and one that shared the host's
    processors only where no other of these has it.
    """
    for host in hosts:
        newest: dict[str, MeasuredClaim] = {}
        results = [
            (kept_run, result)
            for kept_run in host.measured
            for result in kept_run.results
            if case.name in result.unit.stands_for and not result.unit.baseline_of and result.throughputs
        ]
        results.sort(key=lambda pair: (pair[1].unit.reads_files, not host.is_shared(pair[0])))
        for kept_run, result in results:
            value = _value(kept_run, case, metric, result.throughput, result.memory_mib)
            if value is not None:
                verdicts = (verdict for verdict in kept_run.judgement.verdicts if verdict.case == case.name)
                newest[result.unit.program] = MeasuredClaim(
                    host.name,
                    kept_run,
                    program=result.unit.program,
                    value=value,
                    repeats=len(result.throughputs),
                    row=result.unit.name,
                    verdict=next(verdicts, None) if metric == THROUGHPUT else None,
                    shared=host.is_shared(kept_run),
                )
        yield from newest.values()


def _value(kept_run: KeptRun, case: Case, metric: str, throughput: float | None, memory: float | None) -> float | None:
    if metric == THROUGHPUT:
        return throughput
    if metric == MEMORY:
        return memory
    scaling = (
        candidate
        for candidate in kept_run.judgement.comparisons
        if (candidate.kind, candidate.case) == ("scaling", case.name)
    )
    comparison = next(scaling, None)
    return comparison.measured * case.layout.world_size if comparison else None


def _derived(hosts: Iterable[MeasuredHost], case: Case, metric: str) -> bool:
    """Whether a host has the figure of a training that was derived from the case."""
    return any(case.name in unit.derived_from for host in hosts for unit in _units_with(host, metric))


def _units_with(host: MeasuredHost, metric: str) -> Iterator[Unit]:
    """OneFlow's units that a host has this figure of."""
    if metric == SPEEDUP:
        yield from (row.unit for row in host.efficiencies if not row.unit.baseline_of)
        return
    for kept_run in host.measured:
        for result in kept_run.results:
            figures = {THROUGHPUT: result.throughput, MEMORY: result.memory_mib}
            if result.throughputs and not result.unit.baseline_of and figures[metric] is not None:
                yield result.unit


def coverage(ran: Sequence[MeasuredClaim], derived: bool) -> str:
    """How far a claim was brought; `derived` is whether a training that was derived from its case has the figure."""
    if any(measurement.program == PUBLISHED for measurement in ran):
        return AS_PUBLISHED
    if ran:
        return OTHERWISE
    return DERIVED if derived else NOT_RUN


def frame(all_claims: Iterable[Claim]) -> pd.DataFrame:
    """The claims as a table, a row each with the newest measurement by the port, or else by the tuned program."""
    return pd.DataFrame([_row(claim) for claim in all_claims])


def csv(all_claims: Iterable[Claim], comparisons: Sequence[dict] = ()) -> str:
    """The table as CSV; behind the figures, the rows of `repro.report.site.comparisons`."""
    buffer = io.StringIO()
    pd.concat([frame(all_claims), pd.DataFrame(comparisons)]).to_csv(buffer, index=False, lineterminator="\n")
    return buffer.getvalue()


def best(claim: Claim) -> MeasuredClaim | None:
    """The measurement that says most about a claim: by the port if there is one, the newest of these."""
    ordered = sorted(claim.measured, key=lambda measured: (measured.program == PUBLISHED, measured.kept_run.run.id))
    return ordered[-1] if ordered else None


def _row(claim: Claim) -> dict:
    case, measured = claim.case, best(claim)
    return {
        "id": claim.id,
        "report": case.report,
        "model": case.model,
        "gpus": case.layout.world_size,
        "layout": str(case.layout),
        "precision": case.precision,
        "micro_batch": case.micro_batch,
        "metric": claim.metric,
        "published": str(claim.published),
        "unit": UNITS[claim.metric],
        "source": claim.report.url,
        "place": case.source,
        "audit": "; ".join(finding.id for finding in claim.findings) or "consistent",
        "expected_on_v100": None if claim.expected is None else f"{claim.expected:.5g}",
        "expected_within_factor": None if claim.within is None else f"{claim.within:.2f}",
        "coverage": claim.coverage,
        **measured_columns(measured),
        "check": claim.command or None,
        "needs": f"{claim.needs} {claim.gpu.removeprefix('Tesla ')}",
        "minutes": None if claim.minutes is None else f"{claim.minutes:.0f}",
        "reproduced_within": f"{claim.allowed:.4f}" if case.ported else None,
    }


def measured_columns(measured: MeasuredClaim | None) -> dict:
    """The columns on what was measured of a claim."""
    if measured is None:
        names = ("measured", "repeats", "program", "hardware", "verdict", "confidence", "run", "evidence", "row")
        return {**dict.fromkeys(names), "verdict": "not-measured"}
    return {
        "measured": f"{measured.value:.6g}",
        "repeats": str(measured.repeats),
        "program": measured.program,
        "hardware": measured.gpu,
        "verdict": measured.outcome,
        "confidence": f"{measured.confidence:.3f}" if measured.confidence else None,
        "run": measured.kept_run.run.id,
        "evidence": f"reports/reproduced/{measured.host}/runs/{measured.kept_run.run.path.name}",
        "row": measured.row,
    }
