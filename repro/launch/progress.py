"""Shows how far a run is: a line for each attempt that starts or ends, and one now and then of what runs."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TextIO

from repro.launch.attempt import Event
from repro.runs.attempts import AttemptRecord
from repro.runs.plan import Plan
from repro.runs.unit import Unit
from repro.utils.printable import one_line, printable

SUMMARY_S = 30.0


def outcome_text(attempt: AttemptRecord) -> str:
    """How an attempt ended, in a few words."""
    if attempt.status == "ok":
        losses = attempt.last_losses or attempt.losses
        return f"{attempt.throughput:.2f} samples/s, loss {losses[-1]:.4f}" if losses else "ok"
    return f"FAILED: {attempt.failure.text() if attempt.failure else attempt.status}"


def weight(plan: Plan, unit: Unit) -> int:
    """How long a run takes beside the others of a plan: on processors its ranks share them, on GPUs all count alike."""
    return unit.world_size if plan.device == "cpu" else 1


class Clock:
    """Estimates the time left from the runs that have ended, each counted by its weight."""

    def __init__(self) -> None:
        self._todo, self._ended, self._since = 0, 0, time.monotonic()
        self._weight, self._weight_ended = 0, 0

    def begin(self, runs: int, weight: int) -> None:
        """The estimate starts: this number of runs, and the sum of their weights."""
        self._todo, self._weight, self._since = runs, weight, time.monotonic()

    def ended(self, weight: int = 1) -> None:
        self._ended += 1
        self._weight_ended += weight

    def dropped(self, number: int) -> int:
        """Lower the total number of runs by those that are no longer needed."""
        self._weight -= number * self._weight // max(1, self._todo)
        self._todo -= number
        return self._todo

    def position(self, going: int) -> str:
        """The number of the run started last, and how many are running."""
        return f"{min(self._ended + going, self._todo)}/{self._todo}"

    def left(self) -> str:
        """Minutes and seconds left, or "?" before the first run has ended."""
        if not self._ended:
            return "?"
        seconds = (time.monotonic() - self._since) / self._weight_ended * (self._weight - self._weight_ended)
        minutes, rest = divmod(round(seconds), 60)
        return f"{minutes}:{rest:02d}"


@dataclass
class Rank:
    """The last known state of one rank; `heard` is when its last event came, in seconds of the watch's clock."""

    number: int
    heard: float
    node: str = ""
    ended: bool = False
    iteration: int = 0
    memory_mib: float | None = None


class Watch:
    """Follows one attempt by its events.

    Parameters
    ----------
    name : what is running.
    iterations : how many each rank is to do.
    world_size : the number of ranks.
    clock : gives seconds.
    """

    def __init__(self, name: str, iterations: int, world_size: int, clock: Callable[[], float] = time.monotonic):
        self.name, self.iterations, self._clock = name, iterations, clock
        self.ranks = [Rank(number, clock()) for number in range(world_size)]
        self.waiting_for = ""
        self._throughput: float | None = None
        self._loss: float | None = None
        self._utilisation: dict[tuple[str, int], int] = {}

    def event(self, event: dict) -> None:
        """Take an event of a rank's metrics file, of a node's GPU (`gpu`), or what the attempt waits for (`state`)."""
        if event["event"] == "state":
            self.waiting_for = one_line(event["text"])
        elif event["event"] == "gpu":
            self._utilisation[event.get("node", ""), event["index"]] = event["utilisation"]
        else:
            self._hear(self.ranks[event["rank"]], event)

    def _hear(self, rank: Rank, event: dict) -> None:
        rank.heard, rank.node, self.waiting_for = self._clock(), event.get("node", ""), ""
        rank.ended = event["event"] == "end"
        rank.iteration = event.get("iteration", rank.iteration)
        rank.memory_mib = event.get("memory_mib", rank.memory_mib)
        self._throughput = event.get("throughput", self._throughput)
        self._loss = event.get("loss", self._loss)

    def line(self) -> str:
        """How far the attempt is, which rank is furthest behind, and of several such which has been silent longest."""
        if self.waiting_for:
            return f"{self.name}: {self.waiting_for}"
        slowest = min(self.ranks, key=lambda rank: (rank.ended, rank.iteration, rank.heard))
        figures = {
            "{:.1f} samples/s": self._throughput,
            "loss {:.4f}": self._loss,
            "up to {:.0f} MiB": max(
                (rank.memory_mib for rank in self.ranks if rank.memory_mib is not None), default=None
            ),
            "GPUs from {} % busy": min(self._utilisation.values(), default=None),
        }
        parts = [f"{self.name}: iteration {slowest.iteration}/{self.iterations}"]
        parts += [form.format(value) for form, value in figures.items() if value is not None]
        place = f"rank {slowest.number}" + (f" on {slowest.node}" if slowest.node else "")
        if slowest.ended:
            return ", ".join([*parts, "all ranks have ended"])
        return ", ".join([*parts, f"slowest {place}, silent {self._clock() - slowest.heard:.1f} s"])


class Progress:
    """A line when an attempt starts and when it ends, and one every `summary_s` seconds of how far it is.

    It is called by one thread at a time.
    """

    def __init__(self, stream: TextIO = sys.stderr, summary_s: float = SUMMARY_S):
        self._stream, self._summary_s, self._clock = stream, summary_s, Clock()
        self._going: dict[str, tuple[Watch, threading.Event]] = {}
        self._named = False

    def begin(self, plan: Plan, left: Counter[str]) -> None:
        """The run begins; `left` is how many runs of each unit have not succeeded yet."""
        self._plan = plan
        self._clock.begin(left.total(), sum(weight(plan, unit) * left[unit.name] for unit in plan.units))
        self._say(
            f"{left.total()} runs{' at most' if plan.looks else ''}: {len(plan.units)} configurations, {plan.repeats} repeats, "
            f"{plan.scale} scale on {plan.device}"
        )

    def started(self, unit: Unit, repeat: int) -> None:
        """An attempt begins."""
        going = Watch(unit.name, unit.config.iterations, unit.world_size), threading.Event()
        self._going[unit.name] = going
        self._named |= len(self._going) > 1
        position = self._clock.position(len(self._going))
        self._say(f"[{position}] {unit.name}, repeat {repeat}, {unit.world_size} ranks …")
        threading.Thread(target=self._summarise, args=going, daemon=True).start()

    def _summarise(self, watch: Watch, stop: threading.Event) -> None:
        while not stop.wait(self._summary_s):
            self._say(f"    {watch.line()}")

    def event(self, unit: Unit, event: Event) -> None:
        """An event of the unit's attempt; see `repro.launch.attempt.Attempt.run`."""
        watch, _ = self._going[unit.name]
        new = event["event"] == "state" and event["text"] != watch.waiting_for
        watch.event(event)
        if new:
            self._say(f"    {watch.line()}")

    def ended(self, unit: Unit, attempt: AttemptRecord, final: bool = True) -> None:
        """The attempt is recorded; it is tried again unless this is `final`."""
        _, stop = self._going.pop(unit.name)
        stop.set()
        if final:
            self._clock.ended(weight(self._plan, unit))
        left = f"left {self._clock.left()}" if final else "trying again"
        name = f"{unit.name}: " if self._named else ""
        self._say(f"    {name}{outcome_text(attempt)}; {attempt.wall_s:.1f} s, {left}")
        if attempt.status != "ok" and attempt.log_tail:
            self._say("    | " + attempt.log_tail.replace("\n", "\n    | "))

    def dropped(self, number: int) -> None:
        """Leave out this number of planned repeats."""
        self._clock.dropped(number)
        self._say(f"    {number} further repeats are not needed: they could not change what is concluded")

    def close(self) -> None:
        """The run has ended, in whatever way."""
        for _, stop in self._going.values():
            stop.set()

    def _say(self, text: str) -> None:
        with contextlib.suppress(OSError):  # whoever listened is gone, and the run goes on
            print(printable(text), file=self._stream, flush=True)
