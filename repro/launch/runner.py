"""One run from plan to report: starts what is missing, records each attempt as it ends, and goes on after a failure."""

from __future__ import annotations

import re
import shutil
import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import cast

from repro.analysis.adapter_traffic import adapter_changes
from repro.analysis.measurement import RankZero, measure, read_log
from repro.analysis.nccl_transport import transport_of
from repro.launch.attempt import Event, Interrupts, PlacedAttempt, interruptible
from repro.launch.base import AttemptOf, Places
from repro.launch.gpu_pool import GpuPool
from repro.launch.program_code import BASELINES, TRAINERS, program_code
from repro.launch.progress import Progress
from repro.planning.schedule import Block, drawn, in_order, startable
from repro.published.logs import LogError
from repro.runs.attempts import AttemptRecord, Neighbour
from repro.runs.failures import Failure
from repro.runs.metrics import METRICS, DamagedLine, damage, damaged_lines, events
from repro.runs.plan import PUBLISHED, Plan
from repro.runs.record import ATTEMPT, RecordError, Run, disk_error
from repro.runs.unit import Unit

MIN_FREE_MIB = 200
WAKE_S = 0.2
"""How often the main thread wakes: the kernel may give a signal to another thread, and Python handles it only here."""


@dataclass
class Bench:
    """Runs the units of a plan into a run folder.

    Attributes
    ----------
    attempt_of : makes the attempt of a unit in a folder; it decides where and how the ranks are started.
    retries : how many times what fails is tried again; every attempt is recorded.
    places : runs attempts concurrently, each in a place of its own; these are `PlacedAttempt`s then. Without it they
        run one after another.
    replaced : the command that runs in place of the trainer, in tests.
    """

    run: Run
    plan: Plan
    progress: Progress
    attempt_of: AttemptOf
    retries: int = 0
    places: Places | None = None
    replaced: Sequence[str] = ()
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    """Held for whatever concurrent attempts must do one at a time: writing records and showing progress."""
    _beside: dict[str, list[Neighbour]] = field(default_factory=dict, repr=False)
    """For each attempt that runs, by its folder, those that have run at the same time, and their nodes."""
    _nodes: dict[str, tuple[str, ...]] = field(default_factory=dict, repr=False)

    def run_all(self) -> list[AttemptRecord]:
        """Run every unit and repeat that has not succeeded yet; return all attempts of the run.

        A signal ends the attempts that are running, and KeyboardInterrupt is raised once they are recorded.
        """
        self._record_killed()
        attempts = self.run.attempts()
        left = Counter(unit.name for unit, _ in remaining(self.plan, attempts))
        with interruptible() as interrupts:
            self.progress.begin(self.plan, left)
            _Schedule(self, interrupts, left).run(remaining(self.plan, attempts))
            return self.run.attempts()

    def attempt(self, turn: Turn, names: Sequence[str], stop: threading.Event) -> AttemptRecord:
        """Run one repeat of a unit and record how it ended, also when it is interrupted; returns the record.

        This is what a thread of the pool does. `names` are those of its place. Once `stop` is set, the attempt ends
        with KeyboardInterrupt.
        """
        unit, started, stamp = turn.unit, time.monotonic(), time.time()
        nodes = tuple(names) if self.places and self.places.are_nodes else ()
        with self.lock:
            folder = self.run.attempt_folder(unit.name, turn.repeat)
            key = str(folder.relative_to(self.run.folder))
            self._begin_beside(key, nodes)
            self.progress.started(unit, turn.repeat)
        begun = {
            "unit": unit.name,
            "repeat": turn.repeat,
            "attempt": int(cast(re.Match, ATTEMPT.fullmatch(key))[3]),
            "started": stamp,
            "folder": key,
            "code": self._code(unit),
            **({"nodes": nodes} if nodes else {}),
        }
        rank_zero = RankZero(stamp)

        def on_event(event: Event) -> None:
            if event.get("rank") == 0:
                rank_zero.see(event)
            self._show(unit, event)

        attempt = self.attempt_of(unit, folder.resolve())
        if self.places:
            attempt = cast(PlacedAttempt, attempt).on(names)
        try:
            outcome = attempt.run(on_event, stop)
        except OSError as error:
            raise disk_error(error, folder) from error
        except KeyboardInterrupt:
            interrupted = {"status": "interrupted", **rank_zero.figures(), "wall_s": time.monotonic() - started}
            self._record(AttemptRecord.of(**(begun | interrupted | _damaged(damaged_lines(folder)))))
            raise
        damaged, measured = damaged_lines(folder), {}
        failure = outcome.failure or rank_zero.no_number() or damage(damaged)
        if failure is None:
            try:
                measured = measure(unit, read_log(folder))
            except LogError as error:
                failure = Failure("the log cannot be read by its rule: {error}", {"error": str(error)})
        if unit.world_size > 1 and unit.config.device == "cuda":
            measured |= {"transport": transport_of(folder, unit.world_size).as_json()}
        if adapters := adapter_changes(folder):
            measured |= {"adapters": adapters}
        ended = {
            "status": "failed" if failure else "ok",
            **measured,
            **rank_zero.figures(),
            "failure": failure,
            "log_tail": outcome.log_tail,
            "cut": tuple(outcome.cut),
            **_damaged(damaged),
            **({"nodes": tuple(outcome.nodes)} if outcome.nodes else {}),
            "trainer_s": outcome.trainer_s,
            "wall_s": time.monotonic() - started,
        }
        return self._record(AttemptRecord.of(**(begun | ended)))

    def _code(self, unit: Unit) -> dict:
        if unit.baseline_of:
            return program_code(BASELINES, unit.program)
        return program_code(TRAINERS, unit.program, self.replaced, model=unit.model)

    def _record_killed(self) -> None:
        """Record the attempts that were killed with an earlier process of this run: no attempt is without a record."""
        for folder in self.run.unrecorded():
            unit, repeat, number = cast(re.Match, ATTEMPT.fullmatch(folder)).groups()
            there = self.run.folder / folder
            times = [path.stat().st_mtime for path in (there, *there.rglob("*"))]
            rank_zero = RankZero(min(times))
            for event in events(there / METRICS.format(0)):
                rank_zero.see(event)
            self._record(
                AttemptRecord.of(
                    unit=unit,
                    repeat=int(repeat),
                    attempt=int(number),
                    started=min(times),
                    folder=folder,
                    status="interrupted",
                    **rank_zero.figures(),
                    **_damaged(damaged_lines(there)),
                    wall_s=max(times) - min(times),
                )
            )

    def _record(self, record: AttemptRecord) -> AttemptRecord:
        """Write down an attempt that ended, what ran beside it, and, if the unit needs no more repeats, why: `enough`.

        Returns what was written.
        """
        with self.lock:
            if beside := self._beside.pop(record.folder, []):
                record = record.with_more(beside=tuple(beside))
            if self.plan.looks and record.status == "ok":
                from repro.analysis.stopping import why_enough  # pandas, for which no run waits at its start

                (unit,) = (unit for unit in self.plan.units if unit.name == record.unit)
                attempts = [*self.run.attempts(), record]
                record = record.with_more(enough=why_enough(self.run, self.plan, attempts, unit))
            self.run.add_attempt(record)
        return record

    def _begin_beside(self, folder: str, nodes: tuple[str, ...]) -> None:
        """An attempt begins: it runs beside all that run now, and they beside it."""
        others = [Neighbour(other, self._nodes[other]) for other in self._beside]
        for neighbours in self._beside.values():
            neighbours.append(Neighbour(folder, nodes))
        self._beside[folder], self._nodes[folder] = others, nodes

    def _show(self, unit: Unit, event: Event) -> None:
        with self.lock:
            self.progress.event(unit, event)


@dataclass(frozen=True)
class Turn:
    """A repeat of a unit that is to be run, and how many times it may be tried again."""

    unit: Unit
    repeat: int
    retries: int


@dataclass
class _Group:
    """The turns of one block, which follow each other in its place: `places`, once it has one."""

    block: Block
    turns: deque[Turn]
    places: tuple[str, ...] = ()


class _Schedule:
    """Runs the attempts of a bench in a pool of threads, as many at a time as there are places for.

    The main thread, which alone gets signals, starts them and waits; `repro.planning.schedule` has the order. What
    waits is of one repeat, as no repeat begins before all of the one before it have. `left` counts what is to come of
    each unit in later repeats.
    """

    def __init__(self, bench: Bench, interrupts: Interrupts, left: Counter[str]):
        self._bench, self._interrupts, self._left = bench, interrupts, left
        self._places: Places = bench.places or GpuPool((), 1)
        self._running: dict[Future, tuple[Turn, _Group]] = {}
        self._stop = threading.Event()
        self._repeats: Iterator[list[_Group]] = iter(())
        self._waiting: list[_Group] = []

    def run(self, todo: Iterator[tuple[Unit, int]]) -> None:
        """Run them all, each as soon as it can be; an interrupt or an error ends those that run."""
        self._repeats = (self._groups(turns) for _, turns in groupby(todo, lambda turn: turn[1]))
        with ThreadPoolExecutor(max(1, len(self._bench.plan.units)), "attempt") as threads:
            try:
                while self._wait_for_more() or self._running:
                    while group := self._placed():
                        self._waiting.remove(group)
                        self._start(group, threads)
                    wait(self._running, WAKE_S, FIRST_COMPLETED)
                    self._drop(self._take_ended(threads))
            finally:
                self._stop.set()

    def _wait_for_more(self) -> list[_Group]:
        """What waits, once a repeat has all begun that of the next."""
        self._waiting = self._waiting or next(filter(None, self._repeats), [])
        return self._waiting

    def _groups(self, todo: Iterable[tuple[Unit, int]]) -> list[_Group]:
        """The turns of a repeat by what is measured together, in the order in which they are to start."""
        turns: dict[str, deque[Turn]] = {}
        for unit, repeat in todo:
            if unit.name in self._left:
                self._left[unit.name] -= 1
                turn = Turn(unit, repeat, self._bench.retries)
                turns.setdefault(unit.follows or unit.name, deque()).append(turn)
        turns_by_block = {self._places.block(group[0].unit, group[0].repeat): group for group in turns.values()}
        if self._bench.plan.scale == PUBLISHED:
            run = self._bench.run.folder.name
            turns_by_block = {block: deque(drawn(group, block, run)) for block, group in turns_by_block.items()}
        return [_Group(block, turns_by_block[block]) for block in in_order(turns_by_block)]

    def _placed(self) -> _Group | None:
        """The next group that can start, with its place; None if all have to wait."""
        groups = {group.block: group for group in self._wait_for_more()}
        running = {group.block.name for _, group in self._running.values()}
        choice = startable([*groups], running, lambda block: self._places.take(groups[block].turns[0].unit.world_size))
        if choice is None:
            return None
        block, places = choice
        groups[block].places = places
        return groups[block]

    def _start(self, group: _Group, threads: ThreadPoolExecutor) -> None:
        """Start the next turn of a group in its place."""
        self._interrupts.check()
        check_free_space(self._bench.run.folder)
        turn = group.turns.popleft()
        self._running[threads.submit(self._bench.attempt, turn, group.places, self._stop)] = turn, group

    def _take_ended(self, threads: ThreadPoolExecutor) -> set[str]:
        """Go on with the groups whose attempts have ended; the units that need no more repeats now."""
        enough = set()
        for future in [future for future in self._running if future.done()]:
            turn, group = self._running.pop(future)
            record = future.result()
            final = record.status == "ok" or not turn.retries
            with self._bench.lock:
                self._bench.progress.ended(turn.unit, record, final=final)
            if not final:
                group.turns.appendleft(replace(turn, retries=turn.retries - 1))
            if record.enough:
                enough.add(turn.unit.name)
            if group.turns:
                self._start(group, threads)
            else:
                self._places.give_back(group.places)
        return enough

    def _drop(self, enough: set[str]) -> None:
        """Leave out what waits of these units, now and in all repeats to come."""
        dropped = sum(self._left.pop(name, 0) for name in enough)
        for group in self._waiting if enough else ():
            left = deque(turn for turn in group.turns if turn.unit.name not in enough)
            dropped += len(group.turns) - len(left)
            group.turns = left
        if dropped:
            with self._bench.lock:
                self._bench.progress.dropped(dropped)
        self._waiting = [group for group in self._waiting if group.turns]


def _damaged(lines: list[DamagedLine]) -> dict:
    """What a record has of damaged metrics: nothing where there are none."""
    return {"damaged": tuple(lines)} if lines else {}


def remaining(plan: Plan, attempts: list[AttemptRecord]) -> Iterator[tuple[Unit, int]]:
    """What has not succeeded yet: first every unit once, then every unit again, so that drift hits all alike.

    Units that need no more repeats are left out.
    """
    done = {(attempt.unit, attempt.repeat) for attempt in attempts if attempt.status == "ok"}
    enough = {attempt.unit for attempt in attempts if attempt.enough}
    for repeat in range(1, plan.repeats + 1):
        for unit in plan.units:
            if (unit.name, repeat) not in done and unit.name not in enough:
                yield unit, repeat


def check_free_space(folder: Path) -> None:
    """Stop before a full disk costs a run."""
    try:
        free = shutil.disk_usage(folder).free // 2**20
    except OSError as error:
        raise disk_error(error, folder) from error
    if free < MIN_FREE_MIB:
        raise RecordError(
            f"{folder}: {free} MiB are free there, and an attempt begins with {MIN_FREE_MIB} at least, so that its logs "
            f"are not lost; free some space, then go on with RUN={folder.name}"
        )
