"""What is comparable, which verdict follows, and the exit status that follows it."""

import json
import re

import jsonschema
import pytest

from repro.analysis.comparability import INSTALLABLE_ONEFLOW
from repro.analysis.process_info import readable, transports
from repro.analysis.ratio import SEQUENTIAL, Ratio, published_ratio, ratio, repeated_ratio
from repro.analysis.results import summarise
from repro.analysis.verdict import judge, outcome, tolerance
from repro.cli.settings import MOST
from repro.planning.program_data import with_data
from repro.published.cases import load_catalogue
from repro.published.deviations import deviations_of
from repro.report.run.page import render
from repro.runs.plan import Plan
from repro.runs.record import read_json, write_json
from repro.utils.i18n import catalogue
from repro.utils.sequential import Look, error
from repro.utils.stats import ORDER_STATISTICS, Interval, TooFew, median_interval
from tests.support.pages import table
from tests.support.paths import ROOT
from tests.support.synthetic import (
    CODE,
    GPU,
    NCCL_LINE,
    SIX,
    VERSIONS,
    add_attempt,
    edit_starts,
    environment,
    published_run,
)

SCHEMA = json.loads((ROOT / "repro/data/verdicts.schema.json").read_text())
VALIDATOR = jsonschema.validators.validator_for(SCHEMA)(SCHEMA)
VALIDATOR.check_schema(SCHEMA)
"""Made once: `jsonschema.validate` would check the schema itself with each judgement."""
CASES = load_catalogue()
SINGLE, EIGHT, TWO_NODES = "DP_1x1x1_2_1536x16", "DP_8x1x1_16_1536x16", "DP_16x1x1_32_1536x16"


def judged(run, given=None):
    """The judgement of a run, after its JSON was checked against the schema."""
    plan, attempts = run.description().plan, run.attempts()
    found = judge(run, plan, attempts, summarise(plan, attempts), given)
    VALIDATOR.validate(found.as_json())
    return found


def only(run, given=None):
    """The verdict of a run of one case."""
    (verdict,) = judged(run, given).verdicts
    return verdict


def aspects(verdict, kind=None):
    return [reason.aspect for reason in verdict.reasons if kind in (None, reason.kind)]


def rewrite(run, change):
    """Change a run's description."""
    description = read_json(run.folder / "run.json")
    change(description)
    write_json(run.folder / "run.json", description)


# Comparable cases


def test_the_published_cluster_is_comparable(tmp_path):
    run = published_run(tmp_path, [SINGLE, EIGHT])
    found = judged(run)
    assert [(v.case, v.comparable, v.outcome, v.reasons) for v in found.verdicts] == [
        (SINGLE, True, "reproduced", ()),
        (EIGHT, True, "reproduced", ()),
    ]
    assert found.status == 0
    assert "2 reproduced" in found.summary()


@pytest.mark.parametrize(
    ("factor", "expected", "status"),
    [
        (1.000, "reproduced", 0),
        (1.009, "reproduced", 0),
        (0.991, "reproduced", 0),
        (1.050, "faster", 0),
        (0.950, "slower", 1),
        (0.989, "inconclusive", 1),
        (1.011, "inconclusive", 1),
    ],
)
def test_the_interval_decides(tmp_path, factor, expected, status):
    run = published_run(tmp_path, [EIGHT], [factor * r for r in (1, 1.0008, 0.9992, 1.0004, 0.9996, 1.0002)])
    found = judged(run)
    assert found.verdicts[0].outcome == expected
    assert found.status == status
    assert found.verdicts[0].ratio.value == pytest.approx(factor, rel=1e-3)


def test_repeats_that_scatter_are_inconclusive(tmp_path):
    assert only(published_run(tmp_path, [EIGHT], (1.0, 1.06, 0.94, 1.0, 1.0, 1.0))).outcome == "inconclusive"


def test_one_repeat_is_too_few_and_says_so(tmp_path):
    found = judged(published_run(tmp_path, [EIGHT], (1.0,)))
    assert found.verdicts[0].outcome == "inconclusive"
    assert isinstance(found.verdicts[0].ratio.interval, TooFew)
    assert found.verdicts[0].as_json()["ratio"] == {"value": 1.0, "interval": None, "samples": [1], "needed": 6}
    assert "too few samples: 1, where 6 are needed" in found.summary()
    assert found.status == 1


@pytest.mark.parametrize(("repeats", "confidence"), [(2, "50.0%"), (3, "75.0%"), (5, "93.8%")])
def test_an_interval_of_too_little_confidence_is_shown_and_decides_nothing(tmp_path, repeats, confidence):
    found = judged(published_run(tmp_path, [EIGHT], SIX[:repeats]))
    assert found.verdicts[0].outcome == "inconclusive" and found.verdicts[0].ratio.interval
    assert f"the repeats give a confidence of {confidence} only" in found.summary()
    assert found.false_verdicts == 0, "nothing was decided"


@pytest.mark.parametrize(
    ("repeats", "outcome"), [(2, "inconclusive"), (5, "inconclusive"), (6, "reproduced"), (9, "reproduced")]
)
def test_equal_repeats_decide_what_as_many_unequal_ones_do(tmp_path, repeats, outcome):
    """The coverage of order statistics holds for any distribution; the interval is as wide as the figure's rounding."""
    found = judged(published_run(tmp_path, [EIGHT], [1.0] * repeats)).verdicts[0]
    assert found.outcome == outcome
    assert found.ratio.interval.low < 1 < found.ratio.interval.high


def test_seven_repeats_are_compared_with_the_seven_published_ones(tmp_path):
    many = (1.0, 1.001, 0.999, 1.002, 0.998, 1.003, 0.997)
    verdict = only(published_run(tmp_path, ["bert_1n8g_bs96"], many))
    assert verdict.outcome == "reproduced"
    assert (verdict.ratio.interval.samples, verdict.ratio.interval.method) == ((7, 7), ORDER_STATISTICS)
    assert verdict.ratio.interval.high == pytest.approx(1.003 * 1158.5 / (1157.3 - 0.05))


def test_a_published_figure_is_known_to_half_a_unit_of_its_last_digit(tmp_path):
    """1.68 is anything from 1.675 to 1.685: repeats without spread cannot tell more."""
    found = only(published_run(tmp_path, ["MP_1x32x1_16_3072x32"], [1 + step * 1e-9 for step in range(6)]))
    interval = published_ratio([1.68, 1.68 + 1e-9] * 3, [1.68], 0.005).interval
    assert (interval.low, interval.high) == pytest.approx((1.68 / 1.685, 1.68 / 1.675))
    assert "hardware.gpu_model" in aspects(found), "four nodes without their GPUs' names"


def test_the_expected_number_of_false_verdicts_is_said(tmp_path):
    names = [SINGLE, EIGHT, "2D_8x1x1*"]
    run = published_run(tmp_path, names)
    found = judged(run)
    assert [verdict.outcome for verdict in found.verdicts] == ["reproduced"] * 3
    assert found.false_verdicts == pytest.approx(3 * 0.03125)
    render(run)
    english, chinese = ((run.folder / f"report.{language}.md").read_text() for language in ("en", "zh"))
    assert "without correction for judging several cases. Of 3 verdicts" in english
    assert "at most 0.09 are expected to be wrong by chance" in english and "至多为 0.09" in chinese
    assert "(96.8%)" in english and "(96.8%)" in chinese


def test_one_slow_case_among_good_ones_is_named(tmp_path):
    run = published_run(tmp_path, [SINGLE, EIGHT], scale=lambda case: 0.9 if case.name == EIGHT else 1.0)
    found = judged(run)
    assert [verdict.outcome for verdict in found.verdicts] == ["reproduced", "slower"]
    assert found.status == 1
    assert f"{EIGHT} (slower)" in found.summary() and SINGLE not in found.summary()


def test_the_remarks_name_what_nobody_can_avoid(tmp_path):
    run = published_run(tmp_path, [EIGHT], env=environment({"driver_version": "470.57.02"}, git_changed_files=3))
    verdict = only(run)
    assert verdict.outcome == "reproduced"
    found = {remark.aspect: (remark.expected, remark.measured) for remark in verdict.remarks}
    deviating = {aspect: found.pop(aspect)[1].split(", ") for aspect in ("deviations:speed", "deviations:memory")}
    (unit,) = run.description().plan.units
    assert deviating == {
        f"deviations:{what}": [each.id for each in deviations_of(unit.report, unit.config, what)]
        for what in ("speed", "memory")
    }
    assert found == {
        "stack.oneflow": ("0.3.5+cu112.git.8b222ee", "0.8.0+cu102"),
        "driver": ("440.33.01", "470.57.02"),
        "input": ("OpenWebText sample as Megatron tokens, split 949, 50, 1", "synthetic"),
        "code": ("0123456789ab", "3"),
        "published_stack": ("10.2", "cu112"),
    }


def test_a_stand_in_for_the_data_is_a_remark_and_no_obstacle(tmp_path):
    run = published_run(tmp_path, [EIGHT])
    description = json.loads((run.folder / "run.json").read_text())
    description["plan"] = with_data(Plan.from_json(description["plan"])).as_json()
    (run.folder / "run.json").write_text(json.dumps(description))
    verdict = only(run)
    assert verdict.outcome == "reproduced"
    remark = next(each for each in verdict.remarks if each.aspect == "input")
    assert remark.measured == "stand-in"
    assert "here stand-in data of the same format" in remark.text()


def test_the_release_that_stands_for_the_published_one_is_the_locked_one():
    assert re.search(rf"^oneflow=={re.escape(INSTALLABLE_ONEFLOW)}\b", (ROOT / "docker/trainer.lock").read_text(), re.M)


# Tolerance


def test_tolerance_is_the_noise_of_the_report_or_of_its_model():
    bert = tolerance(CASES.case("bert_1n8g_bs96"), CASES)
    assert (bert.basis, bert.noise) == ("report", pytest.approx(0.00447, rel=0.01))
    assert bert.value == pytest.approx(3 * bert.noise) and len(bert.estimated_on) == 15
    resnet = tolerance(CASES.case("resnet50_0808_1n8g_bs128"), CASES)
    assert (resnet.basis, resnet.noise) == ("model", pytest.approx(0.00835, rel=0.01))
    assert all(name.startswith("resnet50_0821") for name in resnet.estimated_on)
    assert tolerance(CASES.case("gpt2_small_1n8g_bs1_zero1"), CASES).basis == "model"


def test_gpts_tolerance_widens_where_nothing_was_published_twice():
    """Two configurations of 8 GPUs on one node stand twice in the report; nothing larger and no pipeline does."""
    here = tolerance(CASES.case(EIGHT), CASES)
    assert (here.basis, here.noise) == ("report", pytest.approx(0.00362, rel=0.01))
    assert here.estimated_on == (EIGHT, "2D_8x1x1_16_1536x16", "MP_1x8x1_16_1536x16", "2D_1x8x1_16_1536x16")
    for name in (TWO_NODES, "MP_1x32x1_16_3072x32", "DP_PP_8x1x4_512_1536x16"):
        elsewhere = tolerance(CASES.case(name), CASES)
        assert (elsewhere.basis, elsewhere.noise) == ("all", pytest.approx(0.00835, rel=0.01))
        assert elsewhere.value > 2 * here.value


def test_the_report_says_what_tolerances_were_estimated_on(tmp_path):
    run = published_run(tmp_path, [EIGHT])
    render(run)
    english, chinese = ((run.folder / f"report.{language}.md").read_text() for language in ("en", "zh"))
    assert "1.09%: published noise of the same report, estimated on DP_8x1x1_16_1536x16, 2D_8x1x1_16_1536x16" in english
    assert "1.09%：同一报告已发布数据的噪声，由 DP_8x1x1_16_1536x16" in chinese


def test_a_given_tolerance_replaces_every_other_and_is_named_in_the_outcome(tmp_path):
    run = published_run(tmp_path, [SINGLE, EIGHT], [0.96 * each for each in SIX])
    assert {verdict.outcome for verdict in judged(run).verdicts} == {"slower"}
    wide = judged(run, 0.05)
    assert {verdict.outcome for verdict in wide.verdicts} == {"reproduced"}
    assert {each.tolerance for each in (*wide.comparisons, *wide.orders)} == {0.05}
    assert wide.as_json()["tolerance_given"] == 0.05
    assert "2 reproduced within the given tolerance of 0.05" in wide.summary()
    render(run, 0.05)
    english, chinese = ((run.folder / f"report.{language}.md").read_text() for language in ("en", "zh"))
    assert f"| {EIGHT} | reproduced, by TOLERANCE=5% |" in english
    assert f"| {EIGHT} | 已复现（TOLERANCE=5%） |" in chinese


def test_without_any_tolerance_whatever_is_not_equal_is_faster_or_slower(task, tmp_path):
    published_run(tmp_path / "runs", [EIGHT], [0.999, 0.9991, 0.9992, 0.9993, 0.9994, 0.9995])
    assert task("report", TOLERANCE=0).returncode == 0
    written = json.loads((tmp_path / "runs" / "run" / "verdicts.json").read_text())
    assert written["tolerance_given"] == 0
    assert {verdict["outcome"] for verdict in written["verdicts"]} == {"slower"}
    assert "slower, by TOLERANCE=0% |" in (tmp_path / "runs" / "run" / "report.en.md").read_text()


def test_a_tolerance_cannot_be_bought(tmp_path):
    run = published_run(tmp_path, [EIGHT], [0.8 * each for each in SIX])
    assert only(run, MOST["TOLERANCE"] / 100).outcome == "slower"


# Soundness


def change_attempts(run, change):
    """Rewrite what a run recorded of its attempts."""
    lines = [json.loads(line) for line in run.attempts_file.read_text().splitlines()]
    run.attempts_file.write_text("".join(json.dumps({**line, **change(line)}) + "\n" for line in lines))


UNSOUND = [
    ("code", "differs", lambda line: {"code": {**CODE, "changed": ["repro/trainers/train.py"]}}),
    ("code", "differs", lambda line: {"code": {**CODE, "sha256": str(line["repeat"]) * 64}}),
    ("code", "differs", lambda line: {"code": {**CODE, "replaced": "python3 fast.py"}}),
    ("code", "missing", lambda line: {"code": {**CODE, "changed": None}}),
    ("loss", "differs", lambda line: {"losses": [10.0] * 6, "last_losses": [10.0] * 5}),
    ("loss", "differs", lambda line: {"losses": [9.0, 9.5, 10.0, 10.5], "last_losses": [9.0, 9.5, 10.0, 10.5]}),
    ("loss", "differs", lambda line: {"losses": [10.0] * 10, "last_losses": [10.5] * 5} if line["repeat"] == 4 else {}),
    ("loss", "missing", lambda line: {"losses": [], "last_losses": []}),
]


@pytest.mark.parametrize(("aspect", "kind", "change"), UNSOUND)
def test_what_is_not_sound_gets_no_verdict_and_does_not_hold(tmp_path, aspect, kind, change):
    run = published_run(tmp_path, [EIGHT])
    change_attempts(run, change)
    found = judged(run)
    verdict = found.verdicts[0]
    assert (verdict.outcome, verdict.comparable, found.status) == ("none", True, 1)
    assert [(reason.aspect, reason.kind) for reason in verdict.reasons] == [(aspect, kind)]
    assert f"{EIGHT} ({verdict.reasons[0].text()})" in found.summary()


def test_a_loss_may_rise_between_rows_if_it_falls_on_the_whole(tmp_path):
    run = published_run(tmp_path, [EIGHT])
    change_attempts(run, lambda line: {"losses": [10.0, 10.1, 9.8, 9.9], "last_losses": [10.0, 10.1, 9.8, 9.9]})
    assert only(run).outcome == "reproduced"


@pytest.mark.parametrize(("changed", "aspects_expected"), [(0, []), (2, ["code"]), (None, ["code"])])
def test_runs_that_did_not_record_their_code_need_an_unchanged_checkout(tmp_path, changed, aspects_expected):
    run = published_run(tmp_path, [EIGHT], env=environment(git_changed_files=changed))
    change_attempts(run, lambda line: {"code": None})
    assert aspects(only(run)) == aspects_expected


@pytest.mark.parametrize("status", ["failed", "interrupted"])
def test_an_attempt_that_was_left_out_forbids_a_verdict(tmp_path, status):
    """Whoever may stop the slow repeats, or let them fail, chooses the median."""
    run = published_run(tmp_path, [EIGHT])
    add_attempt(run, CASES.case(EIGHT), 6, status=status)
    assert only(run).outcome == "reproduced", "it had not begun to train"
    add_attempt(run, CASES.case(EIGHT), 6, status=status, losses=[10.0, 9.9])
    found = judged(run)
    assert aspects(found.verdicts[0]) == ["repeats"] and found.status == 1
    assert "1 of 8 attempts ended after their first row without a figure" in found.summary()


# The stopping rule


LOOKS = (Look(6, 1), Look(12, 2))


def test_a_case_that_was_stopped_is_complete_and_has_the_confidence_of_all_looks(tmp_path):
    run = published_run(tmp_path, [EIGHT])
    rewrite(run, lambda description: description["plan"].update(repeats=12, looks=[vars(look) for look in LOOKS]))
    assert judged(run).status == 1, "6 of 12 repeats"
    change_attempts(run, lambda line: {"enough": "decided" if line["repeat"] == 6 else None})
    found = judged(run)
    assert (found.status, found.verdicts[0].planned) == (0, 6)
    assert found.verdicts[0].ratio.interval.method == SEQUENTIAL
    assert found.verdicts[0].ratio.interval.confidence == 1 - error(LOOKS)
    render(run)
    english, chinese = ((run.folder / f"report.{language}.md").read_text() for language in ("en", "zh"))
    assert "after 6, 12 repeats, with 0, 1 values trimmed" in english and "重复 6、12 次之后" in chinese
    assert "| 6/6 |" in english
    assert "| none: repeats are independent | 0 | 3.4% |" in english and "if repeats are independent." in english
    assert "The correlation of a repeat with the next one of the same case is −" in english
    assert "(measured)" in english and "相邻两次重复的相关系数" in chinese


# Not comparable

NOT_COMPARABLE = [
    (
        "model",
        {"env": environment({"name": "NVIDIA H200", "memory.total": "143771"})},
        ["hardware.gpu_model", "hardware.gpu_memory"],
    ),
    ("memory", {"env": environment({"memory.total": "32510"})}, ["hardware.gpu_memory"]),
    ("pcie", {"env": environment({"name": "Tesla V100-PCIE-16GB"})}, ["hardware.gpu_model"]),
    ("other host", {"env": environment(host="login")}, ["hardware.gpu_model", "hardware.gpu_memory"]),
]


@pytest.mark.parametrize(("name", "options", "expected"), NOT_COMPARABLE)
def test_other_gpus_are_not_comparable(tmp_path, name, options, expected):
    found = judged(published_run(tmp_path, [EIGHT], **options))
    assert aspects(found.verdicts[0]) == expected
    assert (found.verdicts[0].comparable, found.verdicts[0].outcome, found.verdicts[0].ratio) == (False, "none", None)
    assert found.status == 3


def test_one_other_gpu_among_eight_is_enough(tmp_path):
    env = environment()
    env["gpus"][5] = {**GPU, "name": "Tesla V100-SXM3-32GB"}
    assert aspects(only(published_run(tmp_path, [EIGHT], env=env))) == ["hardware.gpu_model"]


@pytest.mark.parametrize(
    ("version", "value", "expected"),
    [
        ("oneflow", "0.9.0", "stack.oneflow"),
        ("cuda", "11.2", "stack.cuda"),
        ("cudnn", 8201, "stack.cudnn"),
        ("nccl", 21210, "stack.nccl"),
        ("nccl", "2.12.10+cuda10.2", "stack.nccl"),
    ],
)
def test_another_stack_is_not_comparable(tmp_path, version, value, expected):
    run = published_run(tmp_path, [EIGHT])
    edit_starts(run, lambda start: {**start, "versions": {**start["versions"], version: value}}, pattern="3")
    verdict = only(run)
    assert aspects(verdict, "differs") == [expected] and verdict.outcome == "none"
    assert readable({version: value})[version] in verdict.reasons[0].text()


@pytest.mark.parametrize("version", ["oneflow", "cuda", "cudnn", "nccl"])
def test_a_version_that_nobody_reported_counts_against(tmp_path, version):
    run = published_run(tmp_path, [EIGHT])
    edit_starts(run, lambda start: {**start, "versions": {k: v for k, v in start["versions"].items() if k != version}})
    assert aspects(only(run), "missing") == [f"stack.{version}"]


def test_numbers_that_libraries_tell_are_the_published_versions(tmp_path):
    run = published_run(tmp_path, [EIGHT])
    numbers = {"nccl": 2703, "cudnn": 7605, "cuda": 10020}
    edit_starts(run, lambda start: {**start, "versions": {**start["versions"], **numbers}})
    assert only(run).outcome == "reproduced"


def test_libraries_tell_their_versions_on_two_scales():
    assert readable({"nccl": 2708, "cudnn": 7605, "cuda": 10020}) == {"nccl": "2.7.8", "cudnn": "7.6.5", "cuda": "10.2"}
    assert readable({"nccl": 22809, "cudnn": 91900}) == {"nccl": "2.28.9", "cudnn": "9.19.0"}
    assert readable({"nccl": 21210, "python": "3.10.4"}) == {"nccl": "2.12.10", "python": "3.10.4"}


def test_nccl_does_not_matter_to_one_gpu(tmp_path):
    run = published_run(tmp_path, [SINGLE])
    edit_starts(run, lambda start: {**start, "versions": {**VERSIONS, "nccl": "2.18.1"}})
    assert only(run).outcome == "reproduced"


def test_precision_device_and_configuration_are_compared_with_the_case(tmp_path):
    run = published_run(tmp_path, [EIGHT])

    def change(description):
        config = description["plan"]["units"][0]["config"]
        config |= {"precision": "fp32", "device": "cpu"}
        config["shape"] |= {"layers": 2}
        description["plan"]["units"][0]["rule"]["rows"] = 1

    rewrite(run, change)
    found = judged(run)
    assert aspects(found.verdicts[0]) == [
        "hardware.device",
        "precision",
        "configuration:shape",
        "configuration:rule",
    ]
    assert not found.comparisons, "another model is compared in nothing"


def test_the_tuned_program_never_decides_a_verdict(tmp_path):
    run = published_run(tmp_path, [SINGLE], programs=("published", "tuned"))
    found = judged(run)
    published, tuned = found.verdicts
    assert (published.outcome, published.comparable) == ("reproduced", True)
    assert (tuned.unit, tuned.outcome, tuned.comparable) == (f"{SINGLE}.tuned", "none", False)
    (reason,) = tuned.reasons
    assert (reason.aspect, reason.expected, reason.measured) == ("program", "published", "tuned")
    assert found.status == 0 and found.short_of == []
    assert {each.case for each in found.comparisons} <= {SINGLE} and len(found.comparisons) <= 1
    for language, text in (("en", "never gets a verdict"), ("zh", "不参与判定")):
        assert text in reason.text(catalogue(language).gettext)
    alone = judged(published_run(tmp_path, [SINGLE], programs=("tuned",), label="tuned"))
    assert alone.status == 3 and "never gets a verdict" in alone.summary()


def test_the_gain_of_tuning_is_a_ratio_with_an_interval(tmp_path):
    run = published_run(tmp_path, [SINGLE], programs=("published", "tuned"))
    render(run)
    for language, title in (("en", "Gain of the tuned program"), ("zh", "调优程序的提升")):
        (row,) = table((run.folder / f"report.{language}.md").read_text(), title)
        values = list(row.values())
        assert values[0] == SINGLE and values[3] == values[4] == "1.050" and float(values[5].split(" … ")[0]) < 1.05


def test_ranks_on_the_cpu_are_seen_in_what_they_report(tmp_path):
    run = published_run(tmp_path, [EIGHT])
    edit_starts(run, lambda start: {**start, "device": "cpu"}, pattern="7")
    assert aspects(only(run)) == ["hardware.device"]


def test_too_few_nodes_or_ranks(tmp_path):
    run = published_run(tmp_path, [TWO_NODES])
    edit_starts(run, lambda start: {**start, "host": "node1"})
    assert aspects(only(run)) == ["hardware.nodes"]
    edit_starts(run, lambda start: None, pattern="9")
    assert aspects(only(run)) == ["hardware.nodes", "hardware.gpu_count"]


def test_ranks_that_name_their_gpus_make_several_nodes_comparable(tmp_path):
    run = published_run(tmp_path, [TWO_NODES])
    assert aspects(only(run), "missing") == ["hardware.gpu_model", "hardware.gpu_memory"]
    edit_starts(run, lambda start: {**start, "gpu": GPU["name"], "gpu_memory_mib": 16160})
    assert only(run).outcome == "reproduced"


@pytest.mark.parametrize(
    ("seen", "kind"),
    [
        (["P2P/IPC", "NET/Socket/0"], "differs"),
        (["P2P/IPC"], "differs"),
        (["NET/IB/0"], "differs"),
        (["direct shared memory", "NET/IB/0"], "differs"),
        ([], "missing"),
        (["P2P/IPC", "NET/IB/0", "NET/Socket/1"], "differs"),
        (["P2P/IPC", "NET/IB/0"], None),
        (["P2P/IPC/read", "SHM/direct", "NET/IB/1/GDRDMA"], None),
    ],
)
def test_transport_between_nodes(tmp_path, seen, kind):
    run = published_run(tmp_path, [TWO_NODES])
    edit_starts(run, lambda start: {**start, "gpu": GPU["name"], "gpu_memory_mib": 16160})
    for log in run.folder.rglob("launcher.log"):
        log.write_text("".join(NCCL_LINE.format(each) for each in seen))
    verdict = only(run)
    assert [(reason.aspect, reason.kind) for reason in verdict.reasons] == ([("transport", kind)] if kind else [])


@pytest.mark.parametrize(
    ("hca", "message"),
    [
        (
            "mlx5_0",
            "transport between GPUs: the inventory asks for InfiniBand (mlx5_0), and NCCL's log says NET/Socket: "
            "the environment is not as described",
        ),
        ("", "transport between GPUs: published NET/IB, P2P, here NET/Socket, P2P"),
    ],
)
def test_sockets_where_the_inventory_asks_for_infiniband(tmp_path, hca, message):
    env = environment(cluster={"hca": hca, "hosts": ["node1", "node2"]})
    run = published_run(tmp_path, [TWO_NODES], env=env)
    assert only(run).outcome == "reproduced", "the GPUs of all nodes are known from the inventory's nodes"
    for log in run.folder.rglob("launcher.log"):
        log.write_text("".join(NCCL_LINE.format(each) for each in ("P2P/IPC", "NET/Socket/0")))
    assert [reason.text() for reason in only(run).reasons] == [message]


def test_pipeline_stages_do_not_need_nccl_between_nodes(tmp_path):
    run = published_run(tmp_path, ["DP_PP_8x1x4_512_1536x16"])
    assert "transport" not in aspects(only(run))


def test_transports_are_read_from_any_log(tmp_path):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "nccl.txt").write_text(
        "n1:1:2 [0] NCCL INFO Channel 00/02 : 0[1000] -> 1[2000] [send] via NET/Socket/0\n"
        "n1:1:2 [0] NCCL INFO Ring 00 : 3 -> 0 via direct shared memory\nvia P2P/IPC in other words\n"
    )
    assert transports(tmp_path) == {"NET/Socket", "SHM"}


def test_a_case_of_another_catalogue_gets_no_verdict(tmp_path):
    run = published_run(tmp_path, [EIGHT])
    rewrite(run, lambda description: description["plan"]["units"][0].update(stands_for=["of_another_time"]))
    assert aspects(only(run)) == ["case"]


# Failures and smoke runs


def test_failed_attempts_stand_in_the_verdict(tmp_path):
    run = published_run(tmp_path, [EIGHT])
    add_attempt(run, CASES.case(EIGHT), 1, status="failed")
    add_attempt(run, CASES.case(EIGHT), 2, status="interrupted")
    found = judged(run)
    assert found.verdicts[0].outcome == "reproduced"
    assert found.verdicts[0].as_json()["repeats"] == {"planned": 6, "succeeded": 6, "failed": 1, "interrupted": 1}
    assert found.as_json()["attempts"] == {"failed": 1, "interrupted": 1}
    assert "attempts that failed: 1" in found.summary()


def test_a_repeat_that_never_succeeded_keeps_the_run_from_holding(tmp_path):
    run = published_run(tmp_path, [EIGHT])
    rewrite(run, lambda description: description["plan"].update(repeats=7))
    add_attempt(run, CASES.case(EIGHT), 7, status="failed")
    found = judged(run)
    assert (found.verdicts[0].outcome, found.status) == ("reproduced", 1)
    assert "6 of 7 repeats" in found.summary()


def test_a_case_without_a_success_does_not_hold_on_any_hardware(tmp_path):
    run = published_run(tmp_path, [SINGLE, EIGHT], env=environment({"name": "NVIDIA H200"}))
    lines = [json.loads(line) for line in run.attempts_file.read_text().splitlines()]
    kept = [line for line in lines if line["unit"] != EIGHT]
    run.attempts_file.write_text("".join(json.dumps(line) + "\n" for line in kept))
    add_attempt(run, CASES.case(EIGHT), 1, status="failed")
    found = judged(run)
    assert [(verdict.comparable, verdict.outcome) for verdict in found.verdicts] == [(False, "none"), (None, "none")]
    assert aspects(found.verdicts[1]) == ["measurement"]
    assert found.status == 1 and f"{EIGHT} (no repeat succeeded)" in found.summary()


def test_a_smoke_run_never_gets_a_verdict(tmp_path):
    run = published_run(tmp_path, [SINGLE, EIGHT], (2.0, 2.0, 2.0))
    rewrite(run, lambda description: description["plan"].update(scale="smoke"))
    found = judged(run)
    assert [(each.outcome, each.ratio, aspects(each)) for each in found.verdicts] == [("none", None, ["scale"])] * 2
    assert (found.comparisons, found.orders, found.status) == ((), (), 3)
    assert "smoke" in found.summary()


# What can be compared on any hardware


def test_everything_scaled_alike_agrees_on_other_hardware(tmp_path):
    names = [SINGLE, EIGHT, "2D_2x4x1*", "2D_4x2x1*", "MP_1x8x1*", "gpt2_small_1n8g_bs4*"]
    run = published_run(tmp_path, names, scale=lambda case: 5.4, env=environment({"name": "NVIDIA H200"}))
    found = judged(run)
    assert found.status == 3 and all(verdict.outcome == "none" for verdict in found.verdicts)
    assert all(each.agrees for each in (*found.comparisons, *found.orders))
    assert {each.kind for each in found.comparisons} == {"scaling", "memory", "layout", "sharding", "memory_sharding"}


def comparison(found, kind, case):
    (each,) = [each for each in found.comparisons if (each.kind, each.case) == (kind, case)]
    return each


def test_scaling_is_compared_with_the_published_efficiency(tmp_path):
    run = published_run(tmp_path, [SINGLE, EIGHT], scale=lambda case: 5.0 if case.name == SINGLE else 4.0)
    scaling = comparison(judged(run), "scaling", EIGHT)
    assert scaling.published == pytest.approx(38.28 / 4.92 / 8)
    assert scaling.measured == pytest.approx(0.8 * scaling.published)
    assert scaling.difference == pytest.approx(-0.2) and not scaling.agrees
    assert scaling.repeated.interval.low < scaling.measured < scaling.repeated.interval.high
    assert not comparison(judged(run, 0.04), "scaling", EIGHT).agrees


def test_scaling_from_eight_gpus_where_nothing_smaller_was_published(tmp_path):
    run = published_run(tmp_path, ["gpt2_small_?n8g_bs4_zero1"])
    scaling = comparison(judged(run), "scaling", "gpt2_small_4n8g_bs4_zero1")
    assert scaling.against == "gpt2_small_1n8g_bs4_zero1"
    assert scaling.measured == pytest.approx(742 / 235 / 4)


def test_ratios_between_layouts_and_sharding(tmp_path):
    slow = {"MP_1x8x1_16_1536x16": 0.5, "gpt2_small_1n8g_bs4_zero1": 1.5}
    names = [EIGHT, *slow, "gpt2_small_1n8g_bs4_zero0"]
    found = judged(published_run(tmp_path, names, scale=lambda case: slow.get(case.name, 1.0)))
    layout = comparison(found, "layout", "MP_1x8x1_16_1536x16")
    assert layout.against == EIGHT and not layout.agrees
    assert layout.published == pytest.approx(24.92 / 38.28) and layout.measured == pytest.approx(0.5 * 24.92 / 38.28)
    sharding = comparison(found, "sharding", "gpt2_small_1n8g_bs4_zero1")
    assert sharding.against == "gpt2_small_1n8g_bs4_zero0" and not sharding.agrees
    assert comparison(found, "memory_sharding", "gpt2_small_1n8g_bs4_zero1").published == pytest.approx(9547 / 11301)


def test_memory_that_differs_does_not_agree(tmp_path):
    run = published_run(tmp_path, [SINGLE])
    text = run.attempts_file.read_text()
    run.attempts_file.write_text(text.replace('"memory_mib": 11066', '"memory_mib": 14066'))
    memory = comparison(judged(run), "memory", SINGLE)
    assert (memory.published, memory.measured, memory.agrees) == (11066, 14066, False)


def test_an_order_that_is_swapped_is_named_unless_it_is_noise(tmp_path):
    swap = {"MP_1x8x1_16_1536x16": 1.3}
    names = [EIGHT, "2D_8x1x1*", "2D_4x2x1*", *swap]
    (order,) = judged(published_run(tmp_path, names, scale=lambda case: swap.get(case.name, 1.0))).orders
    assert order.swapped == (("MP_1x8x1_16_1536x16", "2D_4x2x1_16_1536x16"),) and not order.agrees
    swap = {EIGHT: 1.01}
    (order,) = judged(published_run(tmp_path / "noise", names, scale=lambda case: swap.get(case.name, 1.0))).orders
    assert order.measured[0] == EIGHT and order.published[0] == "2D_8x1x1_16_1536x16" and order.agrees
    swap = {"MP_1x8x1_16_1536x16": 29.53 / 24.92}
    (order,) = judged(published_run(tmp_path / "tie", names, scale=lambda case: swap.get(case.name, 1.0))).orders
    assert order.measured[2] == "MP_1x8x1_16_1536x16" and order.agrees, "0.4 % above 29.42 is no order"


# Ratios


def test_ratios_have_the_interval_of_the_median_that_is_their_value():
    few, many = [99.0, 100, 101], [99.0, 99.5, 100, 100.5, 101, 101.5, 102]
    assert ratio(few, 50) == Ratio(2.0, Interval(99 / 50, 101 / 50, 0.75, ORDER_STATISTICS, (3,)))
    assert ratio(few, 50).decisive is None and ratio(many, 50).decisive == median_interval(many).over(50)
    both = repeated_ratio(many, [50.0, 51, 52, 50, 51, 52])
    assert both.interval.samples == (7, 6) and both.decisive.low == 99 / 52
    assert ratio(many, 50).over(2).interval.high == 102 / 50 / 2


def test_a_single_repeat_of_either_gives_no_interval():
    assert not repeated_ratio([200, 201], [100]).interval
    assert not published_ratio([200], [100], 0.5).interval
    assert repeated_ratio([200, 200], [100, 100]).interval.low == 2.0, "two repeats have one, whatever their spread"


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.96, 1.04, "reproduced"),
        (0.95, 1.05, "reproduced"),
        (1.06, 1.2, "faster"),
        (1.04, 1.2, "inconclusive"),
        (0.8, 0.94, "slower"),
        (0.8, 0.96, "inconclusive"),
        (0.5, 2.0, "inconclusive"),
    ],
)
def test_outcomes(low, high, expected):
    assert outcome(Ratio(1.0, Interval(low, high, 0.95, "any", (6,))), 0.05) == expected
    assert outcome(Ratio(1.0, Interval(low, high, 0.9375, "any", (5,))), 0.05) == "inconclusive"


# Report, file and task


def test_the_file_is_deterministic_and_the_report_tells_it_in_both_languages(tmp_path):
    run = published_run(tmp_path, [SINGLE, EIGHT, TWO_NODES])
    add_attempt(run, CASES.case(EIGHT), 1, status="failed")
    render(run)
    first = (run.folder / "verdicts.json").read_bytes()
    render(run)
    assert (run.folder / "verdicts.json").read_bytes() == first
    english, chinese = ((run.folder / f"report.{language}.md").read_text() for language in ("en", "zh"))
    assert f"| {EIGHT} | reproduced |" in english and f"| {EIGHT} | 已复现 |" in chinese
    section = re.compile(r"^## (?:Verdicts|判定)\n.*?(?=^## (?:Compared with|与原报告))", re.M | re.S)
    sections = [section.search(text)[0] for text in (english, chinese)]
    numbers = [re.findall(r"\d+\.\d+", text) for text in sections]
    assert numbers[0] == numbers[1] and len(numbers[0]) > 10
    assert "Failed attempts: 1" in sections[0] and "失败的尝试：1" in sections[1]


def test_a_report_on_derived_cases_alone_says_that_there_is_nothing_to_compare(tmp_path):
    run = published_run(tmp_path, [EIGHT])
    rewrite(run, lambda description: description["plan"]["units"][0].update(stands_for=[]))
    render(run)
    english, chinese = ((run.folder / f"report.{language}.md").read_text() for language in ("en", "zh"))
    assert "No case ran with its published settings" in english and "没有用例按已发布的设置运行" in chinese
    assert "| Verdict |" not in english and "()" not in english


@pytest.mark.parametrize(
    ("ratios", "env", "status"),
    [
        (SIX, environment(), 0),
        ([0.9 * each for each in SIX], environment(), 1),
        ([5 * each for each in SIX], environment({"name": "NVIDIA H200"}), 3),
    ],
)
def test_the_task_exits_by_the_verdicts_only_if_asked(task, tmp_path, ratios, env, status):
    published_run(tmp_path / "runs", [EIGHT], ratios, env=env)
    checked = task("report", CHECK=1)
    assert checked.returncode == status, checked.stderr
    written = json.loads((tmp_path / "runs" / "run" / "verdicts.json").read_text())
    assert written["status"] == status
    if status:
        assert task("report", RUN="run").returncode == 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"TOLERANCE": "wide"}, "TOLERANCE=wide"),
        ({"TOLERANCE": "-1"}, "TOLERANCE=-1"),
        ({"TOLERANCE": "20"}, "TOLERANCE=20: it is a number of per cent from 0 to 5"),
        ({"CHECK": "yes"}, "CHECK=yes"),
        ({"TOLERANCE": "nan"}, "TOLERANCE=nan"),
        ({"RUN": "absent"}, "RUN=absent"),
    ],
)
def test_wrong_settings_are_refused_by_name(refused, tmp_path, settings, message):
    published_run(tmp_path / "runs", [SINGLE], (1.0,))
    assert message in refused("report", **settings)
