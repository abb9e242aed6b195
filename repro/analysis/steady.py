"""Steady-state throughput of an attempt: reported next to the figure by the published rule, never used for a verdict.

A window is the time between two printed rows. The published rules use the windows that their reports used, in some cases
from the first row on. The first window includes start-up. The second is distorted by one-off work after the first row, or
by a late first time stamp. Windows are uniform from the third on, so the steady state is the median of those. It is
computed from rank 0's metrics on every read, so runs recorded before this was introduced have it as well.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from repro.runs.attempts import AttemptRecord, Windows
from repro.runs.files import RunPath
from repro.runs.metrics import METRICS, events
from repro.runs.record import Run
from repro.utils.stats import median

LEFT_OUT = 2
"""The windows at the beginning that do not count; a median is not moved by single ones later."""


def attempts(run: Run, measured: Mapping[str, Windows | None] | None = None) -> list[AttemptRecord]:
    """The attempts that a run recorded, the successful ones with their `windows`.

    `measured` has these by folder, where the metrics of all successful attempts were read before.
    """

    def of(folder: str) -> Windows | None:
        return windows(run.files / folder / METRICS.format(0)) if measured is None else measured[folder]

    return [
        replace(attempt, windows=of(attempt.folder)) if attempt.status == "ok" else attempt
        for attempt in run.attempts()
    ]


def windows(metrics: RunPath) -> Windows | None:
    """Figures of the windows in rank 0's metrics; None unless there is a third window.

    `steady_samples_per_s` is the median throughput of the windows after the first two. `second_window_s` is by how much
    the second one took longer, in s, than by the median latency of these; negative if it was shorter. `after_last_row_s`
    is the time from the last row's stamp to the end of the training: of a row whose stamp waits for the device, next to
    nothing.
    """
    return windows_of(events(metrics))


def windows_of(seen: Sequence[dict]) -> Windows | None:
    """The same of the events in rank 0's metrics."""
    rows = [event for event in seen if event["event"] == "iteration"]
    later = rows[LEFT_OUT:]
    if not later:
        return None
    first, second = next(pairwise(rows))
    excess_ms = second["latency_ms"] - median([row["latency_ms"] for row in later])
    ended = [event["time"] for event in seen if event["event"] == "end" and "time" in event]
    return Windows(
        steady_samples_per_s=median([row["throughput"] for row in later]),
        second_window_s=excess_ms * (second["iteration"] - first["iteration"]) / 1000,
        after_last_row_s=ended[-1] - rows[-1]["time"] if ended else None,
    )
