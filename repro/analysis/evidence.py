"""Recomputes a run's figures from the output of its ranks, and names contradictions with the record.

Each successful attempt has three independently written witnesses: rank 0's log, the metrics of rank 0, and those of the
other ranks. `examine` recomputes throughput, latency, memory and losses from the first two and compares all three, so
editing a figure unnoticed would require consistent edits in all of them. What must hold besides is in other modules:
times (`clocks`), what ran (`what_ran`), the plan (`planned`) and the order of attempts (`course`).
"""

from __future__ import annotations

import math
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from zipfile import BadZipFile

from repro.analysis import clocks, copies, course, planned, steady, what_ran
from repro.analysis.adapter_traffic import FILE, adapter_changes, claims, silent_nodes
from repro.analysis.difference import Difference, Unrecorded
from repro.analysis.measurement import LOG, RankZero, measure, read_log
from repro.analysis.nccl_transport import transport_of
from repro.published.logs import Log, LogError
from repro.runs import translation
from repro.runs.attempts import AttemptRecord, Windows
from repro.runs.files import RecordError, RunPath, digest, gpu_samples, read_json
from repro.runs.manifest import alterations
from repro.runs.metrics import METRICS, read_metrics
from repro.runs.plan import Plan
from repro.runs.record import ATTEMPT, ATTEMPTS, Run
from repro.runs.unit import Unit
from repro.utils.i18n import N_, Message

EQUAL = 1e-9
"""The largest relative difference that another order of summation may make."""
PRINTED = 6e-4
"""How far a printed figure may be from its metrics: logs print losses and samples/s with three decimals at least."""
PRINTED_MS = 6e-3
"""The same for latencies, which are printed in seconds with five decimals."""
CLOCK_S = 0.02
"""How far the stamp of a printed row may be from that of its event, in s."""
ALWAYS = {"generation", "throughput", "latency_ms", "memory_mib", "memory_peak_mib", "losses"}
"""What every release recorded of a successful attempt; other figures may be missing in older runs."""
FEWEST_LOSSES = 10
"""The fewest first losses that any release recorded, of as many rows or more."""
FINISHED = N_("{attempt}: recorded as {status}, although all of its ranks trained to their end")
MOST_DIFFERENCES = 10
"""How many contradictions of an attempt are named: the first ones. Of a hostile one there are millions."""
OWN_KEYS = {"output"}
"""Keys in an attempt's configuration that are not in the unit's: its folder."""


@dataclass(frozen=True)
class Evidence:
    """How many successful attempts were read again, what contradicts their record, and attempts without a record.

    Parameters
    ----------
    unrecorded : folders of attempts that no line of attempts.jsonl names: they are still running, or were killed with
        their run, or their line was removed.
    unproven : by fact, how many of the attempts left no trace of it.
    remarks : what contradicts nothing, but a reader should know.
    noises, windows : of the attempts that were read again, by folder (`repro.analysis.copies`, `repro.analysis.steady`).
    """

    attempts: int
    differences: tuple[Difference, ...]
    unrecorded: tuple[str, ...] = ()
    unproven: Mapping[str, int] = field(default_factory=dict)
    remarks: tuple[Message, ...] = ()
    noises: Mapping[str, copies.Noise] = field(default_factory=dict, repr=False, compare=False)
    windows: Mapping[str, Windows | None] = field(default_factory=dict, repr=False, compare=False)

    @property
    def holds(self) -> bool:
        return not (self.differences or self.unrecorded)

    def lines(self) -> list[str]:
        """A line for each thing that is not as recorded."""
        return [*map(str, self.differences), *map(_without_record, self.unrecorded)]


def examine(run: Run) -> Evidence:
    """Read every successful attempt of a run again, in its folder or archive."""
    description = run.description()
    plan, attempts, gpus = description.plan, run.attempts(), description.environment.own_gpus
    units = {unit.name: unit for unit in plan.units}
    left = run.unrecorded()
    differences: list[Difference | Unrecorded] = [
        *planned.contradictions(plan, description.command),
        *_of_record(plan, attempts, left),
    ]
    differences += course.contradictions(run, attempts)
    succeeded = [attempt for attempt in attempts if attempt.status == "ok" and attempt.unit in units]
    wellformed = [attempt for attempt in succeeded if ATTEMPT.fullmatch(attempt.folder)]
    noises: dict[str, copies.Noise] = {}
    windows: dict[str, Windows | None] = {}
    for attempt in wellformed:
        folder = run.files / attempt.folder
        figures = _of_figures(units[attempt.unit], attempt, folder, gpus, noises, windows)
        differences += _as_far_as_readable(attempt.folder, figures)
    differences += dict.fromkeys([*_same_bytes(wellformed, run.files), *copies.within(noises)])
    return Evidence(
        len(succeeded),
        tuple(attempt for attempt in differences if isinstance(attempt, Difference)),
        unrecorded=tuple(left),
        unproven=Counter(attempt.fact for attempt in differences if isinstance(attempt, Unrecorded)),
        remarks=(*course.remarks(description, attempts), *_finished(units, attempts, run.files)),
        noises=noises,
        windows=windows,
    )


def _finished(units: Mapping[str, Unit], attempts: list[AttemptRecord], files: RunPath) -> Iterator[Message]:
    """Attempts without success whose ranks all reached their end: a slow repeat may have been called a failure."""
    for attempt in attempts:
        unit = units.get(attempt.unit)
        if attempt.status == "ok" or unit is None or not ATTEMPT.fullmatch(attempt.folder):
            continue
        ranks = (read_metrics(files / attempt.folder / METRICS.format(rank)).events for rank in range(unit.world_size))
        if all(events and events[-1]["event"] == "end" for events in ranks):
            yield Message(FINISHED, attempt=attempt.folder, status=attempt.status)


def require(run: Run) -> Evidence:
    """What was found; RecordError, with one line per difference, unless a run's files and figures match the record.

    In a folder, an attempt without a record is not an error: it may still be running.
    """
    evidence = examine(run)
    contradictions = evidence.lines() if run.archived else list(map(str, evidence.differences))
    if lines := [*alterations(run.files), *contradictions]:
        raise RecordError("\n".join((f"{run.path} is not as it was recorded:", *lines)))
    return evidence


def _without_record(folder: str) -> str:
    return (
        f"{folder}: no line of {ATTEMPTS} records this attempt: it is still running, it was killed with its run "
        "(continuing the run with RUN= records that), or its line was removed"
    )


def _of_record(plan: Plan, attempts: list[AttemptRecord], left: list[str]) -> Iterator[Difference]:
    """Lines of the record that cannot all have been written by a run of this plan."""
    planned = {unit.name for unit in plan.units}
    for number, attempt in enumerate(attempts, 1):
        where, folder = f"{ATTEMPTS}, line {number}", f"units/{attempt.unit}/repeat-{attempt.repeat}.attempt-"
        if attempt.unit not in planned:
            yield Difference(where, "unit", (("the record", attempt.unit), ("the plan", "none of this name")))
        if not re.fullmatch(re.escape(folder) + r"\d+", attempt.folder):
            yield Difference(where, "folder", (("the record", attempt.folder), ("a run", f"{folder}<n>")))
    for folder, count in Counter(attempt.folder for attempt in attempts).items():
        if count > 1:
            yield Difference(folder, "lines that record it", ((ATTEMPTS, count), ("a run", 1)))
    succeeded = Counter((attempt.unit, attempt.repeat) for attempt in attempts if attempt.status == "ok")
    for (unit, repeat), count in succeeded.items():
        if count > 1:
            where = f"units/{unit}/repeat-{repeat}"
            yield Difference(where, "attempts that succeeded", ((ATTEMPTS, count), ("a run", 1)))
    numbers: dict[str, set[int]] = {}
    for folder in (*(attempt.folder for attempt in attempts), *left):
        before, _, last = folder.rpartition(".attempt-")
        numbers.setdefault(before, set()).add(int(last) if last.isdecimal() else 0)
    for before, taken in numbers.items():
        missing = (number for number in range(1, max(taken)) if number not in taken)
        for number in islice(missing, MOST_DIFFERENCES):
            yield Difference(
                f"{before}.attempt-{number}",
                "attempt",
                ((ATTEMPTS, "none"), (f"attempt-{max(taken)}", "one before it")),
            )


def _as_far_as_readable(
    folder: str, differences: Iterator[Difference | Unrecorded]
) -> Iterator[Difference | Unrecorded]:
    """The first differences of an attempt, and that its files cannot be read where looking for them ends so."""
    try:
        yield from islice(differences, MOST_DIFFERENCES)
    except LogError as error:
        yield Difference(folder, LOG, ((ATTEMPTS, "read"), ("its folder", error.reason)))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecordError, BadZipFile, zlib.error) as error:
        yield Difference(folder, "files", ((ATTEMPTS, "whole"), ("its folder", f"unreadable: {error!r}")))


def _of_figures(
    unit: Unit,
    attempt: AttemptRecord,
    folder: RunPath,
    gpus: Sequence[Mapping],
    noises: dict[str, copies.Noise],
    windows: dict[str, Windows | None],
) -> Iterator[Difference | Unrecorded]:
    """Where a successful attempt's record and its files contradict each other, and what they do not prove.

    The noise of its rows is added to `noises`, their windows to `windows`.
    """
    where, log = attempt.folder, read_log(folder)
    metrics = [read_metrics(folder / METRICS.format(rank)) for rank in range(unit.world_size)]
    of_rank_0 = metrics[0].events
    noises[where] = copies.noise_of(of_rank_0)
    windows[where] = steady.windows_of(of_rank_0)
    for line in (line for rank_metrics in metrics for line in rank_metrics.damaged):
        yield Difference(where, f"line {line.line} of {line.file}", ((ATTEMPTS, "an event"), ("its folder", line.text)))
    rank_zero = RankZero(attempt.started)
    for event in of_rank_0:
        rank_zero.see(event)
    again = {LOG: measure(unit, log), METRICS.format(0): rank_zero.figures()}
    transport = transport_of(folder, unit.world_size).as_json()
    if "transport" in attempt.recorded:
        again["logs/"] = {"transport": transport}
    if "adapters" in attempt.recorded:
        again[FILE.format("*")] = {"adapters": adapter_changes(folder)}
    recorded = attempt.as_json()
    for source, figures in again.items():
        for name, value in figures.items():
            if (name in ALWAYS or name in recorded) and not _as_recorded(name, recorded.get(name), value):
                yield Difference(where, name, ((ATTEMPTS, recorded.get(name)), (source, value)))
    if rank_zero.no_number():
        yield Difference(where, "status", ((ATTEMPTS, attempt.status), (METRICS.format(0), "a loss is no number")))
    yield from _of_adapters(unit, where, folder, transport, of_rank_0)
    yield from _of_configuration(unit, where, folder, log, of_rank_0)
    yield from _log_and_metrics(where, log, of_rank_0)
    for rank in range(1, unit.world_size):
        yield from _losses_of_rank(where, of_rank_0, metrics[rank].events, rank)
    ranks = [rank_metrics.events for rank_metrics in metrics]
    yield from clocks.contradictions(unit, attempt, ranks, gpu_samples(folder))
    yield from what_ran.contradictions(unit, where, gpus, log, ranks)


def _of_adapters(
    unit: Unit, where: str, folder: RunPath, transport: Mapping, of_rank_0: list[dict]
) -> Iterator[Difference]:
    """Whether adapters sent what a program says that it exchanged over them."""
    rdma = next(iter(of_rank_0), {}).get("rdma")
    claimed = claims(transport, rdma, unit.config.device)
    if not claimed:
        return
    iterations = unit.config.iterations
    for node, packets in silent_nodes(adapter_changes(folder), iterations).items():
        said = f"{iterations} or more, for as many iterations over {', '.join(claimed)}"
        yield Difference(where, "packets sent", (("its ranks' output", said), (FILE.format(node), packets)))


def _of_configuration(unit: Unit, where: str, folder: RunPath, log: Log, of_rank_0: list[dict]) -> Iterator[Difference]:
    """Whether the run matches the plan."""
    if (folder / "config.json").is_file():
        planned, ran = unit.config.as_json(), _config_of_today(read_json(folder / "config.json"))
        for key in sorted((planned.keys() | ran.keys()) - OWN_KEYS):
            if planned.get(key) != ran.get(key):
                yield Difference(where, key, (("run.json", planned.get(key)), ("config.json", ran.get(key))))
    if log.global_batch not in (None, unit.global_batch):
        yield Difference(where, "global batch", (("run.json", unit.global_batch), (LOG, log.global_batch)))
    ended = [event["iterations"] for event in of_rank_0 if event["event"] == "end"]
    if ended != [unit.config.iterations]:
        source = METRICS.format(0)
        yield Difference(where, "iterations", (("run.json", unit.config.iterations), (source, ended or "no end")))


def _config_of_today(config: dict) -> dict:
    """An attempt's configuration by today's names, as those of the plan are read, without where its machine has data."""
    config = translation.configuration(config)
    if "standin" in (data := config.get("data") or {}):
        config["data"] = {key: value for key, value in data.items() if key != "folder"}
    return config


def _log_and_metrics(where: str, log: Log, of_rank_0: list[dict]) -> Iterator[Difference]:
    """Each row of the log is an event of rank 0."""
    source = METRICS.format(0)
    rows = {event["iteration"]: event for event in of_rank_0 if event["event"] == "iteration"}
    steps = [row.step for row in log.rows]
    if steps != list(rows):
        yield Difference(where, "rows", ((LOG, f"{len(steps)}"), (source, f"{len(rows)}, not of the same iterations")))
        return
    for row, event in zip(log.rows, rows.values(), strict=True):
        pairs = [
            ("loss", row.loss, event.get("printed_loss", event["loss"]), PRINTED),
            ("throughput", row.samples_per_s, event["throughput"], PRINTED),
            ("latency_ms", row.latency_s and 1000 * row.latency_s, event["latency_ms"], PRINTED_MS),
            ("time", row.stamp, event["time"], CLOCK_S),
        ]
        for name, printed, written, tolerance in pairs:
            if printed is not None and not abs(printed - written) <= tolerance:
                yield Difference(where, f"{name} at iteration {row.step}", ((LOG, printed), (source, written)))


def _losses_of_rank(where: str, of_rank_0: list[dict], others: list[dict], rank: int) -> Iterator[Difference]:
    """Whether another rank wrote rows of the same iterations, with the same losses if it has any."""
    own, source = METRICS.format(0), METRICS.format(rank)
    first = {event["iteration"]: event for event in of_rank_0 if event["event"] == "iteration"}
    second = {event["iteration"]: event for event in others if event["event"] == "iteration"}
    both = sorted(first.keys() & second.keys())
    if second and first.keys() != second.keys():
        yield Difference(where, "iterations", ((own, len(first)), (source, f"{len(second)}, not the same")))
    if any("loss" not in second[iteration] for iteration in both):
        return
    for iteration in both:
        losses = first[iteration]["loss"], second[iteration]["loss"]
        if not _equal(*losses):
            yield Difference(where, f"loss at iteration {iteration}", ((own, losses[0]), (source, losses[1])))


def _same_bytes(attempts: list[AttemptRecord], files: RunPath) -> Iterator[Difference]:
    """Attempts whose rank 0 wrote the very same bytes, times included: one is a copy of the other."""
    seen: dict[str, str] = {}
    for attempt in attempts:
        sha256 = digest(files / attempt.folder / METRICS.format(0))
        if sha256 and (before := seen.setdefault(sha256, attempt.folder)) != attempt.folder:
            what = "an attempt of its own"
            yield Difference(attempt.folder, what, ((ATTEMPTS, "yes"), (METRICS.format(0), f"a copy of {before}")))


def _as_recorded(name: str, recorded: object, again: object) -> bool:
    """Whether a recorded figure is the one that was read again; of losses as many as were recorded."""
    if name == "losses" and isinstance(recorded, list) and isinstance(again, list):
        return len(recorded) >= min(FEWEST_LOSSES, len(again)) and recorded == again[: len(recorded)]
    return _equal(recorded, again)


def _equal(recorded: object, again: object) -> bool:
    if isinstance(recorded, int | float) and isinstance(again, int | float):
        return math.isclose(recorded, again, rel_tol=EQUAL, abs_tol=1e-6)
    return recorded == again
