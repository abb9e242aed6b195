"""Peers' figures as published, written out here a second time."""

import copy
import json

import pytest

from repro.published.cases import load_catalogue
from repro.published.figures import PrintedNumber, load_peers, peers

CATALOGUE = load_catalogue()

# GPUs, then throughput of each framework at batch size 128
RESNET50 = """
1 397.64 392.24 362.44 367.29 384.19 321.80 348.62 352.72
8 3130.34 3006.98 2721.98 2887.65 2556.03 2458.74 2632.93 2625.38
16 6260.30 5758.49 5099.42 5716.79 4855.34 4849.68 5115.40 4895.27
32 12411.97 11331.93 9514.64 10917.09 9579.74 9418.44 10021.29 9348.17
"""
RESNET50_FRAMEWORKS = [
    "OneFlow",
    "NGC MXNet",
    "NGC TensorFlow",
    "NGC PyTorch",
    "MXNet",
    "TensorFlow",
    "PyTorch",
    "PaddlePaddle",
]
BERT_32 = """
1 152.89 107.33 119.60 132.64 153.94 150.11
8 1105.55 790.03 921.32 615.12 1194.48 1058.60
16 2015.78 1404.04 1499.40 1116.02 2181.51 1845.65
32 3689.80 2727.90 2885.81 2073.60 4019.45 3671.45
"""
BERT_LARGEST = """
1 156.02 112.76 121.94 136.97 156.25 156.76
8 1201.70 855.45 928.01 868.60 1234.65 1153.08
16 2352.92 1576.88 1584.32 1631.36 2425.97 2172.62
32 4664.10 3089.74 3039.30 3167.68 4799.64 4340.89
"""
BERT_FRAMEWORKS = ["OneFlow", "NGC TensorFlow", "NGC PyTorch", "PaddlePaddle", "OneFlow", "MXNet"]
MEGATRON = "4.31 33.27 48.16 93.63 13.09 23.11 2.85 1.23 33.32 24.07 27.75 26.95 12.18 21.21 104.63 23.10 33.40 31.45"
MEGATRON_MEMORY = """14362 14938 14508 14508 9810 12684 12150 8834 14938 12684 9104 9642 14928 15004 7130 14204 10018
10554"""
# GPUs, throughput and memory at ZeRO-0, throughput and memory at ZeRO-1
DEEPSPEED = """
8 198.6 15387 195.8 14199
16 269 15336 261 14005
32 533 15336 506 13975
"""


def table(found, gpus: int) -> list[str]:
    return [str(gpus), *(str(peer.throughput) for peer in found if peer.gpus == gpus)]


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.strip().splitlines()]


def test_a_figure_remembers_its_digits():
    figure = PrintedNumber("383.760")
    assert figure == 383.76 and str(figure) == f"{figure}" == "383.760" and f"{figure:.1f}" == "383.8"
    assert figure.decimals == 3 and figure.half_unit == 0.0005
    assert copy.deepcopy(figure).text == "383.760" and json.dumps(figure) == "383.76"


@pytest.mark.parametrize(
    ("text", "value", "agrees"),
    [("7.71", 7.7149, True), ("7.71", 7.715, True), ("7.71", 7.7151, False), ("4456", 4456.4, True), ("1", 1.6, False)],
)
def test_a_figure_agrees_with_what_rounds_to_it(text, value, agrees):
    assert PrintedNumber(text).agrees(value) is agrees


def test_peers_resnet50():
    found = peers("resnet50")
    assert [peer.framework for peer in found if peer.gpus == 1] == RESNET50_FRAMEWORKS
    assert [table(found, gpus) for gpus in (1, 8, 16, 32)] == rows(RESNET50)
    assert {(peer.precision, peer.micro_batch, peer.unit) for peer in found} == {("fp32", 128, "images/s")}


@pytest.mark.parametrize(
    ("expected", "batches"), [(BERT_32, [32] * 6), (BERT_LARGEST, [96, 48, 48, 96, 96, 64])], ids=["32", "largest"]
)
def test_peers_bert(expected, batches):
    title = "batch size = 32" if batches[0] == 32 else "batch size = max"
    found = [peer for peer in peers("bert", precision="fp32") if peer.source.endswith(title)]
    assert [table(found, gpus) for gpus in (1, 8, 16, 32)] == rows(expected)
    single = [peer for peer in found if peer.gpus == 1]
    assert [peer.framework for peer in single] == BERT_FRAMEWORKS
    assert [peer.micro_batch for peer in single] == batches
    assert [peer.variant for peer in single] == [""] * 4 + ["no clipping"] * 2


def test_peers_deepspeed():
    found = peers("gpt", framework="DeepSpeed")
    for gpus, *expected in rows(DEEPSPEED):
        pair = [peer for peer in found if peer.gpus == int(gpus)]
        assert [peer.optimizer_sharding for peer in pair] == [0, 1]
        assert [str(figure) for peer in pair for figure in (peer.throughput, peer.memory_mib)] == expected


def test_peers_megatron_ran_the_same_cases():
    found = peers("gpt", framework="Megatron-LM")
    cases = [case for case in CATALOGUE.cases if case.report == "gpt-3d-2021-05"]
    assert [str(peer.throughput) for peer in found] == MEGATRON.split()
    assert [str(peer.memory_mib) for peer in found] == MEGATRON_MEMORY.split()
    for peer, case in zip(found, cases, strict=True):
        sizes = (case.name, case.layout.world_size, case.micro_batch)
        assert (peer.case, peer.gpus, peer.micro_batch) == sizes
        assert peer.throughput.agrees(1000 * case.global_batch / peer.latency_ms)


def test_every_peer_has_its_source():
    reports = {report.id for report in CATALOGUE.reports}
    for peer in load_peers():
        assert peer.source.startswith("Oneflow-Inc/DLPerf:") and peer.version
        assert peer.reports and reports.issuperset(peer.reports)
