"""One run from plan to report: starts what is missing, records each attempt as it ends, and goes on after a failure."""

from __future__ import annotations

import re
import shutil
import threading
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

from repro.analysis.measurement import METRICS, RankZero, measure, read_log
from repro.analysis.nccl_transport import transport_of
from repro.launch.attempt import Event, GpuAttempt, Interrupts, interruptible
from repro.launch.base import AttemptOf
from repro.launch.gpu_pool import GpuPool
from repro.launch.program_code import BASELINES, TRAINERS, program_code
from repro.launch.progress import Display
from repro.planning.plan import Plan, Unit
from repro.published.logs import LogError
from repro.runs.failures import Failure
from repro.runs.files import events
from repro.runs.record import ATTEMPT, Run, disk_error

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
    gpu_pool : runs attempts concurrently, on the GPUs that it hands out; these are `GpuAttempt`s then, as those of
        this machine are. Without it they run one after another.
    replaced : the command that runs in place of the trainer, in tests.
    """

    run: Run
    plan: Plan
    progress: Display
    attempt_of: AttemptOf
    retries: int = 0
    gpu_pool: GpuPool | None = None
    replaced: Sequence[str] = ()
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    """Held for whatever concurrent attempts must do one at a time: writing records and showing progress."""

    def run_all(self) -> list[dict]:
        """Run every unit and repeat that has not succeeded yet; return all attempts of the run.

        A signal ends the attempts that are running, and KeyboardInterrupt is raised once they are recorded.
        """
        self._record_killed()
        with interruptible() as interrupts:
            todo = remaining(self.plan, self.run.attempts())
            self.progress.begin(self.plan, todo)
            _Schedule(self, interrupts).run(todo)
            return self.run.attempts()

    def attempt(self, turn: Turn, gpus: Sequence[str], stop: threading.Event) -> dict:
        """Run one repeat of a unit and record how it ended, also when it is interrupted; returns the record.

        This is what a thread of the pool does. Once `stop` is set, the attempt ends with KeyboardInterrupt.
        """
        unit, started, stamp = turn.unit, time.monotonic(), time.time()
        with self.lock:
            folder = self.run.attempt_folder(unit.name, turn.repeat)
            self.progress.started(unit, turn.repeat)
        record = {
            "unit": unit.name,
            "repeat": turn.repeat,
            "started": stamp,
            "folder": str(folder.relative_to(self.run.folder)),
            "code": program_code(BASELINES) if unit.baseline_of else program_code(TRAINERS, self.replaced),
        }
        rank_zero = RankZero(stamp)

        def on_event(event: Event) -> None:
            if event.get("rank") == 0:
                rank_zero.see(event)
            self._show(unit, event)

        attempt = self.attempt_of(unit, folder.resolve())
        if self.gpu_pool:
            attempt = cast(GpuAttempt, attempt).on(gpus)
        try:
            outcome = attempt.run(on_event, stop)
        except OSError as error:
            raise disk_error(error, folder) from error
        except KeyboardInterrupt:
            interrupted = {"status": "interrupted", **rank_zero.figures(), "wall_s": time.monotonic() - started}
            self._record(record | interrupted)
            raise
        failure, measured = outcome.failure or rank_zero.no_number(), {}
        if failure is None:
            try:
                measured = measure(unit, read_log(folder))
            except LogError as error:
                failure = Failure("the log cannot be read by its rule: {error}", {"error": str(error)})
        if unit.world_size > 1 and unit.config["device"] == "cuda":
            measured |= {"transport": transport_of(folder, unit.world_size).as_json()}
        record |= {
            "status": "failed" if failure else "ok",
            **measured,
            **rank_zero.figures(),
            "failure": failure.as_json() if failure else None,
            "log_tail": outcome.log_tail,
            "cut": [vars(log) for log in outcome.cut],
            "trainer_s": outcome.trainer_s,
            "wall_s": time.monotonic() - started,
        }
        self._record(record)
        return record

    def _record_killed(self) -> None:
        """Record the attempts that were killed with an earlier process of this run: no attempt is without a record."""
        for folder in self.run.unrecorded():
            unit, repeat, _ = cast(re.Match, ATTEMPT.fullmatch(folder)).groups()
            there = self.run.folder / folder
            times = [path.stat().st_mtime for path in (there, *there.rglob("*"))]
            rank_zero = RankZero(min(times))
            for event in events(there / METRICS.format(0)):
                rank_zero.see(event)
            self._record(
                {
                    "unit": unit,
                    "repeat": int(repeat),
                    "started": min(times),
                    "folder": folder,
                    "status": "interrupted",
                    **rank_zero.figures(),
                    "wall_s": max(times) - min(times),
                }
            )

    def _record(self, record: dict) -> None:
        """Write down an attempt that ended, and, if the unit needs no more repeats, why: `enough`."""
        with self.lock:
            if self.plan.looks and record["status"] == "ok":
                from repro.analysis.stopping import why_enough  # pandas, for which no run waits at its start

                (unit,) = (unit for unit in self.plan.units if unit.name == record["unit"])
                record["enough"] = why_enough(self.run, self.plan, [*self.run.attempts(), record], unit)
            self.run.add_attempt(record)

    def _show(self, unit: Unit, event: Event) -> None:
        with self.lock:
            self.progress.event(unit, event)


@dataclass(frozen=True)
class Turn:
    """A repeat of a unit that is to be run, and how many times it may be tried again."""

    unit: Unit
    repeat: int
    retries: int


class _Schedule:
    """Runs the attempts of a bench in a pool of threads, as many at a time as there are GPUs for.

    The main thread, which alone gets signals, starts them and waits; no unit runs next to itself.
    """

    def __init__(self, bench: Bench, interrupts: Interrupts):
        self._bench, self._interrupts = bench, interrupts
        self._gpu_pool = bench.gpu_pool or GpuPool((), 1)
        self._running: dict[Future, tuple[Turn, Sequence[str]]] = {}
        self._enough: set[str] = set()
        self._stop = threading.Event()

    def run(self, todo: list[tuple[Unit, int]]) -> None:
        """Run them all in their order, each as soon as it can be; an interrupt or an error ends those that run."""
        waiting = [Turn(unit, repeat, self._bench.retries) for unit, repeat in todo]
        with ThreadPoolExecutor(max(1, len(self._bench.plan.units)), "attempt") as threads:
            try:
                while waiting or self._running:
                    waiting = [turn for turn in waiting if not self._start(turn, threads)]
                    wait(self._running, WAKE_S, FIRST_COMPLETED)
                    waiting[:0] = self._again()
                    dropped = [turn for turn in waiting if turn.unit.name in self._enough]
                    if dropped:
                        waiting = [turn for turn in waiting if turn not in dropped]
                        with self._bench.lock:
                            self._bench.progress.dropped(len(dropped))
            finally:
                self._stop.set()

    def _start(self, turn: Turn, threads: ThreadPoolExecutor) -> bool:
        """Start it unless it has to wait."""
        if any(running.unit is turn.unit for running, _ in self._running.values()):
            return False
        gpus = self._gpu_pool.take(turn.unit.world_size)
        if gpus is None:
            return False
        self._interrupts.check()
        check_free_space(self._bench.run.folder)
        self._running[threads.submit(self._bench.attempt, turn, gpus, self._stop)] = turn, gpus
        return True

    def _again(self) -> list[Turn]:
        """Take the attempts that have ended; those to be tried again."""
        again = []
        for future in [future for future in self._running if future.done()]:
            turn, gpus = self._running.pop(future)
            self._gpu_pool.give_back(gpus)
            record = future.result()
            final = record["status"] == "ok" or not turn.retries
            with self._bench.lock:
                self._bench.progress.ended(turn.unit, turn.repeat, record, final=final)
            if not final:
                again.append(replace(turn, retries=turn.retries - 1))
            if record.get("enough"):
                self._enough.add(turn.unit.name)
        return again


def remaining(plan: Plan, attempts: list[dict]) -> list[tuple[Unit, int]]:
    """What has not succeeded yet: first every unit once, then every unit again, so that drift hits all alike.

    Units that need no more repeats are left out.
    """
    done = {(attempt["unit"], attempt["repeat"]) for attempt in attempts if attempt["status"] == "ok"}
    enough = {attempt["unit"] for attempt in attempts if attempt.get("enough")}
    return [
        (unit, repeat)
        for repeat in range(1, plan.repeats + 1)
        for unit in plan.units
        if (unit.name, repeat) not in done and unit.name not in enough
    ]


def check_free_space(folder: Path) -> None:
    """Stop before a full disk costs a run."""
    try:
        free = shutil.disk_usage(folder).free // 2**20
    except OSError as error:
        raise disk_error(error, folder) from error
    if free < MIN_FREE_MIB:
        raise disk_error(OSError(28, "No space left on device"), folder)
