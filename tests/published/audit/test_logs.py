"""Original logs are matched to their cases by what they state, and give the published figures."""

import shutil
from pathlib import Path

import pytest

from repro.published.audit.logs import NoLogs, from_logs
from repro.published.cases import load_catalogue
from tests.support.paths import LOGS

SAMPLES = LOGS
CATALOGUE = load_catalogue()


def by_name(folder: Path) -> dict:
    return {source.file.name: source for source in from_logs(folder, CATALOGUE).sources}


def stamped(folder: Path, name: str, samples_per_s: float, first: str = "20", last: str = "120") -> None:
    """A log of generation B of 2 nodes with 8 GPUs and batch size 128 that gives a throughput by its stamps."""
    row = "train: epoch 0, iter {}, loss: 1.0, top_1: 0.5, top_k: 0.5, samples/s: 1.000 {:.7f}\n"
    end = 1597933942.0 + 16 * 128 * 100 / samples_per_s
    (folder / name).write_text(
        "num_nodes = 2\ngpu_num_per_node = 8\nbatch_size_per_device = 128\n"
        + row.format(first, 1597933942.0)
        + row.format(last, end)
    )


def test_the_samples_give_the_published_figures():
    found = by_name(SAMPLES)
    gpt = found["gpt_2D_PP_2x4x4_512_2304x24_E.log"]
    assert gpt.cases == ("2D_PP_2x4x4_512_2304x24",)
    assert [(str(each.published), each.agrees) for each in gpt.compared] == [
        ("39.03", True),
        ("13117.188", True),
        ("11958", True),
    ]
    bert = found["bert_1n1g_bs24_C.log"]
    assert (bert.cases, bert.run, bert.compared[0].agrees) == (("bert_1n1g_bs24",), 2, True)
    resnet = found["resnet50_2n8g_bs128_B.log"]
    assert (resnet.cases, resnet.run, resnet.compared[0].agrees) == (("resnet50_0821_2n8g_bs128",), 1, True)


def test_the_example_log_differs_from_its_table_and_says_so():
    found = from_logs(SAMPLES, CATALOGUE)
    example = next(source for source in found.sources if source.file.name == "resnet50_1n1g_bs128_A.log")
    assert example.cases == ("resnet50_0808_1n1g_bs128",)
    assert not example.compared[0].agrees and not found.agrees
    assert any("385.096 (published 383.760: DIFFERS)" in line for line in found.lines())


def test_a_log_that_does_not_say_what_it_is_belongs_to_no_case():
    source = by_name(SAMPLES)["bert_1n1g_C_unstamped.log"]
    assert source.cases == () and "batch size" in source.problem


def test_the_path_stands_in_for_what_a_log_does_not_state(tmp_path):
    folder = tmp_path / "bs96"
    folder.mkdir()
    shutil.copy(SAMPLES / "bert_1n1g_C_unstamped.log", folder / "bert_1n1g.log")
    source = by_name(tmp_path)["bert_1n1g.log"]
    assert source.cases == ("bert_1n1g_bs96",) and "stamp" in source.problem


def test_a_log_under_its_printed_name_belongs_to_both_cases_that_name_it(tmp_path):
    rows = "".join(f"| {n}0 | {n}0 | {n}60 | 38.2{n % 3} | 0.417{n} | 9.0 |\n" for n in range(1, 11))
    header = "| batches | micro_batches | samples | throughput | latency | loss |\n"
    name = "pretrain_gpt_1n8d_dp8_mp1_pp1_mbz2_gbz16_s2048_l16_h1536_nh16.log"
    (tmp_path / name).write_text("Training...\n" + header + rows)
    assert by_name(tmp_path)[name].cases == ("DP_8x1x1_16_1536x16", "2D_8x1x1_16_1536x16")


def test_seven_logs_of_a_case_give_its_median(tmp_path):
    case = CATALOGUE.case("resnet50_0821_2n8g_bs128")
    for number, run in enumerate(case.published.repeats, 1):
        stamped(tmp_path, f"run{number}.log", run)
    found = from_logs(tmp_path, CATALOGUE)
    assert [source.run for source in found.sources] == [1, 2, 3, 4, 5, 6, 7]
    assert found.agrees and found.medians[case.name].agrees
    stamped(tmp_path, "run5.log", 5800.0)
    again = from_logs(tmp_path, CATALOGUE)
    assert not again.agrees and not again.medians[case.name].agrees


def test_a_folder_without_logs_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("nothing to see\n")
    with pytest.raises(NoLogs, match="none of 1 files"):
        from_logs(tmp_path, CATALOGUE)
    with pytest.raises(NoLogs, match="no such folder"):
        from_logs(tmp_path / "missing", CATALOGUE)


def test_make_audit_logs_prints_and_checks(task, refused):
    printed = task("audit", LOGS=SAMPLES)
    assert printed.returncode == 0 and "13117.188 (published 13117.188)" in printed.stdout
    assert task("audit", LOGS=SAMPLES, CHECK=1).returncode == 1
    assert "/nowhere" in refused("audit", LOGS="/nowhere")


def test_make_audit_finds_a_changed_figure_in_a_copy(task, tmp_path):
    copy = shutil.copytree("repro/data", tmp_path / "data")
    checked = task("audit", DATA=copy, CHECK=1)
    assert (checked.returncode, checked.stdout.splitlines()[-1]) == (0, "up to date")
    file = copy / "cases" / "bert-2020-08-22.toml"
    file.write_text(file.read_text(encoding="utf-8").replace("speedup = 13.02", "speedup = 13.20"), encoding="utf-8")
    checked = task("audit", DATA=copy, CHECK=1)
    assert checked.returncode == 1
    assert "new: bert-2020-08-22/speed-up/bert_2n8g_bs32/speedup: printed 13.20, recomputed 13.02" in checked.stderr


SMALL = "gpt2_small_1n8g_bs4_zero"


def small_log(tmp_path, name, *settings):
    """A log of the small GPT, 239 samples/s on 8 GPUs with batch size 4, with these settings before its rows."""
    rows = [f"step: {n}0, loss: 9.{n}, throughput: 239.0 160000000{n}.0" for n in range(1, 10)]
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text("\n".join([*settings, *rows]) + "\n")
    return from_logs(tmp_path, CATALOGUE).sources[0].cases


SETTINGS = ("num_nodes = 1", "gpu_num_per_node = 8", "batch_size_per_device = 4")


@pytest.mark.parametrize(("stated", "sharded"), [("on", 1), ("True", 1), ("off", 0), ("False", 0)])
def test_a_log_of_the_small_gpt_states_whether_its_optimizer_is_sharded(tmp_path, stated, sharded):
    found = small_log(tmp_path, "a.log", *SETTINGS, f"non_distributed_optimizer = {stated}")
    assert found == (f"{SMALL}{sharded}",)


@pytest.mark.parametrize(("name", "sharded"), [("1n8g_4bs_on/a.log", 1), ("1n8g_bs4_off/a.log", 0)])
def test_its_path_may_say_it_in_its_place(tmp_path, name, sharded):
    assert small_log(tmp_path, name) == (f"{SMALL}{sharded}",)
    assert small_log(tmp_path, name, *SETTINGS) == (f"{SMALL}{sharded}",), "beside what the log states"


def test_two_settings_are_too_few_to_know_a_log_by(tmp_path):
    found = small_log(tmp_path, "2n8g_4bs_on/a.log", *SETTINGS[:2])
    assert found == ("gpt2_small_2n8g_bs4_zero1",), "the path says it all"


def test_other_generations_do_not_state_sharding(tmp_path):
    log = "num_nodes = 2\ngpu_num_per_node = 8\nbatch_size_per_device = 128\nnon_distributed_optimizer = on\n"
    stamped(tmp_path, "a.log", 5906.6)
    (tmp_path / "a.log").write_text(log + (tmp_path / "a.log").read_text().split("\n", 3)[3])
    assert by_name(tmp_path)["a.log"].cases == ("resnet50_0821_2n8g_bs128",)


def test_a_path_adds_nothing_to_a_log_that_states_its_layout(tmp_path):
    name = "gpt_2D_PP_2x4x4_512_2304x24_E.log"
    (tmp_path / "1n1g_bs7").mkdir()
    shutil.copy(SAMPLES / name, tmp_path / "1n1g_bs7" / "other.log")
    assert by_name(tmp_path)["other.log"].cases == ("2D_PP_2x4x4_512_2304x24",)


def test_of_several_cases_the_nearest_is_compared(tmp_path):
    header = "| batches | micro_batches | samples | throughput | latency | loss |\n"
    name = "pretrain_gpt_1n8d_dp1_mp8_pp1_mbz16_gbz16_s2048_l16_h1536_nh16.log"
    for rate, nearest in ((24.83, "24.83"), (24.92, "24.92")):
        rows = "".join(f"| {n}0 | {n}0 | {n}60 | {rate} | {16 / rate} | 9.0 |\n" for n in range(1, 11))
        (tmp_path / name).write_text("Training...\n" + header + rows)
        source = by_name(tmp_path)[name]
        assert len(source.cases) == 2 and str(source.compared[0].published) == nearest and source.compared[0].agrees


def test_lines_name_cases_run_and_what_was_compared(tmp_path):
    case = CATALOGUE.case("resnet50_0821_2n8g_bs128")
    stamped(tmp_path, "a.log", case.published.repeats[2])
    (tmp_path / "b.log").write_text("nothing\n")
    first, second = from_logs(tmp_path, CATALOGUE).lines()
    shown = case.published.repeats[2]
    assert first == f"a.log: {case.name} run 3: samples/s {shown} (published {shown})"
    assert second.startswith("b.log: no case: holds no whole row")
    (sample,) = [line for line in from_logs(SAMPLES, CATALOGUE).lines() if "2D_PP_2x4x4" in line]
    assert sample.startswith("gpt_2D_PP_2x4x4_512_2304x24_E.log: 2D_PP_2x4x4_512_2304x24: samples/s")


def test_the_first_three_files_that_are_no_logs_are_named(tmp_path):
    for number in range(1, 5):
        (tmp_path / f"{number}.txt").write_text("nothing\n")
    with pytest.raises(NoLogs, match=r"none of 4 files") as caught:
        from_logs(tmp_path, CATALOGUE)
    assert [f"{number}.txt" in str(caught.value) for number in range(1, 5)] == [True, True, True, False]
