"""Sums up one log for a person: what `make parse` prints."""

from collections.abc import Iterator

from repro.published.cases import Rule
from repro.published.logs import Log, parse
from repro.published.rules import RuleError, first_epoch, latency_ms, throughput


def summary(path) -> dict:
    """Everything one log says, JSON-able: what `make parse` prints.

    Figures follow the published rule of the log's generation. Where that cannot be applied, the nearest one that
    can is used and named in ``rule``, and ``warnings`` says why; without any, throughput is None.
    """
    log = parse(path)
    warnings = list(log.notes)
    rule, figures = None, {"throughput": None, "latency_ms": None}
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


def _published_rules(log: Log) -> Iterator:
    """Yield the published rule of the log's generation, then what may stand in for it."""
    if log.generation in "BC":
        yield Rule("stamps", first_row=1, last_row=6)
        rows = first_epoch(log)
        if rows and rows[0].stamp:
            yield Rule("stamps", first_row=1, last_row=rows[-1].step // max(1, rows[0].step))
    if log.generation == "E":
        yield Rule("last_rows", rows=5)
    yield Rule("mean_rows", skip_first=1)
