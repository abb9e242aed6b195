"""What the kernels of 2020 would cost in a published iteration: calls, scaling to the published GPU, and coverage."""

from dataclasses import replace

import pytest

from repro.models.past import DROPOUT, LAYER_NORM, SOFTMAX
from repro.perfmodel.hardware import HardwareError
from repro.perfmodel.past_kernels import EffectError, Span, file_of, gain, measurements
from repro.planning.past import uses_of
from repro.published.cases import load_catalogue
from repro.published.deviations import deviations
from tests.support.past import measured

BANDWIDTH, ISSUE = 3350 / 900, 132 * 1.98 / (80 * 1.53)
"""An H100 over a V100, from their data sheets."""


def case(name):
    return next(each for each in load_catalogue().cases if each.name == name)


GPT2, DATA_PARALLEL = case("gpt2_small_1n8g_bs1_zero0"), case("DP_1x1x1_2_1536x16")
BERT = next(each for each in load_catalogue().cases if each.model == "bert")


def test_gpt2_calls():
    """12 layers: softmax and its dropout once each, two more dropouts and norms each, and those outside the layers."""
    found = {use.subject.name: (use.forward, use.backward) for use in uses_of(GPT2)}
    assert found == {
        "softmax 2020-12 12288x1024": (12, 12),
        "cross-entropy 2020-12 1024x50304": (1, 1),
        "dropout fp16 12288x1024": (12, 12),
        "dropout fp16 1024x768": (25, 25),
        "layer norm 2020-12 1024x768": (25, 25),
    }


def test_bert_calls():
    rows = BERT.micro_batch
    found = {use.subject.name: (use.forward, use.backward) for use in uses_of(BERT)}
    assert found == {
        f"softmax 2020-08 {rows * 12 * 128}x128": (12, 12),
        f"cross-entropy 2020-08 {rows * 20}x30522": (1, 1),
        f"dropout fp32 {rows * 12 * 128}x128": (12, 12),
        f"dropout fp32 {rows * 128}x768": (25, 25),
        f"layer norm 2020-08 {rows * 128}x768": (25, 25),
        f"layer norm 2020-08 {rows * 20}x768": (1, 1),
    }


def test_a_recomputed_layer_is_called_forward_twice():
    (use,) = uses_of(DATA_PARALLEL)
    assert (use.subject.name, use.forward, use.backward) == ("layer norm 2020-12 4096x1536", 64, 32)


def test_a_stage_has_its_layers_for_each_micro_batch():
    pipelined = next(each for each in load_catalogue().cases if each.layout.pipeline > 1)
    (use,) = uses_of(pipelined)
    layers = pipelined.shape["layers"] // pipelined.layout.pipeline
    assert use.backward == 2 * layers * pipelined.accumulation_steps


def test_other_reports_call_none():
    assert uses_of(next(each for each in load_catalogue().cases if each.model == "resnet50")) == ()


def test_each_deviation_is_one_of_the_ports():
    ids = {each.id for each in deviations()}
    named = {use.subject.deviation for each in load_catalogue().cases for use in uses_of(each)}
    assert named == {SOFTMAX, DROPOUT, LAYER_NORM}
    assert named <= ids


def test_differences_are_scaled_by_bandwidth_and_by_clock():
    """150 calls of 0.2 ms, or with nothing cached 0.3 ms: 26 of softmax and cross-entropy, 74 of dropout, 50 of LayerNorm."""
    found = gain(GPT2, [measured([GPT2])])
    assert found.by_deviation[SOFTMAX].low == pytest.approx(26 * 0.2 * ISSUE)
    assert found.by_deviation[SOFTMAX].high == pytest.approx(26 * 0.3 * BANDWIDTH)
    assert found.by_deviation[DROPOUT].high == pytest.approx(74 * 0.3 * BANDWIDTH)
    assert found.by_deviation[LAYER_NORM].high == pytest.approx(50 * 0.3 * BANDWIDTH)
    assert found.target == "Tesla V100-SXM2-16GB"


def test_the_gain_is_relative_to_the_iteration_without_the_old_kernels():
    found = gain(DATA_PARALLEL, [measured([DATA_PARALLEL], past_ms=0.2, cold_ms=0.2)])
    iteration = 1000 * 2 / 4.92
    assert found.iteration_ms == pytest.approx(iteration)
    assert found.faster.high == pytest.approx(9.6 * BANDWIDTH / (iteration - 9.6 * BANDWIDTH))
    assert found.of(LAYER_NORM) == found.faster


def test_on_the_published_gpu_nothing_is_scaled():
    found = gain(DATA_PARALLEL, [measured([DATA_PARALLEL], "Tesla V100-SXM2-16GB")])
    assert found.by_deviation[LAYER_NORM] == Span(pytest.approx(96 * 0.2), pytest.approx(96 * 0.3))


def test_several_gpus_widen_the_range():
    h100, h200 = measured([GPT2]), measured([GPT2], "NVIDIA H200")
    alone, both = gain(GPT2, [h100]), gain(GPT2, [h100, h200])
    assert both.faster.low == alone.faster.low
    assert both.by_deviation[SOFTMAX].high == pytest.approx(26 * 0.3 * 4800 / 900)
    assert both.gpus == ("NVIDIA H100 80GB HBM3", "NVIDIA H200")


def test_a_deviation_counts_only_if_each_of_its_operators_was_measured():
    whole = measured([GPT2])
    less = replace(whole, operators=tuple(each for each in whole.operators if each.form != "cross-entropy 2020-12"))
    assert set(gain(GPT2, [less]).by_deviation) == {DROPOUT, LAYER_NORM}
    assert gain(GPT2, [measured([BERT])]) is None
    assert gain(GPT2, []) is None


def test_newer_kernels_that_are_slower_count_against_it():
    assert gain(GPT2, [measured([GPT2], present_ms=1.0)]).faster.high < 0


def test_what_is_recorded_is_read_again(tmp_path):
    whole = measured([GPT2])
    file = file_of(whole.gpu, tmp_path)
    file.write_text(whole.text())
    assert file.name == "h100-80.json"
    assert measurements(tmp_path) == (whole,)


def test_a_gpu_that_is_not_described_is_refused(tmp_path):
    with pytest.raises(HardwareError, match="GeForce"):
        file_of("GeForce", tmp_path)


def test_a_file_of_another_kind_is_refused(tmp_path):
    (tmp_path / "x.json").write_text('{"gpu": "NVIDIA H200"}')
    with pytest.raises(EffectError, match=r"x\.json: no measurement that `make effects` wrote"):
        measurements(tmp_path)
