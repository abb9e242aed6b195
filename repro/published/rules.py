"""The measuring rules of the published reports: how one throughput and one latency are read from a training log.

Each report printed what its own scripts computed, so the rule belongs to the report (`repro.published.cases.Rule`;
`Rule.source` names the script or the log that each was read from). It is applied here to published logs and to those
of new runs alike.
"""

import math

from repro.published.cases import Rule
from repro.published.logs import Log, LogError, Row


class RuleError(LogError):
    """A measuring rule cannot be applied to a log; the message says what is missing."""

    def __init__(self, log: Log, rule: Rule, reason: str):
        super().__init__(f"the rule '{rule.kind}' cannot be applied: {reason}", log.path)


def throughput(log: Log, rule: Rule, global_batch: int | None = None) -> float:
    """Throughput of a log by a published rule, in samples/s.

    Parameters
    ----------
    rule
        "mean_rows": mean of the printed throughput of all rows after the first `skip_first`. "last_rows": the same of
        the last `rows`. "stamps": global batch x iterations / seconds between the Unix stamps of rows number
        `first_row` and `last_row`; row n is the one printed at iteration n x print interval, so a log that holds only
        these two rows is enough.
    global_batch
        Samples per iteration; only "stamps" needs it.

    Raises
    ------
    RuleError
        There are too few rows, a row or its stamp is missing, or the result is not a positive number.
    """
    if rule.kind == "stamps":
        iterations, seconds = _between_stamps(log, rule)
        if not global_batch:
            raise RuleError(log, rule, "it needs the global batch size, which the log does not state")
        result = global_batch * iterations / seconds
    elif rule.kind == "mean_rows":
        skip = rule.parameters["skip_first"]
        _require_rows(log, rule, skip + 1)
        skipped = math.fsum(row.samples_per_s for row in log.rows[:skip])
        result = (log.samples_per_s_sum - skipped) / (log.row_count - skip)
    else:
        rows = _last_rows(log, rule)
        result = math.fsum(row.samples_per_s for row in rows) / len(rows)
    return _positive(log, rule, result, "throughput")


def latency_ms(log: Log, rule: Rule, global_batch: int | None = None) -> float:
    """Latency of a log by a published rule, in ms per iteration; parameters and errors as for `throughput`.

    "stamps" is the time between its stamps per iteration, "last_rows" the mean of the printed latencies. Otherwise it
    is global batch / throughput.
    """
    if rule.kind == "stamps":
        iterations, seconds = _between_stamps(log, rule)
        return 1000 * seconds / iterations
    if rule.kind == "last_rows":
        rows = _last_rows(log, rule)
        printed = [row.latency_s for row in rows if row.latency_s is not None]
        if len(printed) == len(rows):
            return _positive(log, rule, 1000 * math.fsum(printed) / len(rows), "latency")
    if not global_batch:
        raise RuleError(log, rule, "the rows print no latency, and the log does not state the global batch size")
    return 1000 * global_batch / throughput(log, rule, global_batch)


def first_epoch(log: Log) -> list[Row]:
    """Rows before the iteration count restarts: between epochs lie validation and saving."""
    return [row for row in log.rows if row.other.get("epoch", 0) == 0]


def print_interval(log: Log, rule: Rule) -> int:
    """Iterations between printed rows: as the log states it, else the step of its first row.

    Raises
    ------
    RuleError
        Rows of the first epoch are missing, or are not printed at its multiples, for instance because the first row
        was lost.
    """
    rows = first_epoch(log)
    if not rows:
        raise RuleError(log, rule, "it needs rows of the first epoch, the log holds none")
    stated = log.configuration.get("loss_print_every_n_iter", log.configuration.get("log_interval"))
    steps = [row.step for row in rows if row.step is not None]
    interval = stated if isinstance(stated, int) and stated > 0 else max(1, steps[0])
    for step in steps:
        if step % interval:
            reason = f"its rows are not printed every {interval} iterations: one is at step {step}"
            raise RuleError(log, rule, reason)
    return interval


def _between_stamps(log: Log, rule: Rule) -> tuple[int, float]:
    """Iterations and seconds between the two rows that "stamps" reads."""
    interval = print_interval(log, rule)
    stamps = {row.step: row.stamp for row in first_epoch(log) if row.step is not None}
    numbers = rule.parameters["first_row"], rule.parameters["last_row"]
    first, last = (number * interval for number in numbers)
    times = []
    for number, step in zip(numbers, (first, last), strict=True):
        if step not in stamps:
            present = f"the rows of the first epoch go from step {min(stamps)} to {max(stamps)}"
            raise RuleError(log, rule, f"row {number} (step {step}) is missing: {present}")
        if (stamp := stamps[step]) is None:
            raise RuleError(log, rule, f"the row at step {step} has no Unix stamp")
        times.append(stamp)
    seconds = times[1] - times[0]
    if last <= first or seconds <= 0:
        raise RuleError(log, rule, f"between steps {first} and {last} lie {seconds} s")
    return last - first, seconds


def _last_rows(log: Log, rule: Rule) -> tuple[Row, ...]:
    rows = rule.parameters["rows"]
    _require_rows(log, rule, rows)
    return log.rows[-rows:]


def _require_rows(log: Log, rule: Rule, rows: int) -> None:
    if log.row_count < rows:
        raise RuleError(log, rule, f"it needs {rows} rows, the log holds {log.row_count}")


def _positive(log: Log, rule: Rule, value: float, name: str) -> float:
    if not (math.isfinite(value) and value > 0):
        raise RuleError(log, rule, f"the {name} it gives is {value}: not a positive number")
    return value
