"""The catalogue says what the five reports print; the expected tables are written out here a second time."""

import ast
import subprocess
import sys
from collections import Counter

import pytest

from repro.published.cases import CASES, CaseError, Layout, cases_table, load_catalogue
from repro.published.figures import load_published_cluster
from repro.published.rules import Stamps
from tests.support.paths import ROOT

CATALOGUE = load_catalogue()

# nodes, GPUs a node, GPUs, batch size, memory, throughput, speed-up
RESNET50_0808 = """
1 1 1 128 12565 383.760 1
1 2 2 128 12839 747.295 1.95
1 4 4 128 12987 1497.618 3.90
1 8 8 128 13051 2942.321 7.67
2 8 16 128 12871 5839.054 15.22
4 8 32 128 12871 11548.451 30.09
1 1 1 160 15509 382.324 1
1 2 2 160 15785 755.956 1.98
1 4 4 160 15881 1494.733 3.91
1 8 8 160 15701 3016.431 7.89
2 8 16 160 15817 5877.289 15.37
4 8 32 160 15879 11623.889 30.40
"""
# nodes, GPUs a node, batch size, throughput, speed-up, and the seven runs of the detailed report
RESNET50_0821 = """
1 1 128 384.9 1.00 383.8 384.9 385.1 384.9 383.7 384.9 382.3
1 8 128 2969.5 7.71 2961.6 2961.6 2969.5 2990.0 3006.3 2985.9 2967.2
2 8 128 5906.6 15.35 5915.6 5921.0 5862.3 5974.3 5906.6 5826.5 5859.8
4 8 128 11711.2 30.43 11651.9 11797.7 11613.3 11746.5 11749.2 11682.2 11711.2
"""
DETAILED_0821 = "384.85 1.00 2969.45 7.72 5906.55 15.35 11711.18 30.43"
SUMMARY_OF_BERT = """
1 1 96 149.8 1.00
1 8 96 1158.5 7.73
2 8 96 2257.7 15.07
4 8 96 4456.0 29.75
"""
# nodes, GPUs a node, batch size, median, speed-up, seven runs
BERT = """
1 1 96 149.8 1.00 149.9 149.8 149.8 149.9 149.7 149.8 150.0
1 8 96 1158.5 7.73 1160.4 1158.3 1159.0 1157.9 1157.3 1159.7 1158.5
2 8 96 2257.7 15.07 2255.4 2255.9 2258.9 2257.7 2259.2 2257.7 2259.4
4 8 96 4456 29.75 4449.9 4456.8 4460.2 4455.0 4456.0 4451.4 4458.1
1 1 64 149.8 1.00 150.0 149.8 149.8 149.9 149.8 149.7 149.9
1 8 64 1138.9 7.60 1135.6 1135.4 1141.5 1138.9 1143.6 1138.9 1135.6
2 8 64 2189.3 14.61 2190.2 2186.6 2189.3 2184.9 2191.0 2189.3 2190.6
4 8 64 4310.4 28.77 4315.0 4303.4 4310.4 4312.8 4305.7 4310.6 4308.8
1 1 32 145.2 1.00 145.4 145.3 145.1 145.2 145.1 145.2 145.2
1 8 32 1043 7.18 1045.5 1042.8 1047.4 1043.0 1040.4 1042.0 1046.6
2 8 32 1890.3 13.02 1887.4 1890.3 1877.0 1894.0 1891.8 1880.5 1891.6
4 8 32 3715.1 25.59 3715.2 3697.3 3717.9 3707.9 3715.1 3694.4 3720.5
1 1 24 140.4 1.00 140.4 140.2 140.3 140.3 140.5 140.5 140.4
1 8 24 986.1 7.02 993.1 980.5 989.2 991.2 983.4 986.1 985.9
2 8 24 1697.8 12.09 1700.8 1697.0 1694.8 1695.9 1697.8 1701.3 1703.8
"""
# date, test, description, layout, memory, utilisation, throughput, all as printed
GPT2_SMALL = """
20201208 test-10-1 off_optimization 1n_8g_dp_1bs 5603 73 104
20201208 test-10-2 on_optimization 1n_8g_dp_1bs 3849(-1754,↓31.3%) 43 89(↓14.4%)
20201208 test-10-3 off_optimization 1n_8g_dp_4bs 11301 95 239
20201208 test-10-4 on_optimization 1n_8g_dp_4bs 9547(-1754,↓15.5%) 88 235(↓1.7%)
20201208 test-14-1 off_optimization 2n_8g_dp_4bs 11087 96 412
20201208 test-14-2 on_optimization 2n_8g_dp_4bs 9160(-1927,11.4↓%) 92 395(4.1↓%)
20201209 test-19-1 off_optimization 4n_8g_dp_4bs 11089 95 717
20201209 test-19-2 on_optimization 4n_8g_dp_4bs 9082(-2727,↓23.1%) 92 742(↑3.4%)
"""
GPT2_SMALL_CHANGES = [(-1754, -31.3, -14.4), (-1754, -15.5, -1.7), (-1927, -11.4, -4.1), (-2727, -23.1, 3.4)]
# case, nodes, GPUs a node, data, tensor, pipeline, micro-batch, micro-batch x data, accumulation, global batch,
# hidden size, heads, layers, latency, memory, throughput
GPT_3D = """
DP_1x1x1_2_1536x16 1 1 1 1 1 2 2 1 2 1536 16 16 406.16 11066 4.92
DP_8x1x1_16_1536x16 1 8 8 1 1 2 16 1 16 1536 16 16 417.952 12404 38.28
DP_16x1x1_32_1536x16 2 8 16 1 1 2 32 1 32 1536 16 16 489.674 12200 65.35
DP_32x1x1_64_1536x16 4 8 32 1 1 2 64 1 64 1536 16 16 518.642 12208 123.4
MP_1x1x1_8_768x12 1 1 1 1 1 8 8 1 8 768 12 12 525.214 7416 15.23
MP_1x8x1_16_1536x16 1 8 1 8 1 16 16 1 16 1536 16 16 642.134 6264 24.92
MP_1x16x1_16_3072x16 2 8 1 16 1 16 16 1 16 3072 32 16 4819.296 8678 3.32
MP_1x32x1_16_3072x32 4 8 1 32 1 16 16 1 16 3072 32 32 9505.832 11256 1.68
2D_8x1x1_16_1536x16 1 8 8 1 1 2 16 1 16 1536 16 16 417.902 12396 38.29
2D_1x8x1_16_1536x16 1 8 1 8 1 16 16 1 16 1536 16 16 644.4 6264 24.83
2D_2x4x1_16_1536x16 1 8 2 4 1 8 16 1 16 1536 16 16 539.696 6366 29.65
2D_4x2x1_16_1536x16 1 8 4 2 1 4 16 1 16 1536 16 16 543.888 7368 29.42
2D_2x8x1_16_2304x24 2 8 2 8 1 8 16 1 16 2304 24 24 1268.532 6998 12.61
2D_4x8x1_32_2304x24 4 8 4 8 1 8 32 1 32 2304 24 24 1480.34 6996 21.62
DP_PP_8x1x4_512_1536x16 4 8 8 1 4 2 16 32 512 1536 16 16 4006.318 8712 127.8
MP_PP_1x8x4_512_2304x24 4 8 1 8 4 16 16 32 512 2304 24 24 19196.65 15670 26.67
2D_PP_2x4x4_512_2304x24 4 8 2 4 4 8 16 32 512 2304 24 24 13117.188 11958 39.03
2D_PP_2x8x2_512_2304x24 4 8 2 8 2 8 16 32 512 2304 24 24 14375.352 10708 35.62
"""
EXAMPLE_LOG = "288.088 385.628 386.264 385.723 384.622 385.367 384.704 384.927 384.109 384.517"
TOPOLOGY = """
GPU0 X NV1 NV1 NV2 NV2 SYS SYS SYS NODE 0-11,24-35
GPU1 NV1 X NV2 NV1 SYS NV2 SYS SYS NODE 0-11,24-35
GPU2 NV1 NV2 X NV2 SYS SYS NV1 SYS PIX 0-11,24-35
GPU3 NV2 NV1 NV2 X SYS SYS SYS NV1 PIX 0-11,24-35
GPU4 NV2 SYS SYS SYS X NV1 NV1 NV2 SYS 12-23,36-47
GPU5 SYS NV2 SYS SYS NV1 X NV2 NV1 SYS 12-23,36-47
GPU6 SYS SYS NV1 SYS NV1 NV2 X NV2 SYS 12-23,36-47
GPU7 SYS SYS SYS NV1 NV2 NV1 NV2 X SYS 12-23,36-47
mlx5_0 NODE NODE PIX PIX SYS SYS SYS SYS X
"""


def rows(table: str) -> list[list[str]]:
    return [line.split() for line in table.strip().splitlines()]


def of(report: str):
    return [case for case in CATALOGUE.cases if case.report == report]


def size(case) -> list[str]:
    return [str(case.nodes), str(case.gpus_per_node)]


def texts(*figures) -> list[str]:
    return [str(figure) for figure in figures]


def test_five_reports_in_order_of_date():
    counts = Counter(case.report for case in CATALOGUE.cases)
    assert list(counts.items()) == [
        ("resnet50-2020-08-08", 12),
        ("resnet50-2020-08-21", 4),
        ("bert-2020-08-22", 15),
        ("gpt2-small-2020-12", 8),
        ("gpt-3d-2021-05", 18),
    ]
    assert [report.id for report in CATALOGUE.reports] == list(counts)


def test_resnet50_of_8_august():
    for case, row in zip(of("resnet50-2020-08-08"), rows(RESNET50_0808), strict=True):
        figures = texts(case.published.memory_mib, case.published.throughput, case.published.speedup)
        assert [*size(case), str(case.layout.data), str(case.micro_batch), *figures] == row
        assert case.published.printed == {"gpus": int(row[2])}
    example = CATALOGUE.report("resnet50-2020-08-08").also("example log")
    assert texts(*(row["throughput"] for row in example)) == EXAMPLE_LOG.split()
    assert [row["iteration"] for row in example] == list(range(20, 201, 20))


def test_resnet50_of_21_august():
    for case, row in zip(of("resnet50-2020-08-21"), rows(RESNET50_0821), strict=True):
        published = case.published
        figures = texts(case.micro_batch, published.throughput, published.speedup, *published.repeats)
        assert [*size(case), *figures] == row
        assert sorted(published.repeats)[3] == published.throughput
    detailed = CATALOGUE.report("resnet50-2020-08-21").also("detailed report")
    assert texts(*(row[name] for row in detailed for name in ("throughput", "speedup"))) == DETAILED_0821.split()


def test_the_summary_repeats_bert():
    printed = CATALOGUE.report("resnet50-2020-08-21").also("BERT summary")
    for entry, row in zip(printed, rows(SUMMARY_OF_BERT), strict=True):
        case = CATALOGUE.case(entry["case"])
        assert [*size(case), *texts(case.micro_batch, entry["throughput"], entry["speedup"])] == row
        assert (entry["throughput"], entry["speedup"]) == (case.published.throughput, case.published.speedup)


def test_bert():
    for case, row in zip(of("bert-2020-08-22"), rows(BERT), strict=True):
        published = case.published
        figures = texts(case.micro_batch, published.throughput, published.speedup, *published.repeats)
        assert [*size(case), *figures] == row


def test_bert_medians_are_the_printed_ones():
    assert all(sorted(case.published.repeats)[3] == case.published.throughput for case in of("bert-2020-08-22"))


def test_bert_keeps_the_stray_row_apart():
    (stray,) = CATALOGUE.report("bert-2020-08-22").stray
    assert (stray["nodes"], stray["gpus_per_node"], stray["micro_batch"]) == (4, 8, 48)
    assert str(stray["throughput"]) == "4103.6"
    assert not [case for case in of("bert-2020-08-22") if case.micro_batch == 48]


def test_bert_has_the_figures_of_a_later_run():
    later = CATALOGUE.report("bert-2020-08-22").also("later run")
    found = {(row["micro_batch"], row["nodes"] * row["gpus_per_node"]): str(row["throughput"]) for row in later}
    assert found == {
        (24, 1): "139.98",
        (24, 8): "985.10",
        (24, 16): "1700.05",
        (24, 32): "3312.17",
        (48, 1): "148.01",
        (48, 8): "1103.01",
        (48, 16): "2078.66",
        (48, 32): "4090.99",
    }


def test_resnet50_has_the_figures_of_another_version():
    other = CATALOGUE.report("resnet50-2020-08-08").also("figures of another version")
    assert [row["case"] for row in other] == [case.name for case in of("resnet50-2020-08-08")]
    for row in other:
        single = next(each for each in other if each["case"].endswith("1n1g_" + row["case"].split("_")[-1]))
        assert row["speedup"].agrees(row["throughput"] / single["throughput"])


def test_gpt2_small():
    for case, row in zip(of("gpt2-small-2020-12"), rows(GPT2_SMALL), strict=True):
        date, test, description, layout, memory, utilisation, throughput = row
        published, printed = case.published, case.published.printed
        assert [printed[key] for key in ("date", "test", "description", "layout")] == [date, test, description, layout]
        assert printed.get("memory", str(published.memory_mib)) == memory
        assert printed.get("throughput", str(published.throughput)) == throughput
        assert memory.split("(")[0] == str(published.memory_mib)
        assert throughput.split("(")[0] == str(published.throughput)
        assert str(published.gpu_utilisation) == utilisation
        assert layout == f"{case.nodes}n_{case.gpus_per_node}g_dp_{case.micro_batch}bs"
        assert case.optimizer_sharding == description.startswith("on")


def test_gpt2_small_changes_stay_as_printed():
    printed = [case.published.printed for case in of("gpt2-small-2020-12") if case.optimizer_sharding]
    names = ("memory_change", "memory_change_percent", "throughput_change_percent")
    assert [tuple(each[name] for name in names) for each in printed] == GPT2_SMALL_CHANGES


def test_gpt_3d():
    for case, row in zip(of("gpt-3d-2021-05"), rows(GPT_3D), strict=True):
        layout, shape, published = case.layout, case.shape, case.published
        times_data = published.printed["micro_batch_times_data"]
        sizes = (layout.data, layout.tensor, layout.pipeline, case.micro_batch, times_data, case.accumulation_steps)
        model = (case.global_batch, shape["hidden_size"], shape["attention_heads"], shape["layers"])
        figures = (published.latency_ms, published.memory_mib, published.throughput)
        assert [case.name, *size(case), *texts(*sizes, *model, *figures)] == row
        assert times_data == case.micro_batch * layout.data


def test_gpt_3d_names_and_logs_say_the_same():
    for case in of("gpt-3d-2021-05"):
        *group, layout, batch, model = case.name.split("_")
        shape = case.shape
        assert layout == str(case.layout) and batch == str(case.global_batch)
        assert model == f"{shape['hidden_size']}x{shape['layers']}"
        assert case.published.printed["group"] == ("PP" if group[-1] == "PP" else group[0])
        assert case.published.printed["log"] == (
            f"perf_test_logs/pretrain_gpt_{case.nodes}n{case.gpus_per_node}d_dp{case.layout.data}"
            f"_mp{case.layout.tensor}_pp{case.layout.pipeline}_mbz{case.micro_batch}_gbz{case.global_batch}"
            f"_s{shape['seq_length']}_l{shape['layers']}_h{shape['hidden_size']}_nh{shape['attention_heads']}.log"
        )


def test_gpt_3d_latency_and_throughput_agree():
    cases = of("gpt-3d-2021-05")
    off = [
        case.name
        for case in cases
        if not case.published.throughput.agrees(1000 * case.global_batch / case.published.latency_ms)
    ]
    assert off == []


def test_gpt_3d_efficiency_follows_from_the_latency():
    """The FLOPs of Narayanan et al. 2021 (arXiv 2104.04473) with recompute and a vocabulary of 51,200."""
    efficiency = CATALOGUE.report("gpt-3d-2021-05").also("efficiency")
    for row, case in zip(efficiency, of("gpt-3d-2021-05"), strict=True):
        length, layers, hidden = (case.shape[key] for key in ("seq_length", "layers", "hidden_size"))
        parts = 1 + length / (6 * hidden) + 51200 / (16 * layers * hidden)
        flops = 96 * case.global_batch * length * layers * hidden**2 * parts
        petaflops = flops / (case.published.latency_ms / 1e3) / 1e15
        tflops = 1e3 * petaflops / case.layout.world_size
        assert row["case"] == case.name and abs(row["latency_ms"] - case.published.latency_ms) < 0.01
        assert row["tflops_per_gpu"] == pytest.approx(tflops, abs=0.02)
        assert row["percent_of_peak"] == round(tflops / 125 * 100)
        assert row["petaflops"] == pytest.approx(petaflops, abs=0.0051)


def test_published_settings():
    kinds = {report.id: (report.rule.kind, report.rule.parameters) for report in CATALOGUE.reports}
    stamps = ("stamps", {"first_row": 1, "last_row": 6})
    assert kinds == {
        "resnet50-2020-08-08": ("mean_rows", {"skip_first": 1}),
        "resnet50-2020-08-21": stamps,
        "bert-2020-08-22": stamps,
        "gpt2-small-2020-12": ("mean_rows", {"skip_first": 1}),
        "gpt-3d-2021-05": ("last_rows", {"rows": 5}),
    }
    settings = {
        report.id: (
            case.precision,
            case.log_generation,
            case.iterations,
            case.log_interval,
            case.rule.repeats,
            case.training["optimizer"]["lr"],
            case.activation_checkpointing,
        )
        for report in CATALOGUE.reports
        for case in of(report.id)
    }
    assert settings == {
        "resnet50-2020-08-08": ("fp32", "A", 200, 20, 1, 1e-3, False),
        "resnet50-2020-08-21": ("fp32", "B", 120, 20, 7, 1e-3, False),
        "bert-2020-08-22": ("fp32", "C", 140, 20, 7, 1e-4, False),
        "gpt2-small-2020-12": ("amp", "D", 1000, 10, 1, 2e-5, False),
        "gpt-3d-2021-05": ("amp", "E", 100, 10, 1, 1.5e-4, True),
    }


def test_what_all_cases_of_a_report_share():
    assert [case.optimizer_sharding for case in CATALOGUE.cases if case.report != "gpt2-small-2020-12"] == [0] * 49
    assert all(case.accumulation_steps == 1 for case in CATALOGUE.cases if case.layout.pipeline == 1)
    assert all(case.shape == {"image_size": 224, "classes": 1000} for case in CATALOGUE.select("resnet50"))
    assert {case.training["optimizer"]["weight_decay"] for case in CATALOGUE.select("resnet50")} == {1 / 32768}
    gpt = CATALOGUE.select("gpt")
    sizes = {case.report: (case.shape["seq_length"], case.shape["vocab_size"]) for case in gpt}
    assert sizes == {"gpt2-small-2020-12": (1024, 50304), "gpt-3d-2021-05": (2048, 50257)}
    assert {case.shape["hidden_size"] for case in of("gpt2-small-2020-12")} == {768}


def test_bert_trains_as_published():
    case = CATALOGUE.case("bert_4n8g_bs96")
    assert case.shape == {
        "seq_length": 128,
        "max_predictions": 20,
        "vocab_size": 30522,
        "layers": 12,
        "hidden_size": 768,
        "attention_heads": 12,
    }
    assert case.training == {
        "dropout": 0.1,
        "optimizer": {
            "name": "adamw",
            "lr": 1e-4,
            "betas": [0.9, 0.999],
            "eps": 1e-6,
            "weight_decay": 0.01,
            "clip_norm": 1.0,
        },
        "schedule": {
            "kind": "polynomial",
            "warmup_iterations": 14,
            "decay_iterations": 140,
            "min_lr": 0.0,
            "power": 1.0,
        },
    }
    assert all(type(value) is float for value in case.training["optimizer"]["betas"])


def test_what_a_report_does_not_say_is_marked():
    for report in CATALOGUE.reports:
        assert report.unstated and report.settings_source and report.source.startswith("Oneflow-Inc/")
        keys = [entry["key"] for entry in report.unstated]
        assert len(keys) == len(set(keys))
        if not report.rule.stated:
            assert report.rule.source


def test_titles_are_corrected_in_both_languages():
    others = [report for report in CATALOGUE.reports if report.model != "resnet50"]
    wrong = [report.id for report in others if "ResNet50" in report.title_printed]
    assert wrong == ["bert-2020-08-22", "gpt-3d-2021-05"]
    for report in CATALOGUE.reports:
        word = {"resnet50": "ResNet50", "bert": "BERT", "gpt": "GPT"}[report.model]
        assert word in report.title["en"] and word in report.title["zh"]


def test_the_cluster_of_the_reports():
    cluster = load_published_cluster()
    topology = cluster["topology"]
    for row, device, links, cpus in zip(
        rows(TOPOLOGY), topology["devices"], topology["links"], topology["cpu_affinity"], strict=True
    ):
        assert row == [device, *links, *([cpus] if cpus else [])]
    assert topology["links"] == [list(column) for column in zip(*topology["links"], strict=True)]
    assert {link.rstrip("0123456789") for row in topology["links"] for link in row} <= {
        name.rstrip("#") for name in topology["legend"]
    }
    assert {report.cluster for report in CATALOGUE.reports} == {cluster["name"]}
    software = cluster["software"]
    assert [software[key] for key in ("driver", "cuda", "cudnn", "nccl", "python")] == [
        "440.33.01",
        "10.2",
        "7.6.5",
        "2.7.3",
        "3.7.9",
    ]


def test_environments_as_printed():
    printed = {report.id: report.environment for report in CATALOGUE.reports}
    assert {key: (each.get("cuda"), each.get("driver"), each.get("nccl")) for key, each in printed.items()} == {
        "resnet50-2020-08-08": ("10.2", "440.33.01", None),
        "resnet50-2020-08-21": (None, None, None),
        "bert-2020-08-22": ("10.2", "440.33.01", "2.7.3"),
        "gpt2-small-2020-12": ("10.2", "NVIDIA 440.33.01", "2.7.3"),
        "gpt-3d-2021-05": ("10.2", "440.33.01", None),
    }
    assert {report.id: report.version for report in CATALOGUE.reports} == {
        "resnet50-2020-08-08": "v0.1.8, fix_infer_out_logical_blob_desc@17a2bdc9b",
        "resnet50-2020-08-21": "v0.1.9",
        "bert-2020-08-22": "v0.1.9",
        "gpt2-small-2020-12": "oneflow-cu102 0.3b2",
        "gpt-3d-2021-05": "0.3.5+cu112.git.8b222ee",
    }
    assert "0.3.2" in printed["gpt2-small-2020-12"]["wheel"]


def test_layout_and_rule():
    assert str(Layout(2, 4, 4)) == "2x4x4" and Layout(2, 4, 4).world_size == 32
    with pytest.raises(ValueError, match="tensor parallel size is 0"):
        Layout(1, 0, 1)
    assert Stamps(first_row=1, last_row=6).parameters == {"first_row": 1, "last_row": 6}


def test_cases_can_be_kept_in_a_set():
    assert len(set(CATALOGUE.cases)) == 57


def test_select():
    assert len(CATALOGUE.select()) == 57
    assert len(CATALOGUE.select("gpt")) == 26 and len(CATALOGUE.select("bert")) == 15
    assert [case.name for case in CATALOGUE.select("gpt", "DP_8*")] == ["DP_8x1x1_16_1536x16"]
    assert len(CATALOGUE.select(pattern="DP_*, bert_1n1g_bs24")) == 6


@pytest.mark.parametrize(
    ("model", "pattern", "message"),
    [
        ("nope", None, "no model 'nope'. There are: bert, gpt, resnet50"),
        ("gpt2", None, "no model 'gpt2'; did you mean gpt?"),
        (None, "DP_8", "no case 'DP_8'; did you mean DP_8x1x1_16_1536x16? There are: 57"),
        ("gpt", "2D*x", "no gpt case '2D*x'; did you mean 2D_8x1x1_16_1536x16 or "),
        ("bert", "DP_*", "no bert case 'DP_*'. There are: bert_1n1g_bs96, "),
        (None, "bert_*,bret_1n8g_bs96", "no case 'bret_1n8g_bs96'; did you mean bert_1n8g_bs96"),
    ],
)
def test_select_nothing(model, pattern, message):
    with pytest.raises(CaseError) as caught:
        CATALOGUE.select(model, pattern)
    assert message in str(caught.value)


def test_cases_table():
    columns, table = cases_table(CATALOGUE.select("gpt"))
    assert all(len(row) == len(columns) and all(isinstance(text, str) for text in row) for row in table)
    assert table[-1][0] == "2D_PP_2x8x2_512_2304x24" and "14375.352" in table[-1]


def test_loading_needs_the_standard_library_alone():
    code = "import sys; from repro.published.cases import load_catalogue; load_catalogue(); print(sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    roots = {name.split(".")[0] for name in ast.literal_eval(loaded)}
    assert (
        not {root for root in roots if root not in sys.stdlib_module_names}
        - {"repro", "__main__"}
        - {root for root in roots if root.startswith("_")}
    )
    assert not roots & {"difflib", "statistics", "typing_extensions"}


def test_case_files_are_named_after_their_reports():
    assert {report.file: f"{report.id}.toml" for report in CATALOGUE.reports}.items() == {
        (file.name, file.name) for file in CASES.glob("*.toml")
    }
