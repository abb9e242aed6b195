"""The section of a host's page on whether repeats and sessions are independent, and what its intervals are worth if not."""

from __future__ import annotations

from collections import defaultdict

from repro.analysis.independence import Series, autocorrelation, shared_variance
from repro.planning.plan import verdict_looks
from repro.report.document import Block, Section, Text
from repro.report.host.results import MeasuredHost
from repro.report.host.rows import HostRow
from repro.report.independence import error_table, seen
from repro.report.method import link
from repro.utils.i18n import Translate


def independence(_: Translate, host: MeasuredHost) -> list[Section]:
    """How many sessions there are, how far repeats depend on each other, and the error that follows; nothing without rows."""
    rows = [list(_repeats(row).values()) for row in host.configurations]
    if not rows:
        return []
    correlation = autocorrelation([series for sessions in rows for series in sessions])
    shared = shared_variance(rows)
    n = len(set(host.sessions.values()))
    made = (
        _("The runs of this page were made in one session")
        if n == 1
        else _("The runs of this page were made in {n} sessions")
    )
    texts = [
        _("{made} ({method}).").format(
            made=made.format(n=n), method=link(_, "sessions", _("what a session is, and what intervals hold"))
        )
    ]
    if correlation:
        text = _("The correlation of a repeat with the next one of the same configuration and session is {seen}.")
        texts.append(text.format(seen=seen(_, correlation)))
    if shared:
        text = _("The share of the variance that the repeats of a session have in common is {seen}.")
        texts.append(text.format(seen=seen(_, shared)))
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
