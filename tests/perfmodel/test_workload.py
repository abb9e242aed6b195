"""Counts of parameters, FLOPs and bytes, against closed formulas and figures the team published."""

from dataclasses import replace

import pytest

from repro.models.registry import spec_of
from repro.perfmodel.transformer import parameters
from repro.perfmodel.work import ModelJob, state_bytes
from repro.perfmodel.workload import flops, stages
from repro.published.cases import Layout, load_catalogue

CATALOGUE = load_catalogue()


def job(name: str, **changes) -> ModelJob:
    return replace(ModelJob.of(CATALOGUE.case(name)), **changes)


def total_flops(line) -> float:
    work = [stage.forward + stage.recompute + stage.backward for stage in line]
    return sum(each.matrix_flops + each.attention_flops for each in work)


def test_resnet50_has_its_known_parameters():
    assert stages(job("resnet50_0808_1n1g_bs128"))[0].parameters == 25_557_032


def test_gpt_parameters_follow_the_closed_formula():
    one = job("DP_1x1x1_2_1536x16")
    closed = parameters({**dict(one.shape), "vocab_size": spec_of("gpt").padded_vocab_size(50257, 1)})
    assert stages(one)[0].parameters == pytest.approx(closed, rel=1e-3)


def test_gpt_flops_follow_the_closed_formula():
    one = job("DP_1x1x1_2_1536x16")
    assert total_flops(stages(one)) == pytest.approx(flops(one), rel=1e-9)
    without = replace(one, activation_checkpointing=False)
    assert total_flops(stages(without)) == pytest.approx(flops(without), rel=1e-9)


def test_published_teraflops_are_reproduced():
    """The team's figures are made with a vocabulary of 51200 in every layout."""
    for row in CATALOGUE.report("gpt-3d-2021-05").also("efficiency"):
        one = job(row["case"])
        one = replace(one, shape=tuple(sorted({**dict(one.shape), "vocab_size": 51200}.items())))
        found = flops(one) / (row["latency_ms"] / 1000) / one.layout.world_size / 1e12
        if one.layout.tensor < 32:  # 51200 is padded further there
            assert found == pytest.approx(row["tflops_per_gpu"], abs=0.011)


@pytest.mark.parametrize("layout", [Layout(1, 4, 1), Layout(1, 1, 4), Layout(1, 2, 2)])
def test_layouts_divide_the_work(layout):
    one = job(
        "DP_1x1x1_2_1536x16",
        shape=tuple(sorted({**dict(job("DP_1x1x1_2_1536x16").shape), "vocab_size": 51200}.items())),
    )
    divided = stages(replace(one, layout=layout))
    assert layout.tensor * total_flops(divided) == pytest.approx(total_flops(stages(one)))


def test_what_cannot_be_divided_is_refused():
    with pytest.raises(ValueError, match="layers = 16 cannot be divided by 3"):
        stages(job("DP_1x1x1_2_1536x16", layout=Layout(1, 1, 3)))
    with pytest.raises(ValueError, match="data parallelism only"):
        stages(job("resnet50_0808_1n1g_bs128", layout=Layout(1, 2, 1)))


def test_state_is_16_bytes_and_shards():
    one = job("DP_1x1x1_2_1536x16")
    assert state_bytes(one, 1e6) == 16e6
    assert state_bytes(replace(one, precision="fp32"), 1e6) == 16e6
    sharded = replace(one, layout=Layout(8, 1, 1), optimizer_sharding=1)
    assert state_bytes(sharded, 1e6) == (4 + 12 / 8) * 1e6


def test_only_the_embedding_is_late():
    stage = stages(job("DP_1x1x1_2_1536x16"))[0]
    assert stage.late_parameters == 50304 * 1536
    assert stages(job("resnet50_0808_1n1g_bs128"))[0].late_parameters == 0
