"""Measurements of the kernels of 2020 with made-up times, for tests."""

import json
from pathlib import Path

from repro.models.past import DIRECTIONS
from repro.perfmodel.past_kernels import Timed, TimedOperators
from repro.planning.past import subjects
from repro.published.cases import Case

MS = 1_000_000
SUBJECT = {"deviation": "softmax-kernel", "form": "softmax 2020-12", "rows": 8, "columns": 64}
NAME = "softmax 2020-12 8x64"
CALLS = 2
KERNELS = {
    "past": {"reduce_max_f16": 1.0, "divide_rows_f16": 2.0},
    "cold": {"reduce_max_f16": 1.5, "divide_rows_f16": 2.5},
    "present": {"SoftmaxWarpImpl": 0.5, "(anonymous namespace)::FillKernel<bool>": 9.0, "Memset": 9.0},
}
"""Milliseconds of each kernel in a call, by phase; `flush_cache` runs besides."""


def measured(cases: list[Case], gpu: str = "NVIDIA H100 80GB HBM3", **times: float) -> TimedOperators:
    """Every operator of these cases, each call with the same milliseconds."""
    given = {"past_ms": 0.3, "cold_ms": 0.4, "present_ms": 0.1, **times}
    operators = [
        Timed(each.form, each.rows, each.columns, direction, 6, 1000, **given, past_kernels={}, present_kernels={})
        for each in subjects(cases)
        for direction in DIRECTIONS
    ]
    return TimedOperators(gpu, 132, 1980.0, {"oneflow": "0.8.0", "cudnn": "7605"}, "130000", tuple(operators), {})


def write_results(folder: Path, launches=None, errors=(), more=(), end=True) -> Path:
    """Metrics and a trace of one operator as the program leaves them; `launches` are those of each kernel in a phase."""
    numbers: dict[str, int] = {}
    records, at = [], 1_000 * MS
    events = [
        {
            "event": "start",
            "gpu": {"name": "NVIDIA H100 80GB HBM3", "multiprocessors": 132, "clock_khz": 1980000},
            "versions": {"oneflow": "0.8.0", "cudnn": 7605, "python": "3.10"},
        }
    ]
    for direction in ("forward", "backward"):
        about = {"subject": NAME, "direction": direction}
        events.append({"event": "passes", **about, "passes": 6, "bytes": [1000, 2000]})
        events += [{"event": "error", **about, **each} for each in errors]
        for phase, kernels in KERNELS.items():
            begin = at
            for name, ms in {"flush_cache(long long, float*)": 3.0, **kernels}.items():
                number = numbers.setdefault(name, len(numbers))
                for _ in range((launches or {}).get(phase, CALLS)):
                    records.append(f"{at} {at + int(ms * MS)} 0 7 {number}")
                    at += 10 * MS
            times = {"begin": begin / 1e9, "end": at / 1e9}
            events.append({"event": "phase", **SUBJECT, **about, "kind": phase, "calls": CALLS, **times})
            at += 10 * MS
    events += [*more, *([{"event": "end"}] if end else [])]
    (folder / "metrics-rank0.jsonl").write_text("".join(json.dumps(each) + "\n" for each in events))
    lines = ["trace 1 130000 libcupti.so.13", "clock 0 0"]
    lines += [f"name {number} {name}" for name, number in numbers.items()]
    (folder / "trace.4711").write_text("\n".join([*lines, *records]) + "\n")
    return folder
