"""Time and memory of an iteration, and what is expected of a case."""

from dataclasses import replace

import pytest

from repro.perfmodel.constants import ELSEWHERE, JUDGES_WITHIN, load_calibration
from repro.perfmodel.hardware import describe
from repro.perfmodel.memory import activation_bytes, memory
from repro.perfmodel.predict import Expectation, expect, predict, slowest_of
from repro.perfmodel.work import PUBLISHED_PROGRAM, TUNED_PROGRAM, ModelJob
from repro.perfmodel.workload import stages
from repro.published.cases import Layout, load_catalogue

CASES = load_catalogue()
CALIBRATION = load_calibration()
CONSTANTS = CALIBRATION.constants
V100 = describe("v100x32")
GPT = ModelJob.of(CASES.case("DP_1x1x1_2_1536x16"))


def seconds(job: ModelJob, cluster=V100, **constants):
    return predict(job, cluster, replace(CONSTANTS, **constants)).seconds


def test_shares_add_up():
    found = seconds(GPT)
    assert found.total == pytest.approx(sum(vars(found).values()))
    assert predict(GPT, V100, CONSTANTS).throughput == pytest.approx(2 / found.total)


def test_twice_the_products_rate_halves_their_share_only():
    slow, fast = seconds(GPT, matrix_tensor=0.4, memory=0.9), seconds(GPT, matrix_tensor=0.8, memory=0.9)
    assert fast.element == slow.element
    assert slow.matrix / 2 < fast.matrix < slow.matrix


def test_idle_share_of_equal_stages():
    """Without embeddings' weight, latency and launches the idle time nears (p-1)/m of the ideal."""
    shape = tuple(sorted({**dict(GPT.shape), "vocab_size": 128}.items()))
    job = replace(GPT, shape=shape, layout=Layout(1, 1, 4), accumulation_steps=8)
    found = seconds(job, V100, jitter=0.0, launch_us=0.0, interference=0.0)
    ideal = found.matrix + found.attention + found.element
    assert found.bubble == pytest.approx(3 / 8 * ideal, rel=0.05)


def test_tensor_parallelism_over_infiniband_is_slow():
    inside = seconds(replace(GPT, layout=Layout(1, 8, 1), micro_batch=16))
    across = seconds(replace(GPT, layout=Layout(1, 16, 1), micro_batch=16))
    assert across.tensor_parallel > 8 * inside.tensor_parallel


def test_gradients_hide_behind_the_backward_pass_unless_tensors_are_parallel():
    hidden = seconds(replace(GPT, layout=Layout(16, 1, 1)), interference=0.0).data_parallel
    exposed = seconds(replace(GPT, layout=Layout(16, 1, 1), accumulation_steps=2), interference=0.0).data_parallel
    assert hidden < exposed / 3


def test_jitter_grows_with_the_ranks():
    assert slowest_of(1) == 0
    assert 0 < slowest_of(2) < slowest_of(8) < slowest_of(8192)


def test_too_few_gpus():
    with pytest.raises(ValueError, match="layout 64x1x1 needs 64 GPUs, v100x32 has 32"):
        predict(replace(GPT, layout=Layout(64, 1, 1)), V100, CONSTANTS)


def test_recompute_and_sharding_save_memory():
    def total(job):
        return memory(job, stages(job), CONSTANTS).total_mib

    assert total(replace(GPT, activation_checkpointing=False)) > 1.3 * total(GPT)
    data = replace(GPT, layout=Layout(8, 1, 1))
    assert total(replace(data, optimizer_sharding=1)) < total(data) - 5000


def test_activations_are_korthikantis():
    """34 + 5as/h bytes a token and hidden element of every layer, and the logits."""
    job = replace(GPT, activation_checkpointing=False)
    layer = 2 * 2048 * 1536 * (34 + 5 * 16 * 2048 / 1536)
    assert activation_bytes(job, stages(job)[0]) == pytest.approx(16 * layer + 6 * 2 * 2048 * 50304)


def test_expectation_of_a_published_case():
    expected = expect(CASES.case("2D_2x4x1_16_1536x16"), V100)
    assert expected.throughput == pytest.approx(16000 / expected.latency_ms)
    assert expected.fits and not expected.notes
    assert not expected.deviates(29.65)
    assert expected.deviates(15.0) and expected.deviates(60.0)


def test_expectation_elsewhere_says_so():
    case = CASES.case("DP_1x1x1_2_1536x16")
    expected = expect(case, describe("dgx-h200x1"), program=TUNED_PROGRAM)
    assert expected.notes[0][1] == {"generation": "Hopper"}
    assert expected.judges == (expected.uncertainty <= JUDGES_WITHIN) == (len(expected.notes) == 1)
    assert expected.uncertainty == CALIBRATION.measured["hopper", TUNED_PROGRAM, "gpt"].throughput
    assert expect(case, describe("dgx-a100-80x1")).notes[0][1] == {"gpu": "a100-80"}


def test_what_no_kept_run_measured_has_the_uncertainty_of_the_worst():
    """Nothing on A100s was measured, nor the tuned program on V100s."""
    case, elsewhere = CASES.case("DP_1x1x1_2_1536x16"), CALIBRATION.uncertainty[ELSEWHERE].throughput
    for cluster, program in (
        ("dgx-a100-80x1", PUBLISHED_PROGRAM),
        ("dgx-a100-80x1", TUNED_PROGRAM),
        ("v100x32", TUNED_PROGRAM),
    ):
        expected = expect(case, describe(cluster), program=program)
        assert expected.uncertainty == elsewhere
        assert expected.deviates(1e6 * expected.throughput) is None


def test_an_uncertainty_that_allows_everything_judges_nothing():
    """Of each that judges, a measurement of half or of twice the expectation deviates."""
    levels = [*CALIBRATION.uncertainty.values(), *CALIBRATION.measured.values()]
    for level in levels:
        expected = Expectation(100.0, 1.0, 1.0, level.throughput, level.memory, True)
        judged = {expected.deviates(50.0), expected.deviates(200.0)}
        assert judged == ({True} if level.throughput <= JUDGES_WITHIN else {None})
    assert {level.throughput <= JUDGES_WITHIN for level in levels} == {True, False}


def test_both_programs_fuse_unless_the_published_one_did_not():
    gpt, bert = CASES.case("DP_1x1x1_2_1536x16"), CASES.case("bert_1n1g_bs96")
    assert ModelJob.of(gpt) == ModelJob.of(gpt, TUNED_PROGRAM)
    assert ModelJob.of(bert) == replace(ModelJob.of(bert, TUNED_PROGRAM), fused=False)
    with pytest.raises(TypeError, match="fused"):
        ModelJob("gpt", GPT.shape, GPT.layout, 2)


def test_every_published_case_fits_where_it_ran():
    assert all(expect(case, V100).fits for case in CASES.cases)


def test_what_does_not_fit():
    large = replace(CASES.case("resnet50_0808_1n1g_bs160"), micro_batch=320)
    assert not expect(large, V100).fits


def test_deviation_is_a_factor_either_way():
    expected = Expectation(100.0, 1.0, 1.0, 0.1, 0.1, True)
    assert not expected.deviates(91) and not expected.deviates(109.9)
    assert expected.deviates(90.9) and expected.deviates(110.1)
