"""Shows how far a run is: bars and a live table of ranks on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, TextIO

from repro.launch.attempt import Event
from repro.launch.rank_monitor import Watch
from repro.runs.attempts import AttemptRecord
from repro.runs.plan import Plan
from repro.runs.unit import Unit
from repro.utils.printable import printable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.progress import TaskID

SUMMARY_S = 30.0
ROWS = 32


def progress_display(stream: TextIO = sys.stderr) -> PlainProgress | LiveProgress:
    """The display that suits the stream."""
    return LiveProgress() if stream.isatty() else PlainProgress(stream)


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


class PlainProgress:
    """A line when a run starts and when it ends, and one every `summary_s` seconds of how far it is.

    Like `LiveProgress`, it is called by one thread at a time.
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

    def ended(self, unit: Unit, repeat: int, attempt: AttemptRecord, final: bool = True) -> None:
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


class LiveProgress:
    """One bar for the whole run, one for the iterations of each attempt, and the table of its ranks if it is alone."""

    def __init__(self, console: Console | None = None):
        from rich.console import Console
        from rich.live import Live
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self._clock = Clock()
        self._going: dict[str, tuple[Watch, TaskID]] = {}
        self._console = console or Console(stderr=True)
        note = TextColumn("{task.fields[note]}", markup=False)
        self._bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            note,
            TimeElapsedColumn(),
            console=self._console,
        )
        self._live = Live(get_renderable=self.picture, console=self._console, refresh_per_second=4)
        self._live.start()

    def picture(self) -> RenderableType:
        """What is on the terminal now."""
        from rich.console import Group

        going = list(self._going.values())
        if len(going) != 1:
            return self._bars
        watch, _ = going[0]
        return Group(self._bars, watch.table(max(2, min(ROWS, self._console.size.height - 6))))

    def begin(self, plan: Plan, left: Counter[str]) -> None:
        self._plan = plan
        self._clock.begin(left.total(), sum(weight(plan, unit) * left[unit.name] for unit in plan.units))
        self._all = self._bars.add_task(f"{plan.scale} on {plan.device}", total=left.total(), note="")

    def started(self, unit: Unit, repeat: int) -> None:
        iterations = unit.config.iterations
        bar = self._bars.add_task(f"{unit.name} #{repeat}", total=iterations, note="starting")
        self._going[unit.name] = Watch(unit.name, iterations, unit.world_size), bar

    def event(self, unit: Unit, event: Event) -> None:
        watch, bar = self._going[unit.name]
        watch.event(event)
        if event["event"] == "iteration" and event["rank"] == 0:
            note = f"{event['throughput']:.2f} samples/s, loss {event['loss']:.4f}"
            self._bars.update(bar, completed=event["iteration"], note=note)

    def ended(self, unit: Unit, repeat: int, attempt: AttemptRecord, final: bool = True) -> None:
        _, bar = self._going.pop(unit.name)
        self._bars.remove_task(bar)
        if final:
            self._clock.ended(weight(self._plan, unit))
            self._bars.update(self._all, advance=1, note=f"left {self._clock.left()}")
        if attempt.status != "ok":
            for text in (f"{unit.name} #{repeat}: {outcome_text(attempt)}", attempt.log_tail or ""):
                self._console.print(printable(text), markup=False, highlight=False)

    def dropped(self, number: int) -> None:
        self._bars.update(self._all, total=self._clock.dropped(number))

    def close(self) -> None:
        self._live.stop()
