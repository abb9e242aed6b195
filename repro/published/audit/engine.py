"""Audits the published reports: applies every rule, counts the comparisons and collects the findings."""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from repro.models.registry import spec_of
from repro.published.audit import (
    arithmetic,
    bounds,
    claims,
    consistency,
    editorial,
    environment,
    origins,
    plausibility,
    side_tables,
    twice,
)
from repro.published.audit.findings import SEVERITIES, Finding
from repro.published.audit.flops import Efficiency, efficiency
from repro.published.audit.material import Material
from repro.published.noise import Noise, published_noise
from repro.utils.paths import DATA

REGISTER = DATA / "findings.toml"
MODULES = (origins, arithmetic, consistency, plausibility, editorial, claims, environment, twice, bounds, side_tables)
RULES = tuple(rule for module in MODULES for rule in module.RULES)


@dataclass(frozen=True)
class AuditRule:
    """One rule, how often it was applied and how often it found something; `title` is to be looked up."""

    name: str
    title: str
    compared: int
    findings: int


@dataclass(frozen=True, eq=False)
class Audit:
    """The result of an audit of one set of data."""

    material: Material
    checks: tuple[AuditRule, ...]
    findings: tuple[Finding, ...]
    noise: Noise
    efficiencies: tuple[Efficiency, ...]

    def of(self, report: str) -> tuple[Finding, ...]:
        """The findings in one report."""
        return tuple(finding for finding in self.findings if finding.report == report)

    def counted(self, report: str | None = None) -> tuple[Finding, ...]:
        """The findings that are counted, in one report or all: hints at typing errors are none."""
        return tuple(finding for finding in self.findings if not finding.hint and report in (None, finding.report))

    def at(self, report: str, table: str, row: str, column: str) -> tuple[Finding, ...]:
        """The findings at one place."""
        return tuple(
            finding
            for finding in self.of(report)
            if (finding.place.table, finding.place.row, finding.place.column) == (table, row, column)
        )


def audit(data: Path | Material = DATA) -> Audit:
    """Apply every rule to a folder of published data, or to data that was already read.

    Returns
    -------
    Audit
        Findings on what was measured at all, then the others, then typing errors; each by report, severity and rule.
    """
    material = data if isinstance(data, Material) else Material.load(data)
    checks, findings = [], []
    for name, title, rule in RULES:
        results = list(rule(material))
        bad = [result for result in results if result]
        findings += bad
        checks.append(AuditRule(name, title, len(results), len(bad)))
    order = {report.id: place for place, report in enumerate(material.reports)}
    findings.sort(
        key=lambda finding: (finding.rank, order.get(finding.report, len(order)), SEVERITIES.index(finding.severity))
    )
    return Audit(
        material,
        tuple(checks),
        findings=_unique(findings),
        noise=published_noise(material.cases),
        efficiencies=_efficiencies(material),
    )


def _unique(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    unique: dict[str, Finding] = {}
    for finding in findings:
        if unique.setdefault(finding.id, finding) is not finding:
            raise ValueError(f"two findings have the id {finding.id}: a rule must name its place more closely")
    return tuple(unique.values())


def _efficiencies(material: Material) -> tuple[Efficiency, ...]:
    counted = (case for case in material.cases if spec_of(case.model).published_flops)
    cases = (case for case in counted if case.published.latency_ms is not None)
    return tuple(efficiency(case, material.cluster_of(case)["hardware"]["gpu_peak_tflops"]) for case in cases)


def as_json(result: Audit) -> str:
    """The content of `audit.json`; the same data gives the same text."""
    content = {
        "findings": [finding.as_json() for finding in result.findings],
        "checks": [
            {"rule": check.name, "title": check.title, "compared": check.compared, "found": check.findings}
            for check in result.checks
        ],
        "noise": _noise_json(result.noise),
        "efficiency": [
            {
                "case": computed.case,
                "gpus": computed.gpus,
                "teraflop_per_iteration": round(computed.teraflop, 3),
                "tflops_per_gpu": round(computed.tflops_per_gpu, 3),
                "share_of_peak": round(computed.share_of_peak, 4),
            }
            for computed in result.efficiencies
        ],
    }
    return json.dumps(content, ensure_ascii=False, indent=1) + "\n"


def differences(result: Audit, kept_audit: Path) -> list[str]:
    """A line for each finding that is new, gone or changed against a kept `audit.json`."""
    before = {finding["id"]: finding for finding in json.loads(kept_audit.read_text(encoding="utf-8"))["findings"]}
    after = {finding["id"]: finding for finding in json.loads(as_json(result))["findings"]}
    lines = []
    for identity in sorted(before.keys() | after.keys()):
        if before.get(identity) != after.get(identity):
            state = "gone" if identity not in after else "changed" if identity in before else "new"
            finding = after.get(identity) or before[identity]
            lines.append(f"{state}: {identity}: printed {finding['printed']}, recomputed {finding['recomputed']}")
    return lines


def register_faults(result: Audit, register: Path = REGISTER) -> list[str]:
    """Differences between an audit and the register of its identifiers, one line each.

    An identifier names a rule and its subject. Every identifier ever given must either be found again or be withdrawn
    with a reason, so that no finding disappears unnoticed and no identifier changes its meaning.
    """
    data = tomllib.loads(register.read_text(encoding="utf-8"))
    given, withdrawn = data["given"], [entry["id"] for entry in data.get("withdrawn", ())]
    identifiers = [finding.id for finding in result.findings]
    names = Counter([*given, *withdrawn])
    return [
        *(f"{register.name}: {identifier} is there twice" for identifier, count in names.items() if count > 1),
        *(f"{register.name}: {identifier} is withdrawn without a reason" for identifier in _without_reason(data)),
        *(f"{identifier}: is not in {register.name}" for identifier in identifiers if identifier not in names),
        *(
            f"{identifier}: is withdrawn in {register.name}, yet found"
            for identifier in identifiers
            if identifier in withdrawn
        ),
        *(
            f"{identifier}: is in {register.name}, yet no longer found: withdraw it with a reason"
            for identifier in given
            if identifier not in identifiers
        ),
    ]


def _without_reason(data: dict) -> list[str]:
    return [entry["id"] for entry in data.get("withdrawn", ()) if not entry.get("reason", "").strip()]


def _noise_json(noise: Noise) -> dict:
    return {
        "repeats": [
            {
                "case": name,
                "runs": spread.samples,
                "median": spread.median,
                "minimum": spread.minimum,
                "maximum": spread.maximum,
                "cv": round(noise.cvs[name], 6),
            }
            for name, spread in noise.repeats.items()
        ],
        "duplicates": [
            {"cases": list(names), "relative_difference": round(apart, 6)} for names, apart in noise.duplicates.items()
        ],
    }
