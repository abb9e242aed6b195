"""An attempt whose kernels are traced: what its processes are given for it, and what is kept of the trace."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from repro.analysis.chrome_trace import TIMELINE, as_text, chrome_trace
from repro.analysis.kernel_trace import TraceError, profile_of, read_trace, window
from repro.analysis.process_info import start_event
from repro.launch.agent.ranks import TRACE, TRACE_NAME
from repro.launch.attempt import Attempt, OnEvent, Outcome, PlacedAttempt, ignore
from repro.launch.base import AttemptOf
from repro.launch.local_attempt import LocalAttempt
from repro.runs.metrics import METRICS
from repro.runs.record import write_text
from repro.runs.unit import Unit
from repro.utils.i18n import N_

if TYPE_CHECKING:
    from repro.launch.nodes.tracing import Tracing


class TraceableAttempt(Attempt, Protocol):
    """An attempt on nodes, which bring a trace back."""

    def traced(self, tracing: Tracing) -> Attempt:
        """The same with a trace of rank 0's kernels in its folder."""
        ...


def traced_here(attempt_of: AttemptOf, tracer: Path, cupti: Path) -> AttemptOf:
    """This machine's attempts with the compiled tracer and a CUPTI."""

    def attempt(unit: Unit, folder: Path) -> TracedAttempt:
        plain = cast(LocalAttempt, attempt_of(unit, folder))
        more = {
            "CUDA_INJECTION64_PATH": str(tracer),
            "KERNEL_TRACE_CUPTI": str(cupti),
            "KERNEL_TRACE_FILE": str(folder / TRACE_NAME),
        }
        return TracedAttempt(replace(plain, environment=plain.environment | more), folder)

    return attempt


def traced_on_nodes(attempt_of: AttemptOf, tracing: Tracing) -> AttemptOf:
    """The attempts of a cluster's launcher, traced."""

    def attempt(unit: Unit, folder: Path) -> TracedAttempt:
        return TracedAttempt(cast(TraceableAttempt, attempt_of(unit, folder)).traced(tracing), folder)

    return attempt


@dataclass(frozen=True)
class TracedAttempt:
    """An attempt that has failed if nothing can be made of its trace; the tracer's own file is removed in any case."""

    attempt: Attempt
    folder: Path

    def on(self, names: Sequence[str]) -> TracedAttempt:
        """The same on these GPUs or nodes."""
        return replace(self, attempt=cast(PlacedAttempt, self.attempt).on(names))

    def run(self, on_event: OnEvent = ignore, stop: threading.Event | None = None) -> Outcome:
        """As the attempt's own, with a profile in its folder when it succeeded."""
        try:
            outcome = self.attempt.run(on_event, stop)
            if outcome.failure is None:
                try:
                    self._keep_profile(outcome)
                except TraceError as error:
                    outcome = replace(outcome, failure=error.failure, log_tail=_messages(self.folder))
            return replace(outcome, cut=tuple(log for log in outcome.cut if not TRACE.fullmatch(log.path)))
        finally:
            for path in self.folder.glob(f"{TRACE_NAME}.[0-9]*"):
                path.unlink()

    def _keep_profile(self, outcome: Outcome) -> None:
        for log in outcome.cut:
            if TRACE.fullmatch(log.path):
                sizes = {"mib": log.printed >> 20, "kept": log.written >> 20}
                raise TraceError(N_("the trace has {mib} MiB, and {kept} MiB of it came from its node"), **sizes)
        keep_profile(self.folder)


def keep_profile(folder: Path) -> None:
    """Keep the mean iteration and the timeline of rank 0's trace in the same folder; TraceError if it shows neither."""
    metrics = folder / METRICS.format(0)
    trace = folder / f"{TRACE_NAME}.{(start_event(metrics) or {}).get('pid')}"
    if not trace.exists():
        raise TraceError(N_("rank 0 left no trace of its kernels; CUPTI=<folder> names another CUPTI"))
    recorded, (begin, end, iterations) = read_trace(trace), window(metrics)
    profile_of(recorded, begin, end, iterations).write(folder)
    write_text(folder / TIMELINE, as_text(chrome_trace(recorded, begin, end)))


def _messages(folder: Path) -> str:
    """What the tracer printed, which says why there is no trace."""
    places = ("logs/local_rank_0/stderr", "launcher.log", "logs/launcher-*.log")
    logs = [path for place in places for path in sorted(folder.glob(place))]
    lines = [line for path in logs for line in path.read_text(encoding="utf-8", errors="replace").splitlines()]
    return "\n".join(line for line in lines if line.startswith("kernel_trace: "))
