"""Published comparisons with other frameworks: which figures they are made of, and what they are called."""

import pytest

from repro.published.cases import load_catalogue
from repro.published.comparisons import comparisons
from repro.published.figures import load_peers

CATALOGUE, PEERS = load_catalogue(), load_peers()
FOUND = {each.id: each for each in comparisons(CATALOGUE, PEERS)}


def test_every_figure_of_another_framework_is_compared_once():
    others = [peer for peer in PEERS if peer.framework != "OneFlow"]
    assert [each.peer for each in FOUND.values()] == others
    assert len(FOUND) == len(others) == 84


@pytest.mark.parametrize(
    ("name", "oneflow", "peer", "ratio"),
    [
        ("DP_1x1x1_2_1536x16/over-megatron-lm", "4.92", "4.31", 1.1415),
        ("resnet50_32gpu_bs128/over-ngc-pytorch", "12411.97", "10917.09", 1.1369),
        ("bert_8gpu_bs32_no-clipping/over-mxnet", "1194.48", "1058.60", 1.1284),
        ("gpt2_small_2n8g_bs4_zero1/over-deepspeed", "395", "261", 1.5134),
    ],
)
def test_a_ratio_is_of_two_printed_figures(name, oneflow, peer, ratio):
    found = FOUND[name]
    assert (str(found.oneflow), str(found.peer.throughput)) == (oneflow, peer)
    assert found.ratio == pytest.approx(ratio, abs=1e-4)


def test_the_largest_batch_sizes_are_compared_across_frameworks():
    found = FOUND["bert_1gpu_bs48/over-ngc-tensorflow"]
    assert (str(found.oneflow), found.version, found.peer.micro_batch) == ("156.02", "0.2.0", 48)


def test_oneflow_was_ahead_of_megatron_in_all_cases_by_what_was_said():
    ratios = [each.ratio for each in FOUND.values() if each.peer.framework == "Megatron-LM"]
    assert len(ratios) == 18
    assert (min(ratios), max(ratios)) == pytest.approx((1.0193, 1.3659), abs=1e-4)


def test_each_source_is_a_file_at_a_commit():
    for peer in PEERS:
        repository, _, revision = peer.url.removeprefix("https://github.com/").partition("/blob/")
        commit, _, path = revision.partition("/")
        assert repository == "Oneflow-Inc/DLPerf" and len(commit) == 40
        assert path in peer.source and path.endswith(".md")
