"""The kernels of 2020: from metrics and a trace to what is recorded."""

import json

import pytest

from repro.analysis.past_kernels import MeasurementError, reduced

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


@pytest.fixture
def measured(tmp_path):
    """Writes metrics and a trace of one operator; changes replace events of a kind, or launches of a phase."""

    def write(launches=None, errors=(), more=(), end=True):
        numbers: dict[str, int] = {}
        lines, records, at = [], [], 1_000 * MS
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
        (tmp_path / "metrics-rank0.jsonl").write_text("".join(json.dumps(each) + "\n" for each in events))
        lines = ["trace 1 130000 libcupti.so.13", "clock 0 0"]
        lines += [f"name {number} {name}" for name, number in numbers.items()]
        (tmp_path / "trace.4711").write_text("\n".join([*lines, *records]) + "\n")
        return tmp_path

    return write


def test_kernels_of_a_phase_make_its_time(measured):
    found = reduced(measured())
    assert (found.gpu, found.multiprocessors, found.clock_mhz) == ("NVIDIA H100 80GB HBM3", 132, 1980)
    assert found.versions == {"oneflow": "0.8.0", "cudnn": "7605"}
    forward, backward = found.operators
    assert (forward.form, forward.rows, forward.columns, forward.direction) == ("softmax 2020-12", 8, 64, "forward")
    assert (forward.passes, forward.bytes) == (6, 3000)
    assert (forward.past_ms, forward.cold_ms) == (3.0, 4.0)
    assert backward.direction == "backward"


def test_what_is_not_the_operator_does_not_count(measured):
    forward, _ = reduced(measured()).operators
    assert forward.present_ms == 0.5
    assert list(forward.present_kernels) == ["SoftmaxWarpImpl"]


def test_a_kernel_that_the_trace_lacks_is_found(measured):
    with pytest.raises(MeasurementError, match=rf"{NAME}, forward, cold: the trace has 3 reduce_max_f16.* in 2 calls"):
        reduced(measured(launches={"cold": 3}))


def test_a_wrong_result_is_not_recorded(measured):
    errors = [{"part": "y", "error": 0.5, "tolerance": 0.03}]
    with pytest.raises(MeasurementError, match=r"softmax.*, forward, y: relative error 5\.0e-01, tolerance 3e-02"):
        reduced(measured(errors=errors))


def test_no_number_is_a_wrong_result(measured):
    with pytest.raises(MeasurementError, match="relative error nan"):
        reduced(measured(errors=[{"part": "y", "error": float("nan"), "tolerance": 0.03}]))


def test_an_operator_that_failed_is_named(measured):
    refused = {"event": "refused", "subject": NAME, "reason": "cudnnCreate failed with status 1 of cuDNN"}
    with pytest.raises(MeasurementError, match=f"{NAME}: cudnnCreate failed"):
        reduced(measured(more=[refused]))


def test_a_measurement_that_was_cut_off_is_refused(measured):
    with pytest.raises(MeasurementError, match="did not reach its end"):
        reduced(measured(end=False))


def test_a_folder_without_a_trace_is_refused(measured):
    folder = measured()
    (folder / "trace.4711").unlink()
    with pytest.raises(MeasurementError, match="0 traces"):
        reduced(folder)
