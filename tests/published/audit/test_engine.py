"""The audit finds what is wrong in the published reports, each planted error at its place, and nothing else."""

import json
import shutil
from pathlib import Path

import pytest

from repro.published.audit.engine import as_json, audit, differences
from repro.published.audit.flops import gpt_flop
from repro.published.cases import CaseError
from repro.published.figures import PrintedNumber
from repro.utils.paths import DATA
from tests.support.audited import audited
from tests.support.paths import ROOT

AUDIT = audited()
BY_ID = {found.id: found for found in AUDIT.findings}

EXPECTED = {
    "resnet50-2020-08-08/origin/resnet50-accuracy-of-one",
    "resnet50-2020-08-08/origin/resnet50-figures-taken-back",
    "gpt-3d-2021-05/origin/gpt-3d-three-builds",
    "bert-2020-08-22/missing/bs24-32-GPU/throughput",
    "bert-2020-08-22/spelling/section-Test-Environment/主要应软件配置",
    "bert-2020-08-22/stray/bs48-32-GPU/throughput",
    "bert-2020-08-22/title",
    "gpt-3d-2021-05/cuda/cuda",
    "gpt-3d-2021-05/cut-off/latency_ms",
    "gpt-3d-2021-05/driver/driver",
    "gpt-3d-2021-05/duplicate/2D_1x8x1_16_1536x16/case",
    "gpt-3d-2021-05/duplicate/2D_8x1x1_16_1536x16/case",
    "gpt-3d-2021-05/log/2D_1x8x1_16_1536x16/log",
    "gpt-3d-2021-05/log/2D_8x1x1_16_1536x16/log",
    "gpt-3d-2021-05/spelling/Test-Result/lantency",
    "gpt-3d-2021-05/spelling/Test-Result/throuthput-sample-sec",
    "gpt-3d-2021-05/title",
    "gpt-3d-2021-05/trainer-commit/trainer",
    "gpt-3d-2021-05/warm-up/100-iterations/warmup_iterations",
    "gpt2-small-2020-12/change/gpt2_small_2n8g_bs4_zero1/memory_change_percent",
    "gpt2-small-2020-12/change/gpt2_small_4n8g_bs4_zero1/memory_change",
    "gpt2-small-2020-12/change/gpt2_small_4n8g_bs4_zero1/memory_change_percent",
    "gpt2-small-2020-12/change/gpt2_small_4n8g_bs4_zero1/throughput_change_percent",
    "gpt2-small-2020-12/flag/flag",
    "gpt2-small-2020-12/missing/1-GPU/throughput",
    "gpt2-small-2020-12/pattern/1-node-8-GPUs/xn_xg_xdp_xmp_xbs",
    "gpt2-small-2020-12/spelling/1-node-8-GPUs/throuthput-sample-sec",
    "gpt2-small-2020-12/trainer-commit/trainer",
    "gpt2-small-2020-12/unit/1-node-8-GPUs/gpu_mem-mB",
    "gpt2-small-2020-12/wheel/oneflow",
    "peers/peer-step/bert-PaddlePaddle-1.8.3.post107-bs32-8-GPU/throughput",
    "resnet50-2020-08-08/accuracy/top_1",
    "resnet50-2020-08-08/encoding/network",
    "resnet50-2020-08-08/example/throughput",
    "resnet50-2020-08-08/memory-siblings-figures-of-another-version/resnet50_0808_2n8g_bs128/memory_mib",
    "resnet50-2020-08-08/memory-siblings-figures-of-another-version/resnet50_0808_4n8g_bs128/memory_mib",
    "resnet50-2020-08-08/script-folder/script_folders",
    "resnet50-2020-08-08/warm-up/200-iterations/warmup_iterations",
    "resnet50-2020-08-21/accuracy/top_1",
    "resnet50-2020-08-21/copy/resnet50_0821_1n8g_bs128/speedup",
    "resnet50-2020-08-21/precision-scope/precision",
    "resnet50-2020-08-21/trainer/trainer",
    "resnet50-2020-08-21/warm-up/120-iterations/warmup_iterations",
}

R08, R21, BERT = "resnet50-2020-08-08", "resnet50-2020-08-21", "bert-2020-08-22"
SMALL, GPT = "gpt2-small-2020-12", "gpt-3d-2021-05"
MP32, PP24 = "MP_1x32x1_16_3072x32", "2D_PP_2x4x4_512_2304x24"
LOG24 = "4n8d_dp2_mp4_pp4_mbz8_gbz512_s2048_l24_h2304_nh24"

# file, printed text, what is planted in its place, and the row and column where the audit must point
PLANTED = [
    (BERT, "throughput = 1158.5,", "throughput = 1158.3,", "bert_1n8g_bs96", "throughput"),
    (BERT, "throughput = 1697.8,", "throughput = 1697.0,", "bert_2n8g_bs24", "throughput"),
    (BERT, "speedup = 13.02", "speedup = 13.03", "bert_2n8g_bs32", "speedup"),
    (BERT, "speedup = 29.75", "speedup = 29.57", "bert_4n8g_bs96", "speedup"),
    (BERT, "4303.4", "4033.4", "bert_4n8g_bs64", "run-2"),
    (BERT, "batch_sizes = [96, 64, 32, 24]", "batch_sizes = [96, 64, 24]", "bert_1n8g_bs32", "micro_batch"),
    (BERT, "batch_sizes = [96, 64, 32, 24]", "batch_sizes = [96, 64, 48, 32, 24]", "bs48, 8 GPU", "throughput"),
    (BERT, 'driver = "440.33.01"', 'driver = "440.13.01"', "", "driver"),
    (BERT, "48 CPU(s)", "46 CPU(s)", "", "cpu"),
    (BERT, 'precision = "Float32"', 'precision = "Float16"', "", "precision"),
    (R08, "speedup = 7.67", "speedup = 7.76", "resnet50_0808_1n8g_bs128", "speedup"),
    (R08, "throughput = 5877.289", "throughput = 5787.289", "resnet50_0808_2n8g_bs160", "speedup"),
    (R08, "memory_mib = 15701", "memory_mib = 17501", "resnet50_0808_1n8g_bs160", "memory_mib"),
    (R08, "memory_mib = 15817", "memory_mib = 11817", "resnet50_0808_2n8g_bs160", "memory_mib"),
    (R08, "printed = { gpus = 4 }", "printed = { gpus = 8 }", "resnet50_0808_1n4g_bs128", "gpus"),
    (R08, "12230.47, 30.16,", "12230.47, 30.61,", "resnet50_0808_4n8g_bs128", "speedup"),
    (R08, "[140, 1.054016, 1.000000, 384.704]", "[145, 1.054016, 1.000000, 384.704]", "", "iteration"),
    (R08, '"GPU Memory Usage"', '"GPU Memroy Usage"', "batch size per device = 128", "GPU Memroy Usage"),
    (R08, 'title_printed = "OneFlow ResNet50-V1.5', 'title_printed = "OneFlow BERT', "", ""),
    (R21, "throughput = 5906.6,", "throughput = 5960.6,", "resnet50_0821_2n8g_bs128", "throughput"),
    (R21, '["bert_2n8g_bs96", 2257.7,', '["bert_2n8g_bs96", 2275.7,', "bert_2n8g_bs96", "throughput"),
    (R21, "5906.55, 15.35", "5906.55, 15.53", "resnet50_0821_2n8g_bs128", "speedup"),
    (SMALL, "throughput = 89,", "throughput = 98,", "gpt2_small_1n8g_bs1_zero1", "throughput_change_percent"),
    (SMALL, "memory_mib = 9547", "memory_mib = 9574", "gpt2_small_1n8g_bs4_zero1", "memory_change"),
    (
        SMALL,
        "memory_change_percent = -31.3",
        "memory_change_percent = -33.1",
        "gpt2_small_1n8g_bs1_zero1",
        "memory_change_percent",
    ),
    (
        SMALL,
        'description = "on_optimization", layout = "2n_8g_dp_4bs"',
        'description = "off_optimization", layout = "2n_8g_dp_4bs"',
        "gpt2_small_2n8g_bs4_zero1",
        "description",
    ),
    (
        SMALL,
        'test = "test-19-1", description = "off_optimization", layout = "4n_8g_dp_4bs"',
        'test = "test-19-1", description = "off_optimization", layout = "2n_8g_dp_4bs"',
        "gpt2_small_4n8g_bs4_zero0",
        "layout",
    ),
    (SMALL, "throughput = 717", "throughput = 377", "gpt2_small_4n8g_bs4_zero0", "throughput"),
    (SMALL, "cp37-cp37m", "cp36-cp36m", "", "python"),
    (SMALL, "oneflow_cu102", "oneflow_cu101", "", "cuda"),
    (GPT, "throughput = 1.68,", "throughput = 1.86,", MP32, "throughput"),
    (GPT, "latency_ms = 13117.188", "latency_ms = 13171.188", PP24, "throughput"),
    (GPT, "3.57, 3, 0.11]", "3.75, 3, 0.11]", MP32, "tflops_per_gpu"),
    (GPT, "36.85, 29, 1.18]", "36.85, 29, 1.81]", PP24, "petaflops"),
    (GPT, "9505.83,", "9508.53,", MP32, "latency_ms"),
    (GPT, LOG24, LOG24.replace("mp4", "mp8"), PP24, "log"),
    (GPT, 'name = "2D_PP_2x4x4_512_2304x24"', 'name = "2D_PP_2x4x4_512_2304x16"', "2D_PP_2x4x4_512_2304x16", "case"),
    (
        GPT,
        "micro_batch_times_data = 64",
        "micro_batch_times_data = 32",
        "DP_32x1x1_64_1536x16",
        "micro_batch_times_data",
    ),
    (
        GPT,
        "throughput = 24.83, latency_ms = 644.4",
        "throughput = 22.83, latency_ms = 700.8",
        "2D_1x8x1_16_1536x16",
        "case",
    ),
    (GPT, "git.8b222ee", "git.8b222ef", "", "oneflow"),
    ("peers", "    464.12,", "    446.12,", "DP_1x1x1_2_1536x16", "throughput"),
    ("cluster", '["NV1", "X", "NV2", "NV1"', '["NV2", "X", "NV2", "NV1"', "GPU1", "GPU0"),
]
FILES = {"peers": "peers.toml", "cluster": "clusters/v100x32.toml"}


def planted(folder: Path, name: str, printed: str, changed: str):
    """The audit of a copy of the data in which the first occurrence of a text is changed."""
    copy = shutil.copytree(DATA, folder / "data")
    file = copy / FILES.get(name, f"cases/{name}.toml")
    text = file.read_text(encoding="utf-8")
    assert printed in text
    changed_text = text.replace(printed, changed, 1)
    if 'name = "' in printed:
        old, new = (each.split('"')[1] for each in (printed, changed))
        for path in (file, copy / "peers.toml"):
            path.write_text(path.read_text(encoding="utf-8").replace(f'"{old}"', f'"{new}"'), encoding="utf-8")
    else:
        file.write_text(changed_text, encoding="utf-8")
    return audit(copy)


def test_the_published_reports_have_exactly_these_findings():
    assert set(BY_ID) == EXPECTED


def test_findings_carry_printed_and_recomputed_values():
    shown = {key.split("/", 1)[1]: (each.printed, each.recomputed, each.kind) for key, each in BY_ID.items()}
    two, four = "change/gpt2_small_2n8g_bs4_zero1", "change/gpt2_small_4n8g_bs4_zero1"
    assert shown[f"{two}/memory_change_percent"] == ("-11.4", "-17.4", "arithmetic")
    assert shown[f"{four}/memory_change"] == ("-2727", "-2007", "arithmetic")
    assert shown[f"{four}/memory_change_percent"] == ("-23.1", "-18.1", "arithmetic")
    assert shown[f"{four}/throughput_change_percent"] == ("3.4", "3.5", "arithmetic")
    assert shown["driver/driver"] == ("440.33.01", "", "inconsistency")
    assert shown["wheel/oneflow"] == ("0.3b2", "0.3.2", "inconsistency")
    assert shown["stray/bs48-32-GPU/throughput"] == ("4 | 8 | 48 | 4103.6", "", "stray")


def test_what_another_source_says_is_not_called_recomputed():
    shown = {key.split("/", 1)[1]: each.as_json() for key, each in BY_ID.items()}
    for key, value, source in (
        ("driver/driver", ">= 450.80.02", "CUDA Toolkit Release Notes"),
        ("copy/resnet50_0821_1n8g_bs128/speedup", "7.72", "rn50_fp32_report_0821.md"),
        ("missing/bs24-32-GPU/throughput", "3312.17", "DLPerf@d5ff13e"),
        ("warm-up/200-iterations/warmup_iterations", ">= 1000", "not printed"),
        ("accuracy/top_1", "<= 0.80", "He et al."),
    ):
        assert shown[key]["recomputed"] is None
        assert shown[key]["elsewhere"]["value"] == value and source in shown[key]["elsewhere"]["source"]
    for each in BY_ID.values():
        assert not (each.recomputed and each.elsewhere)


def test_nothing_is_said_of_figures_that_are_right():
    checks = {check.name: check for check in AUDIT.checks}
    assert (checks["median"].compared, checks["median"].findings) == (15 + 4, 0)
    assert checks["speed-up"].findings == checks["latency"].findings == checks["efficiency"].findings == 0
    assert checks["efficiency"].compared == 3 * 18
    assert not [found for found in AUDIT.of(BERT) if found.kind == "arithmetic"]
    assert {found.id.split("/")[1] for found in AUDIT.of(R08) if found.severity != "note"} == {
        "accuracy",
        "origin",
        "memory-siblings-figures-of-another-version",
    }


@pytest.mark.parametrize(("name", "printed", "changed", "row", "column"), PLANTED)
def test_a_planted_error_is_found_at_its_place(tmp_path, name, printed, changed, row, column):
    found = {each.id: each for each in planted(tmp_path, name, printed, changed).findings}
    new = [each.place for each in found.values() if each.id not in EXPECTED]
    grown = [
        each.place
        for key, each in found.items()
        if key in BY_ID and (each.printed, each.severity) != (BY_ID[key].printed, BY_ID[key].severity)
    ]
    assert (row, column) in {(place.row, place.column) for place in new + grown}


def test_a_wrong_figure_that_rounding_explains_is_a_warning(tmp_path):
    result = planted(tmp_path, R21, "throughput = 2969.5, speedup = 7.71", "throughput = 2969.5, speedup = 7.72")
    found = {each.id: each for each in result.findings}["resnet50-2020-08-21/speed-up/resnet50_0821_1n8g_bs128/speedup"]
    assert (found.printed, found.recomputed, found.severity) == ("7.72", "7.71", "warning")


def test_a_figure_put_right_is_no_longer_found(tmp_path):
    result = planted(tmp_path, SMALL, "memory_change_percent = -11.4", "memory_change_percent = -17.4")
    assert "gpt2-small-2020-12/change/gpt2_small_2n8g_bs4_zero1/memory_change_percent" not in {
        found.id for found in result.findings
    }


def test_the_noise_estimate_comes_from_repeats_and_duplicates():
    noise = json.loads(as_json(AUDIT))["noise"]
    assert [round(100 * each["relative_difference"], 2) for each in noise["duplicates"]] == [0.03, 0.36]
    bert = [100 * each["cv"] for each in noise["repeats"] if each["case"].startswith("bert")]
    assert len(bert) == 15 and (round(min(bert), 2), round(max(bert), 2)) == (0.07, 0.45)


def test_efficiency_is_what_the_team_published():
    rows = {row["case"]: row for row in AUDIT.material.catalogue.report(GPT).also("efficiency")}
    assert len(AUDIT.efficiencies) == 18
    for each in AUDIT.efficiencies:
        assert PrintedNumber(f"{float(rows[each.case]['tflops_per_gpu']):.2f}").agrees(each.tflops_per_gpu)
        assert rows[each.case]["percent_of_peak"] == round(100 * each.share_of_peak)


def test_without_recomputation_a_forward_of_the_layers_is_spared():
    """The head is not computed again, so that its share is the same in both."""
    tokens, h, layers = 2 * 2048, 1536, 16
    spared = gpt_flop(2, 2048, layers, h) - gpt_flop(2, 2048, layers, h, recompute=False)
    assert spared == pytest.approx(tokens * layers * (24 * h * h + 4 * 2048 * h))


def test_the_committed_audit_is_that_of_the_data():
    committed = ROOT / "reports" / "published" / "audit.json"
    assert committed.read_text(encoding="utf-8") == as_json(AUDIT) == as_json(audit())


def test_what_an_audit_finds_otherwise_than_a_kept_one_is_named(tmp_path):
    kept = tmp_path / "audit.json"
    kept.write_text(as_json(AUDIT))
    assert differences(AUDIT, kept) == []
    first, second, third = (found.id for found in AUDIT.findings[:3])
    content = json.loads(kept.read_text())
    content["findings"][0]["id"] = "a/gone"
    content["findings"][0]["printed"] = "7"
    content["findings"][1]["printed"] = "something else"
    kept.write_text(json.dumps(content))
    found = differences(AUDIT, kept)
    heads = [line.split(": ")[:2] for line in found]
    assert sorted(heads) == sorted([["gone", "a/gone"], ["new", first], ["changed", second]])
    assert [line.split(": ")[1] for line in found] == sorted(["a/gone", first, second]) and third not in str(found)
    assert any(line.startswith("gone: a/gone: printed 7, recomputed ") for line in found)


def test_findings_at_a_place_are_only_those_of_this_place():
    found = AUDIT.findings[0]
    place = found.place.table, found.place.row, found.place.column
    assert found in AUDIT.at(found.report, *place)
    assert all(
        (each.place.table, each.place.row, each.place.column) == place for each in AUDIT.at(found.report, *place)
    )
    assert AUDIT.at(found.report, "nowhere", "", "") == () and AUDIT.at("no report", *place) == ()


def test_data_that_is_not_laid_out_as_ours_is_refused(tmp_path):
    copy = shutil.copytree(DATA, tmp_path / "data")
    (copy / "peers.toml").unlink()
    with pytest.raises(CaseError, match="it is laid out as repro/data is"):
        audit(copy)
    (copy / "peers.toml").write_text("[broken")
    with pytest.raises(CaseError, match="it is laid out as repro/data is"):
        audit(copy)
