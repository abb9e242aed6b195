"""An attempt whose kernels are traced: what its processes are given for it, and what is kept of the trace."""

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from repro.analysis.chrome_trace import TIMELINE, as_text, chrome_trace
from repro.analysis.kernel_trace import TraceError, profile_of, read_trace, window
from repro.launch.attempt import OnEvent, Outcome, ignore
from repro.launch.base import AttemptOf
from repro.launch.local import LocalAttempt
from repro.planning.plan import Unit
from repro.runs.record import write_text
from repro.utils.i18n import N_

TRACE = "trace"
METRICS = "metrics-rank0.jsonl"


def traced(attempt_of: Callable[[Unit, Path], LocalAttempt], tracer: Path, cupti: Path) -> AttemptOf:
    """The attempts of `attempt_of` with the compiled tracer and a CUPTI."""

    def attempt(unit: Unit, folder: Path) -> TracedAttempt:
        plain = attempt_of(unit, folder)
        more = {
            "CUDA_INJECTION64_PATH": str(tracer),
            "KERNEL_TRACE_CUPTI": str(cupti),
            "KERNEL_TRACE_FILE": str(folder / TRACE),
        }
        return TracedAttempt(replace(plain, environment=plain.environment | more))

    return attempt


@dataclass
class TracedAttempt:
    """An attempt that has failed if nothing can be made of its trace; the tracer's own file is removed in any case."""

    attempt: LocalAttempt

    def run(self, on_event: OnEvent = ignore, stop: threading.Event | None = None) -> Outcome:
        """As the attempt's own, with a profile in its folder when it succeeded."""
        folder = self.attempt.folder
        try:
            outcome = self.attempt.run(on_event, stop)
            if outcome.failure is None:
                try:
                    keep_profile(folder)
                except TraceError as error:
                    outcome = replace(outcome, failure=error.failure, log_tail=_messages(folder))
            return outcome
        finally:
            for path in folder.glob(f"{TRACE}.[0-9]*"):
                path.unlink()


def keep_profile(folder: Path) -> None:
    """Keep the mean iteration and the timeline of rank 0's trace in the same folder; TraceError if it shows neither."""
    metrics = folder / METRICS
    with open(metrics, encoding="utf-8") as file:
        pid = json.loads(file.readline())["pid"]
    trace = folder / f"{TRACE}.{pid}"
    if not trace.exists():
        raise TraceError(N_("rank 0 left no trace of its kernels; CUPTI=<folder> names another CUPTI"))
    recorded, (begin, end, iterations) = read_trace(trace), window(metrics)
    profile_of(recorded, begin, end, iterations).write(folder)
    write_text(folder / TIMELINE, as_text(chrome_trace(recorded, begin, end)))


def _messages(folder: Path) -> str:
    """What the tracer printed, which says why there is no trace."""
    logs = [*folder.glob("logs/local_rank_0/stderr"), *folder.glob("launcher.log")]
    lines = [line for path in logs for line in path.read_text(encoding="utf-8", errors="replace").splitlines()]
    return "\n".join(line for line in lines if line.startswith("kernel_trace: "))
