"""The expectation beside each measurement of a run."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from repro.perfmodel.work import PUBLISHED_PROGRAM
from repro.published.cases import Layout, load_catalogue
from repro.report.run.expectation import expectation_sections
from repro.utils.i18n import LANGUAGES, catalogue
from tests.support.runs import CONFIG


def result(name: str, throughput: float | None):
    case = None if name.endswith(".pytorch") else load_catalogue().case(name.split(".")[0])
    unit = SimpleNamespace(
        name=name,
        case=case,
        program=PUBLISHED_PROGRAM,
        derived_from=(),
        config=CONFIG,
        tf32=False,
    )
    return SimpleNamespace(unit=unit, throughput=throughput, memory_mib=None)


AMPERE = "NVIDIA A100-SXM4-40GB"
V100S = [{"name": "Tesla V100-SXM2-16GB"}] * 8
RESULTS = [
    result("DP_8x1x1_16_1536x16", 38.0),
    result("MP_1x8x1_16_1536x16", 12.0),
    result("2D_2x4x1_16_1536x16", 60.0),
    result("bert_1n8g_bs96", None),
]


def section(language: str, gpus=V100S, results=RESULTS):
    (found,) = expectation_sections(catalogue(language).gettext, "published", results, gpus)
    return found


def test_shrunk_layouts_have_an_expectation_of_their_own_and_baselines_none():
    shrunk = result("DP_8x1x1_16_1536x16.as_4x1x1", 20.0)
    shrunk.unit.derived_from = ("DP_8x1x1_16_1536x16",)
    shrunk.unit.config = replace(CONFIG, layout=Layout(4), precision="amp")
    rows = section("en", results=[RESULTS[0], shrunk, result("DP_8x1x1_16_1536x16.pytorch", 38.0)]).blocks[-1].rows
    assert [row[0].text for row in rows] == ["DP_8x1x1_16_1536x16", "DP_8x1x1_16_1536x16.as_4x1x1"]
    assert rows[1][2].sort == pytest.approx(rows[0][2].sort / 2, rel=0.1)


def test_deviations_are_marked():
    table = section("en").blocks[-1]
    assert [row[-1].text for row in table.rows] == ["no", "slower than expected", "faster than expected", "–"]
    assert [row[-1].tone for row in table.rows] == ["good", "bad", "bad", ""]


@pytest.mark.parametrize("language", LANGUAGES)
def test_same_in_both_languages(language):
    found, english = section(language), section("en")
    assert found.id == english.id
    assert [[cell.sort for cell in row] for row in found.blocks[-1].rows] == [
        [cell.sort for cell in row] for row in english.blocks[-1].rows
    ]


def test_chinese_is_translated():
    found = section("zh")
    assert found.title != section("en").title
    assert found.blocks[0].text != section("en").blocks[0].text
    assert {row[-1].text for row in found.blocks[-1].rows} == {"否", "慢于预期", "快于预期", "–"}


def test_other_hardware_says_where_the_constants_are_from():
    found = section("en", [{"name": "NVIDIA H200"}] * 4, [result("DP_1x1x1_2_1536x16", 26.9)])
    assert "were fitted on half of the kept trainings on Hopper GPUs" in found.blocks[1].text
    found = section("en", [{"name": AMPERE}] * 4, [result("DP_1x1x1_2_1536x16", 26.9)])
    assert "fitted on V100s" in found.blocks[1].text


def test_where_the_model_is_unsure_nothing_deviates():
    """No kept run measured anything on such GPUs: even ten times as quick is no deviation there."""
    found = section("en", [{"name": AMPERE}] * 8, [result("DP_1x1x1_2_1536x16", 260.9)])
    assert "Deviates" not in [column.title for column in found.blocks[-1].columns]
    assert "not used to judge" in found.blocks[2].text


def test_unknown_gpu_is_said():
    found = section("en", [{"name": "GeForce GTX 1080"}])
    assert "GeForce GTX 1080" in found.blocks[0].text


def test_nothing_for_a_smoke_run():
    assert expectation_sections(str, "smoke", RESULTS, []) == []


def test_on_several_nodes_the_network_between_them_counts():
    """What was published on four nodes is expected there, and far more where one switch would join all 32 GPUs."""
    case = load_catalogue().case("MP_1x32x1_16_3072x32")
    tensor = [result(case.name, case.published.throughput)]
    (on_four,) = expectation_sections(str, "published", tensor, V100S * 4, nodes=4)
    (on_one,) = expectation_sections(str, "published", tensor, V100S * 4)
    assert [found.blocks[-1].rows[0][-1].text for found in (on_four, on_one)] == ["no", "slower than expected"]


def test_no_section_where_the_model_knows_no_result():
    in_tf32 = result("DP_8x1x1_16_1536x16", 38.0)
    in_tf32.unit.tf32 = True
    assert expectation_sections(str, "published", [in_tf32], V100S) == []
