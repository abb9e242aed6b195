"""Holds the course of a run against its record: when it began, in which order attempts ran, beside which others, and why
it stopped.

A repeat that was removed and run again leaves its place in that order, or a time in which nothing ran.
"""

from __future__ import annotations

import calendar
import math
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from operator import attrgetter

from repro.analysis.difference import Difference
from repro.analysis.stopping import why_enough
from repro.runs.attempts import INTERRUPTED, AttemptRecord
from repro.runs.description import RunDescription
from repro.runs.plan import BENCH, Plan
from repro.runs.record import ATTEMPTS, STAMPED, Run
from repro.utils.i18n import N_, Message
from repro.utils.progress import duration

SHOWN = 5
"""How many names of units a remark has."""
GAP_S = 5.0
"""From which time on without any attempt it is remarked, in s: 0.5 is the most in kept runs that were not interrupted."""
EARLY_S, OVERLAP_S = 0.05, 0.05
"""How far the controller's stamps may contradict each other, in s: those of a kept run never do."""
MOST_PAIRS = 2_000_000
"""How many pairs of attempts at the same time are looked at: more than 1024 have that all run together, the most of JOBS=."""
ZONES_S, ZONE_S, STAMP_S = 15 * 3600, 900, 60
"""A run's name has local time: at most 15 hours from UTC, by a multiple of 15 minutes; and a minute for the folder."""


def contradictions(run: Run, attempts: Sequence[AttemptRecord]) -> Iterator[Difference]:
    """Where the record of a run's course contradicts itself."""
    description = run.description()
    yield from _of_creation(description, attempts)
    yield from _of_order(attempts)
    yield from _of_neighbours(description.plan, attempts)
    yield from _of_stops(run, description.plan, attempts)


PAUSE = N_(
    "{attempt}: nothing is recorded for the {time} before it: the run was continued with RUN=, or attempts were removed"
)
SHORT = N_("{n:unit|units} of {units} with fewer repeats than the {repeats} planned, which no rule stopped: {names}")


def remarks(description: RunDescription, attempts: Sequence[AttemptRecord]) -> Iterator[Message]:
    """What a run that nobody bent may show too, but a reader should know: times without attempts, and repeats not run.

    On a cluster the code is copied to the nodes before the first attempt; elsewhere nothing takes time before it.
    """
    plan, ended = description.plan, None if description.environment.cluster else description.created
    succeeded_last = True
    for attempt in sorted(attempts, key=lambda attempt: attempt.started):
        if ended is not None and succeeded_last and attempt.started - ended > GAP_S:
            yield Message(PAUSE, attempt=attempt.folder, time=duration(attempt.started - ended))
        if ended is None or attempt.ended >= ended:
            ended, succeeded_last = attempt.ended, attempt.status == "ok"
    succeeded = Counter(attempt.unit for attempt in attempts if attempt.status == "ok")
    stopped = {attempt.unit for attempt in attempts if attempt.enough}
    short = [unit.name for unit in plan.units if unit.name not in stopped and succeeded[unit.name] < plan.repeats]
    if short:
        yield Message(
            SHORT,
            n=len(short),
            units=len(plan.units),
            repeats=plan.repeats,
            names=[*short[:SHOWN], *["…"][: len(short) > SHOWN]],
        )


def _of_creation(description: RunDescription, attempts: Sequence[AttemptRecord]) -> Iterator[Difference]:
    name, created = description.id, description.created
    if STAMPED.match(name):
        try:
            stamp: float = calendar.timegm(time.strptime(name[:15], "%Y%m%d-%H%M%S"))
        except ValueError:
            stamp = math.inf
        apart = stamp - created
        if abs(apart) > ZONES_S or abs(apart - ZONE_S * round(apart / ZONE_S)) > STAMP_S:
            utc = time.strftime("%Y%m%d-%H%M%S UTC", time.gmtime(created))
            yield Difference("run.json", "time of the run", (("its name", name[:15]), ("created", utc)))
    for attempt in attempts:
        if attempt.started < created - EARLY_S:
            says = (ATTEMPTS, attempt.started), ("run.json, created", created)
            yield Difference(attempt.folder, "start of the attempt", says)


def _of_order(attempts: Sequence[AttemptRecord]) -> Iterator[Difference]:
    """Repeats of a unit begin one after another; a later attempt at one that failed may follow others."""
    first: dict[str, dict[int, AttemptRecord]] = {}
    for attempt in attempts:
        repeats, number = first.setdefault(attempt.unit, {}), attempt.repeat
        repeats[number] = min(repeats.get(number, attempt), attempt, key=attrgetter("started"))
    for repeats in first.values():
        for repeat, later in pairwise(sorted(repeats)):
            if repeats[repeat].started > repeats[later].started:
                says = (f"repeat {repeat}", repeats[repeat].started), (f"repeat {later}", repeats[later].started)
                yield Difference(repeats[repeat].folder, "start of the first attempt", says)


def _of_neighbours(plan: Plan, attempts: Sequence[AttemptRecord]) -> Iterator[Difference]:
    """Attempts that ran at the same time name each other in `beside`, and name no others.

    Those of early runs of other kinds than a bench, which could run side by side on one machine, name none. One that was
    killed with its run could not say what ran beside it.
    """
    named = {attempt.folder: {other.attempt for other in attempt.beside} for attempt in attempts}
    together, near = _together(attempts, OVERLAP_S), _together(attempts, -GAP_S)
    for one, other in sorted(together):
        if other not in named[one] and (plan.kind == BENCH or any(named.values())):
            says = (ATTEMPTS, "not named in its `beside`"), ("the times of both", "at the same time")
            yield Difference(one, f"beside {other}", says)
    ended = {attempt.folder for attempt in attempts if attempt.status != INTERRUPTED}
    for one, others in named.items():
        for other in sorted(others):
            if (one, other) not in near and {one, other} <= ended | (others - named.keys()):
                says = (ATTEMPTS, "named in its `beside`"), ("the times of both", "one after the other")
                yield Difference(one, f"beside {other}", says)


def _together(attempts: Sequence[AttemptRecord], overlap_s: float) -> set[tuple[str, str]]:
    """Pairs of attempts that ran at the same time, both ways round; the first of a pair was not killed with its run.

    The nodes of an attempt are taken before its time begins and given back after it: with a negative `overlap_s`, those
    that were apart by less count as well. It ends with MOST_PAIRS, so that a record which claims that thousands of
    attempts ran together is read in time.
    """
    pairs, running = set(), list[AttemptRecord]()
    for attempt in sorted(attempts, key=lambda attempt: attempt.started):
        running = [earlier for earlier in running if earlier.ended > attempt.started + overlap_s]
        for earlier in running:
            pairs |= {(earlier.folder, attempt.folder), (attempt.folder, earlier.folder)}
        running.append(attempt)
        if len(pairs) > MOST_PAIRS:
            break
    killed = {attempt.folder for attempt in attempts if attempt.status == INTERRUPTED}
    return {pair for pair in pairs if pair[0] not in killed}


def _of_stops(run: Run, plan: Plan, attempts: Sequence[AttemptRecord]) -> Iterator[Difference]:
    """Where a unit was said to need no more repeats, the plan's stopping rule says so of the repeats up to then."""
    units = {unit.name: unit for unit in plan.units}
    for number, attempt in enumerate(attempts, 1):
        if "enough" in attempt.recorded and attempt.unit in units:
            again = why_enough(run, plan, list(attempts[:number]), units[attempt.unit])
            if again != attempt.enough:
                says = (ATTEMPTS, attempt.enough), ("the stopping rule", again)
                yield Difference(attempt.folder, "enough", says)
