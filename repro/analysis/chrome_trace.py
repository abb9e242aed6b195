"""The profiled iterations as a timeline, in the JSON trace format that Perfetto and Chrome open."""

from __future__ import annotations

import json

from repro.analysis.kernel_classes import class_of, short_name
from repro.analysis.kernel_trace import Trace

TIMELINE = "trace.json"
"""The timeline's file in an attempt's folder."""


def chrome_trace(trace: Trace, begin_s: float, end_s: float) -> dict:
    """The kernels, copies and fills that began between two times since 1970.

    A process is a GPU and a thread one of its CUDA streams. Times are microseconds after the begin; an event's category
    is its kernel's class, one of `repro.analysis.kernel_classes`. Format: Google's "Trace Event Format".
    """
    begin = trace.at(begin_s)
    records = trace.begun(begin, trace.at(end_s))
    streams = sorted({(record.device, record.stream) for record in records})
    named = [_metadata("process_name", device, 0, f"GPU {device}") for device in sorted({gpu for gpu, _ in streams})]
    named += [_metadata("thread_name", device, stream, f"stream {stream}") for device, stream in streams]
    names = {number: (short_name(name), class_of(name)) for number, name in trace.names.items()}
    kernels = []
    for record in records:
        name, category = names.get(record.name, ("?", class_of("?")))
        kernels.append(
            {
                "ph": "X",
                "name": name,
                "cat": category,
                "pid": record.device,
                "tid": record.stream,
                "ts": (record.start - begin) / 1000,
                "dur": (record.end - record.start) / 1000,
            }
        )
    return {"displayTimeUnit": "ms", "otherData": {"cupti": trace.cupti}, "traceEvents": [*named, *kernels]}


def as_text(timeline: dict) -> str:
    """The timeline as JSON, one event per line."""
    head = json.dumps({name: value for name, value in timeline.items() if name != "traceEvents"})
    events = ",\n".join(json.dumps(event, separators=(",", ":")) for event in timeline["traceEvents"])
    return f'{head[:-1]}, "traceEvents": [\n{events}\n]}}\n'


def _metadata(kind: str, pid: int, tid: int, name: str) -> dict:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {"name": name}}
