"""The section of a host's page on whether repeats and sessions are independent, and what its intervals are worth if not."""

from __future__ import annotations

from collections import defaultdict

from repro.analysis.independence import Series, autocorrelation, shared_variance, student_coverage
from repro.planning.plan import verdict_looks
from repro.report import numbers
from repro.report.document import Block, Section, Text
from repro.report.host.results import MeasuredHost
from repro.report.host.rows import HostRow
from repro.report.independence import error_table, seen
from repro.runs.sessions import PAUSE_S
from repro.utils.i18n import Translate

MOST_SESSIONS = 6
"""The largest number of sessions whose coverage is stated."""


def independence(_: Translate, host: MeasuredHost) -> list[Section]:
    """How many sessions there are, how far repeats depend on each other, and the error that follows; nothing without rows."""
    rows = [list(_repeats(row).values()) for row in host.configurations]
    if not rows:
        return []
    correlation = autocorrelation([series for sessions in rows for series in sessions])
    shared = shared_variance(rows)
    texts = [
        _(
            "A session is a stretch of time on one machine. Runs record an anonymous identity of their machine and of its "
            "last start; of older runs, the facts that they recorded of it replace these, and a pause of more than "
            "{hours} hours begins another session. The runs of this page were made in {n} sessions."
        ).format(hours=f"{PAUSE_S / 3600:g}", n=len(set(host.sessions.values())))
    ]
    if correlation:
        text = _("The correlation of a repeat with the next one of the same configuration and session is {seen}.")
        texts.append(text.format(seen=seen(_, correlation)))
    if shared:
        text = _("The share of the variance that the repeats of a session have in common is {seen}.")
        texts.append(text.format(seen=seen(_, shared)))
    coverages = [student_coverage(n) for n in range(2, MOST_SESSIONS + 1)]
    texts.append(
        _(
            "Intervals over sessions are Student's t and hold 95% if the logarithms of the sessions' means are normally "
            "distributed. If they are skewed as exponential deviations are, with rare slow sessions, they hold {low} to "
            "{high} (simulated, 2 to {most} sessions)."
        ).format(low=numbers.percentage(min(coverages)), high=numbers.percentage(max(coverages)), most=MOST_SESSIONS)
    )
    blocks: list[Block] = [*map(Text, texts), error_table(_, verdict_looks(), correlation, shared)]
    return [Section("independence", _("Are repeats independent?"), tuple(blocks), folded=True)]


def _repeats(row: HostRow) -> dict[str, Series]:
    """The throughputs of a row's repeats by session, in the order in which they ran."""
    by_session: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for measurement in row.measurements:
        for attempt in measurement.kept_run.attempts:
            if attempt.unit == measurement.result.unit.name and attempt.status == "ok" and attempt.throughput:
                by_session[measurement.session].append((attempt.started, attempt.throughput))
    return {session: [value for _started, value in sorted(repeats)] for session, repeats in by_session.items()}
