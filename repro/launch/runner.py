"""One run from plan to report: starts what is missing, records each attempt as it ends, and goes on after a failure."""

import contextlib
import math
import shutil
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path

from repro.analysis.nccl_transport import transport_of
from repro.launch.gpu_pool import GpuPool
from repro.launch.local import Attempt
from repro.planning.plan import PARITY_ITERATIONS, Plan, Unit
from repro.published.cases import Rule
from repro.published.logs import LogError, parse
from repro.published.rules import latency_ms, throughput
from repro.runs.failures import Failure
from repro.runs.record import Run, disk_error
from repro.utils.signals import held, let_through

MIN_FREE_MIB = 200
LOSSES_KEPT = 2 * PARITY_ITERATIONS


@dataclass
class Bench:
    """Runs the units of a plan into a run folder.

    `attempt_of` makes the attempt of a unit in a folder; it decides where and how the ranks are started. What fails is
    tried again up to `retries` times; every attempt is recorded. With `lanes` attempts run side by side on the GPUs
    that these deal out.
    """

    run: Run
    plan: Plan
    progress: object
    attempt_of: Callable[[Unit, Path], Attempt]
    retries: int = 0
    gpu_pool: GpuPool | None = None

    def run_all(self) -> list[dict]:
        """Run every unit and repeat that has not succeeded yet; return all attempts of the run.

        An interrupt ends an attempt where it waits for its processes, or else comes before the next attempt: whatever
        has ended is recorded.
        """
        with held():
            todo = remaining(self.plan, self.run.attempts())
            self.progress.begin(self.plan, todo)
            _Rounds(self, self.gpu_pool or GpuPool((), 1)).run(todo)
            return self.run.attempts()

    def steps(self, unit: Unit, repeat: int, gpus: tuple[str, ...] | None = None) -> Generator[None, None, dict]:
        """Run one repeat of a unit bit by bit and record how it ended, also when a person stops it; gives the record.

        With `gpus` it runs on these alone, and others may be looked after between its steps; to close it is to stop it.
        """
        started, stamp = time.monotonic(), time.time()
        folder = self.run.attempt_folder(unit.name, repeat)
        self.progress.started(unit, repeat)
        record = {
            "unit": unit.name,
            "repeat": repeat,
            "started": stamp,
            "folder": str(folder.relative_to(self.run.folder)),
        }
        watch = _Watch(stamp, lambda event: self.progress.event(unit, event))
        attempt = self.attempt_of(unit, folder.resolve())
        try:
            if gpus is None:
                outcome = attempt.run(watch)
            else:
                outcome = yield from attempt.on(gpus).steps(watch)
        except OSError as error:
            raise disk_error(error, folder) from error
        except (KeyboardInterrupt, GeneratorExit):
            self.run.add_attempt({**record, "status": "interrupted", "wall_s": time.monotonic() - started})
            raise
        failure, measured = outcome.failure or watch.no_number(), {}
        if failure is None:
            try:
                measured = measure(unit, folder)
            except LogError as error:
                failure = Failure("the log cannot be read by its rule: {error}", {"error": str(error)})
        if unit.world_size > 1 and unit.config["device"] == "cuda":
            measured |= {"transport": transport_of(folder, unit.world_size).as_json()}
        record |= {
            "status": "failed" if failure else "ok",
            **measured,
            **watch.seen(),
            "failure": failure.as_json() if failure else None,
            "log_tail": outcome.log_tail,
            "trainer_s": outcome.trainer_s,
            "wall_s": time.monotonic() - started,
        }
        self.run.add_attempt(record)
        return record


@dataclass
class _Going:
    """An attempt that is going: its steps, its GPUs, and how often it may be tried again."""

    unit: Unit
    repeat: int
    steps: Generator
    gpus: tuple[str, ...]
    left: int


class _Rounds:
    """Leads the attempts of a bench, one or several at the same time, by looking after each in turn."""

    def __init__(self, bench: Bench, gpu_pool: GpuPool):
        self._bench, self._gpu_pool = bench, gpu_pool
        self._going: list[_Going] = []
        self._ending = contextlib.ExitStack()

    def run(self, todo: list[tuple[Unit, int]]) -> None:
        """Run them all, each as soon as there are GPUs for it; an interrupt or an error ends those that are going."""
        waiting = [(unit, repeat, self._bench.retries) for unit, repeat in todo]
        with self._ending:
            while waiting or self._going:
                waiting = [each for each in waiting if not self._start(*each)]
                for going in list(self._going):
                    self._look_after(going, waiting)

    def _start(self, unit: Unit, repeat: int, left: int) -> bool:
        """Start it unless it has to wait; no unit runs beside itself."""
        if any(going.unit is unit for going in self._going):
            return False
        gpus = self._gpu_pool.take(unit.world_size)
        if gpus is None:
            return False
        with let_through():
            check_free_space(self._bench.run.folder)
        steps = self._bench.steps(unit, repeat, gpus if self._bench.gpu_pool else None)
        going = _Going(unit, repeat, steps, gpus, left)
        self._ending.callback(steps.close)
        self._going.append(going)
        return True

    def _look_after(self, going: _Going, waiting: list) -> None:
        try:
            next(going.steps)
        except StopIteration as end:
            attempt = end.value
        else:
            return
        self._going.remove(going)
        self._gpu_pool.give_back(going.gpus)
        final = attempt["status"] == "ok" or not going.left
        self._bench.progress.ended(going.unit, going.repeat, attempt, final=final)
        if not final:
            waiting.insert(0, (going.unit, going.repeat, going.left - 1))


class _Watch:
    """Keeps what the report needs of rank 0's metrics, and passes the events of all ranks on."""

    def __init__(self, started: float, forward):
        self._started, self._forward = started, forward
        self._start: dict = {}
        self._end: dict = {}
        self._losses: list[float] = []
        self._first: float | None = None
        self._memory: list[float] = []
        self._not_finite: int | None = None

    def __call__(self, event: dict) -> None:
        if event.get("rank") == 0:
            self._keep(event)
        self._forward(event)

    def _keep(self, event: dict) -> None:
        if event["event"] == "start":
            self._start = event
        elif event["event"] == "end":
            self._end = event
        elif event["event"] == "iteration":
            self._first = self._first or event["time"]
            self._memory.append(event.get("memory_mib") or 0)
            if self._not_finite is None and not math.isfinite(event["loss"]):
                self._not_finite = event["iteration"]
            if len(self._losses) < LOSSES_KEPT:
                self._losses.append(event["loss"])

    def no_number(self) -> Failure | None:
        """A training whose loss is lost computes nothing: its speed is no result."""
        if self._not_finite is None:
            return None
        return Failure("the loss at iteration {iteration} is not a number", {"iteration": self._not_finite})

    def seen(self) -> dict:
        """What was seen; `first_row_s` is the time from the attempt's start to rank 0's first printed row.

        `memory_allocated_mib` is the most that the program's tensors held, where the program tells.
        """
        return {
            "losses": self._losses,
            "memory_peak_mib": max(self._memory, default=None),
            "first_row_s": self._first and self._first - self._started,
            "versions": self._start.get("versions"),
            "memory_allocated_mib": self._end.get("peak_allocated_mib"),
            "parameters": self._start.get("parameters"),
        }


def measure(unit: Unit, folder: Path) -> dict:
    """Read rank 0's log by the rule of the unit's report, as the published logs are read.

    Returns throughput in samples/s, latency in ms an iteration, and memory in MiB if the log states it.
    """
    log = parse(folder / "logs" / "local_rank_0" / "stdout")
    rule = Rule(**unit.rule)
    return {
        "generation": log.generation,
        "throughput": throughput(log, rule, unit.global_batch),
        "latency_ms": latency_ms(log, rule, unit.global_batch),
        "memory_mib": log.memory_mib,
    }


def remaining(plan: Plan, attempts: list[dict]) -> list[tuple[Unit, int]]:
    """What has not succeeded yet: first every unit once, then every unit again, so that drift hits all alike."""
    done = {(attempt["unit"], attempt["repeat"]) for attempt in attempts if attempt["status"] == "ok"}
    return [
        (unit, repeat)
        for repeat in range(1, plan.repeats + 1)
        for unit in plan.units
        if (unit.name, repeat) not in done
    ]


def check_free_space(folder: Path) -> None:
    """Stop before a full disk costs a run."""
    free = shutil.disk_usage(folder).free // 2**20
    if free < MIN_FREE_MIB:
        raise disk_error(OSError(28, "No space left on device"), folder)
