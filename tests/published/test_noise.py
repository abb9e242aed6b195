"""What the published figures say of their noise, and what they are compared with."""

from dataclasses import replace

import pytest

from repro.published.cases import load_catalogue
from repro.published.figures import PrintedNumber
from repro.published.noise import baseline, duplicates, published_noise, speedup

CATALOGUE = load_catalogue()


def test_duplicates():
    names = [tuple(case.name for case in group) for group in duplicates(CATALOGUE.cases)]
    assert names == [
        ("DP_8x1x1_16_1536x16", "2D_8x1x1_16_1536x16"),
        ("MP_1x8x1_16_1536x16", "2D_1x8x1_16_1536x16"),
    ]


def test_published_noise():
    noise = published_noise(CATALOGUE.cases)
    assert len(noise.repeats) == 19
    bert = [each.cv for name, each in noise.repeats.items() if name.startswith("bert")]
    assert (round(100 * min(bert), 2), round(100 * max(bert), 2)) == (0.07, 0.45)
    assert [round(100 * difference, 2) for difference in noise.duplicates.values()] == [0.03, 0.36]
    assert noise.largest == noise.repeats["resnet50_0821_2n8g_bs128"].cv == pytest.approx(0.0083458, rel=1e-4)
    assert published_noise(()).largest == 0


def test_baseline_is_the_single_gpu_of_the_same_report_and_batch():
    def name(case):
        found = baseline(CATALOGUE.case(case), CATALOGUE.cases)
        return found and found.name

    assert name("resnet50_0808_4n8g_bs160") == "resnet50_0808_1n1g_bs160"
    assert name("resnet50_0821_4n8g_bs128") == "resnet50_0821_1n1g_bs128"
    assert name("bert_2n8g_bs24") == "bert_1n1g_bs24"
    assert name("DP_32x1x1_64_1536x16") == name("2D_8x1x1_16_1536x16") == "DP_1x1x1_2_1536x16"
    assert name("DP_1x1x1_2_1536x16") == "DP_1x1x1_2_1536x16"
    assert name("MP_1x8x1_16_1536x16") is name("DP_PP_8x1x4_512_1536x16") is name("gpt2_small_4n8g_bs4_zero0") is None


def test_printed_speedups_follow_from_the_throughputs():
    printed = [case for case in CATALOGUE.cases if case.published.speedup]
    assert len(printed) == 31
    assert all(case.published.speedup.agrees(speedup(case, CATALOGUE.cases)) for case in printed)
    assert speedup(CATALOGUE.case("gpt2_small_1n8g_bs1_zero0"), CATALOGUE.cases) is None


def test_a_changed_speedup_is_seen():
    case = CATALOGUE.case("resnet50_0821_1n8g_bs128")
    changed = replace(case.published, speedup=PrintedNumber("7.72"))
    assert not changed.speedup.agrees(speedup(case, CATALOGUE.cases))
