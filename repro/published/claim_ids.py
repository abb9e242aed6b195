"""The names of published figures: a claim is a case's throughput, speed-up or memory.

A name is made of the case and the metric, such as `bert_1n1g_bs96/throughput`, so that it stays when others are added.
"""

from __future__ import annotations

THROUGHPUT, SPEEDUP, MEMORY = METRICS = ("throughput", "speedup", "memory")
COLUMNS = {
    THROUGHPUT: ("throughput", "latency_ms", "gpu_utilisation"),
    SPEEDUP: ("speedup", "efficiency"),
    MEMORY: ("memory_mib",),
}
"""The columns of the reports' tables that concern each metric; the first has the figure itself."""


def claim_id(case: str, metric: str) -> str:
    """The name of a case's figure."""
    return f"{case}/{metric}"


def anchor(claim: str) -> str:
    """A claim's name as an anchor within a page."""
    return claim.replace("/", ".")


def claim_at(case: str, column: str) -> str:
    """The claim whose figure a column of a report's table has in a case's row; empty for another column."""
    return next((claim_id(case, metric) for metric in METRICS if COLUMNS[metric][0] == column), "")


def claim_concerned(case: str, column: str) -> str:
    """The claim that a finding at this column of a case's row concerns; empty for none."""
    return next((claim_id(case, metric) for metric in METRICS if column in COLUMNS[metric]), "")
