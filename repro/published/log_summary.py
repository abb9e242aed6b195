"""Sums up one log for a person: what `make parse` prints."""

from collections.abc import Iterator
from pathlib import Path

from repro.published.cases import Rule
from repro.published.logs import Log, parse
from repro.published.rules import RuleError, first_epoch, latency_ms, throughput


def summary(path: str | Path) -> dict:
    """Contents of one log for JSON: the output of `make parse`.

    Figures follow the published rule of the log's generation. If it cannot be applied, the closest rule that can is
    used and named in ``rule``, and ``warnings`` says why; without any, throughput is None.
    """
    log = parse(path)
    warnings = list(log.notes)
    rule: dict[str, object] | None = None
    figures: dict[str, float | None] = {"throughput": None, "latency_ms": None}
    for candidate in _published_rules(log):
        try:
            figures["throughput"] = round(throughput(log, candidate, log.global_batch), 6)
        except RuleError as error:
            warnings.append(error.reason)
            continue
        rule = {"kind": candidate.kind, **candidate.parameters}
        try:
            figures["latency_ms"] = round(latency_ms(log, candidate, log.global_batch), 6)
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
    """Yield the published rule of the log's generation, then those that may replace it."""
    if log.generation in "BC":
        yield Rule("stamps", first_row=1, last_row=6)
        rows = first_epoch(log)
        steps = [row.step for row in rows if row.step is not None]
        if steps and rows[0].stamp:
            yield Rule("stamps", first_row=1, last_row=steps[-1] // max(1, steps[0]))
    if log.generation == "E":
        yield Rule("last_rows", rows=5)
    yield Rule("mean_rows", skip_first=1)
