"""The kernels of 2020: from metrics and a trace to what is recorded."""

from functools import partial

import pytest

from repro.analysis.past_kernels import MeasurementError, reduced
from tests.support.past import NAME, write_results


@pytest.fixture
def measured(tmp_path):
    return partial(write_results, tmp_path)


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


@pytest.mark.parametrize(("error", "said"), [(0.5, "5.0e-01"), (float("nan"), "nan")])
def test_an_operator_that_computes_wrongly_is_left_out(measured, error, said):
    found = reduced(measured(errors=[{"part": "y", "error": error, "tolerance": 0.03}]))
    assert found.operators == ()
    assert found.left_out == {NAME: f"forward, y: relative error {said}, tolerance 3e-02"}


def test_an_operator_that_failed_is_left_out(measured):
    refused = {"event": "refused", "subject": NAME, "reason": "cudnnCreate failed with status 1 of cuDNN"}
    found = reduced(measured(more=[refused]))
    assert (found.operators, found.left_out) == ((), {NAME: "cudnnCreate failed with status 1 of cuDNN"})


def test_a_right_result_is_recorded(measured):
    found = reduced(measured(errors=[{"part": "y", "error": 0.03, "tolerance": 0.03}]))
    assert (len(found.operators), found.left_out) == (2, {})


def test_a_measurement_that_was_cut_off_is_refused(measured):
    with pytest.raises(MeasurementError, match="did not reach its end"):
        reduced(measured(end=False))


def test_a_folder_without_a_trace_is_refused(measured):
    folder = measured()
    (folder / "trace.4711").unlink()
    with pytest.raises(MeasurementError, match="0 traces"):
        reduced(folder)
