"""From a measurement of the kernels of 2020 to what is recorded of it: their times and those of OneFlow's own."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from repro.analysis.kernel_classes import short_name
from repro.analysis.kernel_trace import Trace, TraceError, read_trace
from repro.perfmodel.past_kernels import Timed, TimedOperators
from repro.runs.metrics import events
from repro.utils.errors import FAILED, ReproError
from repro.utils.i18n import N_

METRICS, TRACES = "metrics-rank0.jsonl", "trace.[0-9]*"
FLUSH = re.compile(r"flush_cache")
NOT_THE_OPERATORS = re.compile(r"flush_cache|Fill|Memset|Memcpy")
"""What OneFlow runs besides its operator outside a graph: gradients of 0 for results that nothing came back for."""


class MeasurementError(ReproError):
    """A measurement is incomplete or wrong; the message says how."""

    status = FAILED


def reduced(folder: Path) -> TimedOperators:
    """What was measured on a GPU, from the metrics and the trace of `repro/trainers/past_kernels.py` in a folder.

    Operators whose kernels of 2020 failed or computed wrongly there are left out, with the reason.

    Raises
    ------
    MeasurementError
        The program did not end, or the trace lacks kernels.
    """
    written = events(folder / METRICS) if (folder / METRICS).exists() else []
    traces = sorted(folder.glob(TRACES))
    if not written or written[-1]["event"] != "end":
        raise MeasurementError(f"{folder}: the measurement did not reach its end")
    if len(traces) != 1:
        raise MeasurementError(f"{folder}: {len(traces)} traces of kernels instead of one")
    trace = read_trace(traces[0])
    if trace.dropped:
        raise TraceError(N_("CUPTI lost {n} records: the GPU times are incomplete"), n=trace.dropped)
    start = written[0]
    failed = _failed(written)
    operators = tuple(_timed([event for event in written if event.get("subject") not in failed], trace))
    return TimedOperators(
        gpu=start["gpu"]["name"],
        multiprocessors=start["gpu"]["multiprocessors"],
        clock_mhz=start["gpu"]["clock_khz"] / 1000,
        versions={name: str(start["versions"][name]) for name in ("oneflow", "cudnn")},
        cupti=trace.cupti.partition(" ")[0],
        operators=operators,
        left_out=failed,
    )


def _failed(written: list[dict]) -> dict[str, str]:
    """Why operators cannot be recorded, by their names: they failed, or computed wrongly."""
    reasons = {event["subject"]: event["reason"] for event in _of(written, "refused")}
    for event in _of(written, "error"):
        if not event["error"] <= event["tolerance"]:
            error = f"relative error {event['error']:.1e}, tolerance {event['tolerance']:.0e}"
            reasons.setdefault(event["subject"], f"{event['direction']}, {event['part']}: {error}")
    return reasons


def _of(written: Iterable[dict], kind: str) -> list[dict]:
    return [event for event in written if event["event"] == kind]


def _timed(written: list[dict], trace: Trace) -> Iterable[Timed]:
    """Each operator in each direction, with the times of its phases."""
    phases: dict[tuple, dict[str, dict]] = defaultdict(dict)
    for event in _of(written, "phase"):
        phases[event["subject"], event["direction"]][event["kind"]] = event
    for passes in _of(written, "passes"):
        key = passes["subject"], passes["direction"]
        phase = phases[key]
        past, cold = (_kernels(trace, phase[kind], FLUSH) for kind in ("past", "cold"))
        present = _kernels(trace, phase["present"], NOT_THE_OPERATORS)
        yield Timed(
            form=phase["past"]["form"],
            rows=phase["past"]["rows"],
            columns=phase["past"]["columns"],
            direction=passes["direction"],
            passes=passes["passes"],
            bytes=sum(passes["bytes"]),
            past_ms=_sum(past),
            cold_ms=_sum(cold),
            present_ms=_sum(present),
            past_kernels=past,
            present_kernels=present,
        )


def _kernels(trace: Trace, phase: dict, left_out: re.Pattern) -> dict[str, float]:
    """Milliseconds of a call by kernel; MeasurementError unless each call ran the same kernels."""
    spent: dict[str, list[int]] = defaultdict(list)
    for record in trace.begun(trace.at(phase["begin"]), trace.at(phase["end"])):
        name = trace.names.get(record.name, "?")
        if not left_out.search(name):
            spent[short_name(name)].append(record.end - record.start)
    calls = phase["calls"]
    if not spent or any(len(times) % calls for times in spent.values()):
        counted = ", ".join(f"{len(times)} {name}" for name, times in spent.items()) or "no kernel"
        raise MeasurementError(
            f"{phase['subject']}, {phase['direction']}, {phase['kind']}: the trace has {counted} in {calls} calls"
        )
    return {name: round(sum(times) / calls / 1e6, 5) for name, times in spent.items()}


def _sum(kernels: dict[str, float]) -> float:
    return round(sum(kernels.values()), 5)
