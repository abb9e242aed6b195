"""Shows how far a run is: a live display on a terminal, a line for each event elsewhere."""

import sys
import time

from repro.failures import Failure


def progress_display(stream=sys.stderr):
    """The display that suits the stream."""
    return LiveProgress() if stream.isatty() else PlainProgress(stream)


def outcome_text(attempt: dict) -> str:
    """How an attempt ended, in a few words."""
    if attempt["status"] == "ok":
        return f"{attempt['throughput']:.2f} samples/s, loss {attempt['losses'][-1]:.4f}" if attempt["losses"] else "ok"
    return f"FAILED: {Failure.from_json(attempt['failure']).text()}"


class Clock:
    """Estimates the time left from the runs that have ended."""

    def __init__(self):
        self._todo, self._ended, self._since = 0, 0, time.monotonic()

    def begin(self, todo: int) -> None:
        self._todo, self._since = todo, time.monotonic()

    def ended(self) -> None:
        self._ended += 1

    @property
    def position(self) -> str:
        return f"{min(self._ended + 1, self._todo)}/{self._todo}"

    def left(self) -> str:
        """Minutes and seconds left, or "?" before the first run has ended."""
        if not self._ended:
            return "?"
        seconds = (time.monotonic() - self._since) / self._ended * (self._todo - self._ended)
        return f"{seconds // 60:.0f}:{seconds % 60:02.0f}"


class PlainProgress:
    """A line when a run starts and when it ends."""

    def __init__(self, stream=sys.stderr):
        self._stream, self._clock = stream, Clock()

    def begin(self, plan, todo) -> None:
        self._clock.begin(len(todo))
        self._say(f"{len(todo)} runs: {len(plan.units)} configurations, {plan.repeats} repeats, "
                  f"{plan.scale} scale on {plan.device}")

    def started(self, unit, repeat) -> None:
        self._say(f"[{self._clock.position}] {unit.name}, repeat {repeat}, {unit.world_size} ranks …")

    def event(self, unit, event) -> None:
        pass

    def ended(self, unit, repeat, attempt) -> None:
        self._clock.ended()
        self._say(f"    {outcome_text(attempt)}; {attempt['wall_s']:.1f} s, left {self._clock.left()}")
        if attempt["status"] != "ok" and attempt["log_tail"]:
            self._say("    | " + attempt["log_tail"].replace("\n", "\n    | "))

    def close(self) -> None:
        pass

    def _say(self, text: str) -> None:
        print(text, file=self._stream, flush=True)


class LiveProgress:
    """One bar for the whole run and one for the iterations of the present one."""

    def __init__(self):
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self._clock = Clock()
        self._bars = Progress(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
                              TextColumn("{task.fields[note]}"), TimeElapsedColumn(),
                              console=Console(stderr=True))  # fmt: skip
        self._bars.start()

    def begin(self, plan, todo) -> None:
        self._clock.begin(len(todo))
        self._all = self._bars.add_task(f"{plan.scale} on {plan.device}", total=len(todo), note="")
        self._one = self._bars.add_task("", total=None, note="")

    def started(self, unit, repeat) -> None:
        self._bars.reset(self._one, total=unit.config["iterations"], visible=True, note="starting",
                         description=f"{unit.name} #{repeat}")

    def event(self, unit, event) -> None:
        if event["event"] == "iteration" and event["rank"] == 0:
            note = f"{event['throughput']:.2f} samples/s, loss {event['loss']:.4f}"
            self._bars.update(self._one, completed=event["iteration"], note=note)

    def ended(self, unit, repeat, attempt) -> None:
        self._clock.ended()
        self._bars.update(self._all, advance=1, note=f"left {self._clock.left()}")
        if attempt["status"] != "ok":
            self._bars.console.print(f"{unit.name} #{repeat}: {outcome_text(attempt)}", markup=False, highlight=False)
            self._bars.console.print(attempt["log_tail"], markup=False, highlight=False)

    def close(self) -> None:
        self._bars.stop()
