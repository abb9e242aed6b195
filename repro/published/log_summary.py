"""Sums up one log for a person: what `make parse` prints."""

from collections.abc import Iterator
from pathlib import Path

from repro.published.cases import load_catalogue
from repro.published.logs import Log, parse
from repro.published.rules import MeanRows, Rule, RuleError


def summary(path: str | Path) -> dict:
    """Contents of one log for JSON: the output of `make parse`.

    Figures follow the rule of the first report that printed such logs. If it cannot be applied, the closest rule that can is
    used and named in ``rule``, and ``warnings`` says why; without any, throughput is None.
    """
    log = parse(path)
    warnings = list(log.notes)
    rule: dict[str, object] | None = None
    figures: dict[str, float | None] = {"throughput": None, "latency_ms": None}
    for candidate in _published_rules(log):
        try:
            figures["throughput"] = round(candidate.throughput(log, log.global_batch), 6)
        except RuleError as error:
            warnings.append(error.reason)
            continue
        rule = {"kind": candidate.kind, **candidate.parameters}
        try:
            figures["latency_ms"] = round(candidate.latency_ms(log, log.global_batch), 6)
        except RuleError as error:
            warnings.append(error.reason)
        break
    return {
        "file": log.path,
        "generation": log.generation,
        "rows": log.row_count,
        "configuration": dict(log.configuration),
        "global_batch": log.global_batch,
        "rule": rule,
        **figures,
        "memory_mib": log.memory_mib,
        "warnings": warnings,
    }


def _published_rules(log: Log) -> Iterator[Rule]:
    """Yield the rules of the reports that printed such logs, each with those that may replace it, then the simplest."""
    for report in load_catalogue().reports:
        if report.log_generation == log.generation:
            yield report.rule
            yield from report.rule.nearest(log)
    yield MeanRows(skip_first=1)
