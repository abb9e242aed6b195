"""Holds the times of an attempt against each other: rows against the clock, ranks against rank 0, both against the record.

A rank times each row with a counter of its own and stamps it with the time of day, so a row that was made faster
contradicts its stamps. Every rank writes such a file.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from repro.analysis.difference import Difference
from repro.runs.attempts import AttemptRecord
from repro.runs.files import GPU_EVERY_S, GPU_FILE
from repro.runs.metrics import METRICS
from repro.runs.record import ATTEMPTS
from repro.runs.unit import Unit

ROW, ROW_S = 0.001, 0.001
"""How far a row's duration may be from its stamps: a share of it, and s.

In 30,450 rows of kept runs the two are at most 35 µs apart, whatever the duration, and the whole of an attempt at most
22 µs. A clock that is being set right runs up to 0.05% fast or slow (adjtimex(2)).
"""
BUSY_S = 0.5
"""The bound in s for runs on the CPU, whose speed is not judged: a busy machine may preempt a rank between two readings.

On two virtual machines with a fifth of a processor each, 0.016 s was seen.
"""
FIRST_S = 0.5
"""How much later than its start event the first row may begin, in s; 0.0006 is the most in kept runs."""
RANKS, RANKS_S = 0.005, 0.3
"""How far the rows of two ranks may drift apart: a share of the time since the first one, and s.

Ranks of a pipeline print theirs at different times: 0.11 s at most in kept runs, 0.05 s without a pipeline.
"""
ENDS_S = 0.3
"""How far the time from start to end may differ between two ranks, in s, besides `RANKS` and `_ahead_s`.

Ranks that fetch losses wait for each other in every iteration: one is at most an iteration ahead, and on four GPUs 0.58 s
was seen. A rank that fetches none waits for rank 0 at a row alone: in pipelines of 2 and 4 stages it ended up to one
iteration less ahead than were left after the last row, 0.9 of 2 and 2.9 of 4.
"""
RECORD_S = 0.05
"""How far an event may be outside the time that its attempt's record states, in s: none of a kept run is."""

SAMPLED_S = 1.0
"""How much less time an attempt may have taken than its GPUs were sampled, in s: in kept runs none did.

It may have taken more: nvidia-smi may begin late, or end.
"""


def contradictions(
    unit: Unit, attempt: AttemptRecord, ranks: Sequence[list[dict]], samples: Sequence[Mapping[str, str]] = ()
) -> Iterator[Difference]:
    """Where the times of a successful attempt contradict each other; `ranks` are the events of each rank, rank 0 first.

    `samples` are those of its GPUs, of one machine.
    Ranks are compared where they train on GPUs: on processors that others use too, they lag by seconds.
    """
    where = attempt.folder
    for rank, events in enumerate(ranks):
        yield from _in_order(where, events, METRICS.format(rank))
        yield from _rows(unit, where, events, METRICS.format(rank))
    for rank, events in enumerate(ranks[1:] if unit.config.device == "cuda" else (), 1):
        yield from _of_rank(unit, where, ranks[0], events, rank)
    if not attempt.nodes:
        yield from _within_record(attempt, ranks)
        yield from _sampled(attempt, samples)


def _rows(unit: Unit, where: str, events: list[dict], source: str) -> Iterator[Difference]:
    """Whether each row, and all of them together, took the time between the stamps of their events.

    The first row begins soon after the start event. Throughput and latency of a row are of one duration.
    """
    slack = ROW_S if unit.config.device == "cuda" else BUSY_S
    begun = [event for event in events if event["event"] == "start" and "time" in event][:1]
    rows = [event for event in events if event["event"] == "iteration"]
    wrong = [pair for pair in pairwise([*begun, *rows]) if not _took_its_time(*pair, slack)]
    if wrong:
        before, row = wrong[0]
        what = f"seconds of the row of iteration {row['iteration']}{_more(wrong)}"
        yield Difference(
            where, what, ((f"its latency in {source}", _said(before, row)), ("the clock", row["time"] - before["time"]))
        )
    said = math.fsum(_said(*pair) for pair in pairwise(rows))
    elapsed = rows[-1]["time"] - rows[0]["time"] if rows else 0.0
    if not abs(elapsed - said) <= ROW * said + slack:
        what = f"seconds from iteration {rows[0]['iteration']} to {rows[-1]['iteration']}"
        yield Difference(where, what, ((f"the latencies in {source}", said), ("the clock", elapsed)))
    batches = [row for row in rows if not abs(_batch(row) - unit.global_batch) <= ROW * unit.global_batch]
    if batches:
        what = f"samples per iteration in the row of iteration {batches[0]['iteration']}{_more(batches)} of {source}"
        says = ("throughput times latency", _batch(batches[0])), ("the plan", unit.global_batch)
        yield Difference(where, what, says)


def _took_its_time(before: dict, row: dict, slack: float) -> bool:
    """Whether a row took the time from the stamp before it, which may be that of the start event, to its own."""
    said = _said(before, row)
    late, allowed = row["time"] - before["time"] - said, ROW * said + slack
    return -allowed <= late <= allowed + (FIRST_S if before["event"] == "start" else 0.0)


def _said(before: dict, row: dict) -> float:
    """The seconds that a row took by its latency."""
    return (row["iteration"] - before.get("iteration", 0)) * row["latency_ms"] / 1e3


def _batch(row: dict) -> float:
    return row["throughput"] * row["latency_ms"] / 1e3


def _more(wrong: list) -> str:
    return f" and of {len(wrong) - 1} others" if len(wrong) > 1 else ""


def _in_order(where: str, events: list[dict], source: str) -> Iterator[Difference]:
    """Start, rows and end follow each other, in time and in number."""
    stamped = [event for event in events if event["event"] in ("start", "iteration", "end") and "time" in event]
    for before, after in pairwise(stamped):
        what = f"order of events in {source}"
        if after["time"] < before["time"]:
            yield Difference(where, what, ((before["event"], before["time"]), (after["event"], after["time"])))
        numbers = [event["iteration"] for event in (before, after) if "iteration" in event]
        if numbers != sorted(numbers):
            yield Difference(where, what, ((before["event"], numbers[0]), (after["event"], numbers[1])))


def _of_rank(unit: Unit, where: str, of_rank_0: list[dict], others: list[dict], rank: int) -> Iterator[Difference]:
    """Whether another rank took as long as rank 0 from start to end, and printed its rows when rank 0 did.

    A rank that fetches no losses (OneFlow gathers them on rank 0) does not wait for its device: it prints its rows
    before rank 0 does.
    """
    names = METRICS.format(0), METRICS.format(rank)
    spans = [_span(events) for events in (of_rank_0, others)]
    if None not in spans:
        own, other = spans
        if not abs(own - other) <= RANKS * own + ENDS_S + _ahead_s(unit, of_rank_0, others):  # type: ignore[operator]
            yield Difference(where, "seconds from start to end", ((names[0], own), (names[1], other)))
    first, second = (_rows_of(events) for events in (of_rank_0, others))
    both = sorted(first.keys() & second.keys())
    if not both:
        return
    waits = all("loss" in second[iteration] for iteration in both)
    offset = second[both[0]]["time"] - first[both[0]]["time"] if waits else _offset(of_rank_0, others)
    begun = first[both[0]]["time"]
    for iteration in both:
        own, other = first[iteration]["time"], second[iteration]["time"] - offset
        apart, allowed = other - own, RANKS * (own - begun) + RANKS_S
        if not (abs(apart) <= allowed if waits else apart <= allowed):
            what = f"seconds from iteration {both[0]} to {iteration}"
            yield Difference(where, what, ((names[0], own - begun), (names[1], other - begun)))
            return


def _ahead_s(unit: Unit, of_rank_0: list[dict], others: list[dict]) -> float:
    """The duration in s of the iterations that a rank may be ahead of rank 0 at the end, as long as those of the last row.

    It is one, or all after the last row for a rank without losses; 0 s without rows.
    """
    rows = _rows_of(of_rank_0)
    if not rows:
        return 0.0
    left = unit.config.iterations % unit.config.log_interval
    ahead = 1 if any("loss" in event for event in others) else max(1, left)
    return ahead * rows[max(rows)]["latency_ms"] / 1e3


def _within_record(attempt: AttemptRecord, ranks: Sequence[list[dict]]) -> Iterator[Difference]:
    """Whether all that the ranks wrote lies between the attempt's start and end; on nodes, clocks may differ."""
    begun, ended = attempt.started, attempt.started + attempt.wall_s
    for rank, events in enumerate(ranks):
        times = [event["time"] for event in events if "time" in event]
        if times and not begun - RECORD_S <= min(times) <= max(times) <= ended + RECORD_S:
            says = (f"{begun} to {ended}", f"{min(times)} to {max(times)}")
            what = "time of the attempt"
            yield Difference(attempt.folder, what, ((ATTEMPTS, says[0]), (METRICS.format(rank), says[1])))


def _sampled(attempt: AttemptRecord, samples: Sequence[Mapping[str, str]]) -> Iterator[Difference]:
    """Whether the attempt took at least as long as its GPUs were sampled."""
    if not samples:
        return
    count = max(Counter(sample["index"] for sample in samples).values())
    least = GPU_EVERY_S * (count - 1)
    if attempt.wall_s < least - SAMPLED_S:
        says = (ATTEMPTS, attempt.wall_s), (f"{count} samples in {GPU_FILE}", f"{least} at least")
        yield Difference(attempt.folder, "seconds of the attempt", says)


def _span(events: list[dict]) -> float | None:
    """Seconds from a rank's start event to its end; None without either."""
    times = {
        event["event"]: event["time"] for event in events if event["event"] in ("start", "end") and "time" in event
    }
    return times["end"] - times["start"] if len(times) == 2 else None


def _offset(of_rank_0: list[dict], others: list[dict]) -> float:
    """How far a rank's clock is ahead of rank 0's, in s, by their last events, since all ranks end together."""
    return others[-1].get("time", 0.0) - of_rank_0[-1].get("time", 0.0)


def _rows_of(events: list[dict]) -> dict[int, dict]:
    return {event["iteration"]: event for event in events if event["event"] == "iteration"}
