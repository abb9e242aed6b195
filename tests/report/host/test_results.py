"""The pages of kept runs and the table in the READMEs: every figure from the runs, and nothing that is not there."""

import gzip
import json
import re
import shutil
import tomllib
from dataclasses import replace

import pytest

from repro.analysis.convergence import Convergence, ConvergenceResult, Goal
from repro.analysis.kernel_trace import Kernel, Profile
from repro.analysis.loss_curves import CurveComparison, Curves, Deviation, Tolerance
from repro.analysis.profiles import ProfileComparison, Profiled, Profiles
from repro.analysis.ratio import Ratio
from repro.planning.loss_curves import ERROR, HARMLESS, LAYOUT
from repro.planning.plan import Unit
from repro.published.cases import load_catalogue
from repro.report.host import page as reproduced_page
from repro.report.host import readme as reproduced_readme
from repro.report.host.correctness import shown
from repro.report.host.keep import keep
from repro.report.host.notes import READING, Reading
from repro.report.host.readme import BEFORE, BEGIN, END, due
from repro.report.host.results import MET, MISSED, OPEN, TARGETS, Host, KeptRun, Target, clocks, hosts, load
from repro.runs.failures import Failure
from repro.runs.files import opened
from repro.runs.manifest import MANIFEST, verify
from repro.runs.record import RecordError, Run
from repro.utils.i18n import LANGUAGES, catalogue
from repro.utils.paths import ROOT
from repro.utils.stats import Interval, TooFew
from tests.report.host.test_keep import preflight
from tests.support.kept import H200, bench_run, throughput

PAGES = {"en": "README.md", "zh": "README.zh.md"}
PUBLISHED_SCALING = "DP_1x1x1_2_1536x16,DP_8x1x1_16_1536x16"
SHARDED = "DP_8x1x1_16_1536x16.as_4x1x1"


def quick(unit) -> float:
    """OneFlow as quick as PyTorch."""
    return throughput(unit) / (1.0 if unit.baseline_of else 0.9)


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory):
    """A host with one run and one preflight, as they are committed."""
    folder = tmp_path_factory.mktemp("tree") / "reports" / "reproduced"
    runs = folder / "h200" / "runs"
    runs.mkdir(parents=True)
    original = bench_run(tmp_path_factory.mktemp("original"))
    keep(original.folder, runs / original.id)
    keep(preflight(tmp_path_factory.mktemp("original") / "preflight-1"), runs / "preflight-1")
    reproduced_page.render("h200", folder)
    return folder


@pytest.fixture
def altered(reproduced, tmp_path):
    """A copy of all that, to change."""
    shutil.copytree(reproduced, tmp_path / "reproduced")
    return tmp_path / "reproduced"


def page(reproduced, language="en") -> str:
    return (reproduced / "h200" / PAGES[language]).read_text(encoding="utf-8")


def table(text: str, title: str) -> list[dict]:
    """The first table under a heading, a dictionary a row."""
    section = text.split(f"## {title}\n")[1].split("\n## ")[0]
    lines = section[section.index("\n|") + 1 :].split("\n\n")[0].splitlines()
    head, _, *rows = [line.strip("|").split("|") for line in lines]
    return [dict(zip(map(str.strip, head), map(str.strip, row), strict=True)) for row in rows]


def test_ratios_are_those_of_the_run(reproduced):
    rows = table(page(reproduced), "Beside PyTorch in the same run")
    assert {(row["Configuration"], row["GPUs"]) for row in rows} == {
        ("DP_1x1x1_2_1536x16", "1"),
        ("DP_8x1x1_16_1536x16.as_2x1x1", "2"),
        (SHARDED, "4"),
    }
    four = next(row for row in rows if row["GPUs"] == "4")
    assert (four["OneFlow (samples/s)"], four["PyTorch (samples/s)"]) == ("352.80", "392.00")
    assert (four["OneFlow / PyTorch"], four["Target"], four["Standing"]) == ("0.900", "≥ 0.85", "met")
    assert (four["Repeats"], four["OneFlow: memory in use (MiB)"]) == ("3", "9000")
    assert re.fullmatch(r"0\.89\d … 0\.90\d", four["95% interval"])


def test_scaling_and_layouts_are_those_of_the_run(reproduced):
    scaled = table(page(reproduced), "Data parallel scaling")
    four = next(row for row in scaled if row["Configuration"] == SHARDED)
    assert (four["Efficiency"], four["Target"], four["Standing"]) == ("98.0%", "≥ 0.97", "met")
    baseline = next(row for row in scaled if row["Configuration"] == f"{SHARDED}.pytorch")
    assert (baseline["Target"], baseline["Standing"]) == ("–", "–"), "a peer has no target"
    one, eight = (case.published.throughput for case in load_catalogue().select(None, PUBLISHED_SCALING))
    assert four["Published on V100s"] == f"{eight / one / 8:.1%} on 8"
    assert baseline["Published on V100s"] == "–", "a peer was not published"
    found = table(page(reproduced), "Layouts")
    assert {row["Layout (data x tensor x pipeline)"] for row in found} == {"2x1x1", "4x1x1", "1x2x1", "1x4x1"}
    for row in found:
        measured, expected = float(row["Throughput (samples/s)"]), float(row["Expected (samples/s)"])
        assert float(row["Measured / expected"]) == pytest.approx(measured / expected, abs=1e-3)


def test_machine_runs_and_preflight_are_told(reproduced):
    text = page(reproduced)
    facts = {row["Item"]: row["Value"] for row in table(text, "Machine")}
    assert facts["GPU"] == "4 x NVIDIA H200"
    assert facts["Driver"] == "580.1"
    assert "1600 MHz at the median of" in facts["SM clock under load"]
    assert "(1500 to 1700), at most 64 °C" in facts["SM clock under load"]
    assert facts["Way between GPUs"] == "P2P"
    (run,) = table(text, "Runs and their commands")
    assert run["Command"] == "`make bench MODEL=gpt FIT=2,4 RUNS=runs`"
    assert run["Failed attempts"] == "1"
    assert "libcublas.so.13.1" in text
    assert "at best 19.5 GB/s of bus bandwidth; the links can do 39.0 GB/s" in text


@pytest.mark.parametrize("language", LANGUAGES)
def test_links_and_figures_are_there(reproduced, language):
    for link in re.findall(r"\]\(([^)]+)\)", page(reproduced, language)):
        assert (reproduced / "h200" / link).exists(), link


def test_both_languages_have_the_same_numbers(reproduced):
    english, chinese = (
        [line for line in page(reproduced, language).splitlines() if line.startswith("| [R1]")] for language in PAGES
    )
    numbers = [[re.findall(r"\d+\.\d+", line) for line in lines] for lines in (english, chinese)]
    assert numbers[0] == numbers[1]
    assert len(english) == len(chinese) > 8


@pytest.mark.parametrize(("language", "reason"), [("en", "iteration 70 is not a number"), ("zh", "70")])
def test_failed_attempts_are_told_with_their_reasons(reproduced, language, reason):
    host = load("h200", reproduced)
    first, *others = host.runs[0].attempts
    failure = Failure("the loss at iteration {iteration} is not a number", {"iteration": 70})
    failed = first | {"status": "failed", "failure": failure.as_json()}
    host = replace(host, runs=(replace(host.runs[0], attempts=[failed, *others]),))
    sections = {section.id: section for section in reproduced_page.build(host, language, []).sections}
    (row,) = cells(sections["failures"])
    assert row[1:3] == [first["unit"], str(first["repeat"])] and reason in row[3]


def test_what_was_not_run_has_no_section(reproduced):
    text = page(reproduced)
    for title in ("Loss curves", "Real data are learned", "Where the GPU's time goes"):
        assert f"## {title}" not in text
    silent = reproduced_page.build(replace(load("h200", reproduced), reading=Reading({})), "en", [])
    assert "How it reads" not in [section.title for section in silent.sections]


def test_the_page_is_what_the_runs_give(reproduced):
    assert reproduced_page.differing("h200", reproduced) == []


def test_what_differs_from_the_runs_is_named(altered):
    readme = altered / "h200" / "README.md"
    readme.write_text(readme.read_text().replace("0.900", "1.000"))
    (altered / "h200" / "figures" / "ratios.zh.svg").unlink()
    (altered / "h200" / "figures" / "more.svg").write_text("")
    assert [path.name for path in reproduced_page.differing("h200", altered)] == [
        "README.md",
        "more.svg",
        "ratios.zh.svg",
    ]


def test_other_measurements_make_another_page(altered):
    run = Run(next((altered / "h200" / "runs").glob("*-published")))
    lines = [json.loads(line) for line in run.attempts_file.read_text().splitlines()]
    for attempt in lines:
        if attempt["unit"] == SHARDED:
            attempt["throughput"] *= 0.9
    run.attempts_file.write_text("".join(json.dumps(each) + "\n" for each in lines))
    with pytest.raises(RecordError, match=r"changed: attempts\.jsonl"):
        load("h200", altered)
    (run.folder / MANIFEST).unlink()
    assert {path.name for path in reproduced_page.differing("h200", altered)} >= {"README.md", "README.zh.md"}
    reproduced_page.render("h200", altered)
    four = next(row for row in table(page(altered), "Beside PyTorch in the same run") if row["GPUs"] == "4")
    assert (four["OneFlow / PyTorch"], four["Standing"]) == ("0.810", "missed")
    assert "OneFlow over PyTorch in the same run: 2 met; 1 missed." in page(altered)


@pytest.mark.parametrize(
    ("low", "high", "standing"), [(1.0, 1.1, MET), (0.9, 0.999, MISSED), (0.99, 1.01, OPEN), (None, None, OPEN)]
)
def test_the_whole_interval_decides(low, high, standing):
    interval = Interval(low, high, 0.95, "", (3, 3)) if low else TooFew((1, 1), 2)
    assert Target("ratio", 1.0).standing(Ratio(1.05, interval)) == standing


def test_a_single_repeat_decides_nothing(tmp_path):
    runs = tmp_path / "reproduced" / "h200" / "runs"
    runs.mkdir(parents=True)
    original = bench_run(tmp_path / "original", repeats=(1.0,), speed=quick, failed=False)
    keep(original.folder, runs / original.id)
    host = load("h200", tmp_path / "reproduced")
    assert {row.standing for row in host.ratios()} == {OPEN}
    assert [row.ratio.value for row in host.ratios()] == pytest.approx([1.0] * 3)


def test_a_host_without_targets_meets_none(reproduced, tmp_path):
    host = load("h200", reproduced, tmp_path)
    assert {row.target for row in (*host.ratios(), *host.efficiencies(), *host.layouts())} == {None}
    document = reproduced_page.build(host, "en", [])
    assert "glance" not in [section.id for section in document.sections]


def test_the_targets_are_whole():
    for file in TARGETS.glob("*.toml"):
        for each in tomllib.loads(file.read_text(encoding="utf-8"))["target"]:
            assert each["of"] in ("ratio", "efficiency", "expectation")
            assert each["at_least"] > 0
            assert each.keys() - {"of", "at_least"} <= {"model", "precision", "gpus", "baseline"}


def test_a_reading_is_shown_as_written_by_hand(altered):
    (altered / "h200" / READING).write_text('en = """\nFirst\nline.\n\nSecond."""\nzh = "第一。"\n')
    host = load("h200", altered)
    section = next(each for each in reproduced_page.build(host, "en", []).sections if each.id == "reading")
    assert [block.text for block in section.blocks[1:]] == ["First line.", "Second."]
    assert "written by hand" in section.blocks[0].text


def test_a_reading_names_runs_by_how_their_ids_begin(reproduced):
    host = load("h200", reproduced)
    (told,) = host.runs
    written = {"zh": f"见 {{{told.run.id[:-1]}}}。"}
    document = reproduced_page.build(replace(host, reading=Reading(written)), "zh", [])
    section = next(each for each in document.sections if each.id == "reading")
    assert section.blocks[1].text == f"见 [R1](runs/{told.run.id}/report.zh.md)。"
    with pytest.raises(RecordError, match="names the run gone, with which 0 kept runs begin"):
        reproduced_page.build(replace(host, reading=Reading({"en": "In {gone}."})), "en", [])


TRIAL = """
[[tried]]
case = "dp2"
gpus = 2
en = "one buffer"
zh = "一个缓冲区"
without_it = 52.8
with_it = 51
stays = false
"""


def test_what_was_tried_by_hand_is_a_table(altered):
    (altered / "h200" / READING).write_text(TRIAL)
    host = load("h200", altered)
    for language, change, no in (("en", "one buffer", "no"), ("zh", "一个缓冲区", "否")):
        section = next(each for each in reproduced_page.build(host, language, []).sections if each.id == "trials")
        (row,) = section.blocks[1].rows
        assert [cell.text for cell in row] == ["dp2", change, "2", "52.8", "51.0", no]


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ('english = "text"', "reading.toml: english: it has a text for each of zh, en"),
        ("en = text", "not TOML"),
        ("en = 1", "reading.toml: en: it has a text"),
        ("tried = 1", "reading.toml: tried: write each as a table"),
        ("tried = [1]", "tried 1: case, en, gpus, stays"),
        (TRIAL.replace("stays", "kept"), "tried 1: kept, stays: each has"),
        (TRIAL.replace("51", "true"), "tried 1: with_it: each has"),
        (TRIAL * 2 + "more = 1", "tried 2: more: each has"),
    ],
)
def test_a_reading_that_is_wrong_is_named(altered, written, message):
    (altered / "h200" / READING).write_text(written)
    with pytest.raises(RecordError, match=message):
        load("h200", altered)


def test_a_reading_in_another_encoding_is_named(altered):
    (altered / "h200" / READING).write_bytes('zh = "第一。"'.encode("gbk"))
    with pytest.raises(RecordError, match=r"reading\.toml: not TOML in UTF-8"):
        load("h200", altered)


def test_clocks_are_of_samples_under_load_also_compressed(altered):
    (told,) = load("h200", altered).runs
    before = clocks([told])
    assert (before.lowest, before.middle, before.highest, before.hottest) == (1500, 1600, 1700, 64)
    good = [each for each in told.attempts if each["status"] == "ok"]
    assert before.samples == 2 * len(good), "what the idle sample and the failed attempt saw does not count"
    for path in told.run.folder.rglob("gpu.csv"):
        packed = path.with_name("gpu.csv.gz")
        packed.write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
        with opened(path) as file:
            assert file.read()
    assert clocks([told]) == before


def told_of(found, tmp_path) -> Host:
    description = {"created": 1.79e9, "command": "make x", "environment": {"gpus": [H200]}}
    told = KeptRun("R1", Run(tmp_path / "run"), description, None, [], [], None, {}, found)
    return Host("h200", tmp_path, (told,), (), (), Reading({}))


def unit(name, role="", model="gpt", **more) -> Unit:
    config = {"layout": {"data": 4, "tensor": 1, "pipeline": 1}, "precision": "fp32", "iterations": 20}
    return Unit(name, model, config, {}, 8, role=role, **more)


def cells(section) -> list[list[str]]:
    return [[cell.text for cell in row] for block in section.blocks if block.kind == "table" for row in block.rows]


def test_curves_are_counted_from_their_comparisons(tmp_path):
    def comparison(name, role, apart):
        return CurveComparison(
            unit(name, role), ((1.0,),), (1.0,), Deviation(apart, apart, apart), Tolerance(1e-4, 0.0)
        )

    curves = Curves(
        (
            comparison("a", LAYOUT, 1e-4),
            comparison("b", LAYOUT, 9e-4),
            comparison("c", HARMLESS, 1e-4),
            comparison("d", ERROR, 1e-1),
        )
    )
    (section,) = shown(catalogue("en").gettext, told_of(curves, tmp_path), "en")
    said = "1 of 2 loss curves agree with their references; 1 of 1 errors made on purpose were seen"
    assert said in section.blocks[0].text
    assert cells(section) == [["gpt", "fp32", "1 / 2", "4", "9.0e-04", "3.0e-04"]]


def test_learning_is_told_in_bits(tmp_path):
    meaning = Failure("1/{divisor} of the entropy of the labels", {"divisor": 2})
    lesson = ConvergenceResult(unit("learn"), Goal(1.3863, meaning), (tuple([0.6931] * 20),), 0.9)
    (section,) = shown(catalogue("en").gettext, told_of(Convergence((lesson,)), tmp_path), "en")
    assert cells(section)[0][-5:] == ["20", "2.000", "1.000", "90.0%", "yes"]


def test_a_profile_names_the_class_that_costs_most(tmp_path):
    def profiled(name, gemm, busy, baseline_of=None):
        profile = Profile(10, busy + 1.0, busy, 3.0, "", (Kernel("volta_sgemm_128x64", 3.0, gemm),), ())
        return Profiled(unit(name, baseline_of=baseline_of), profile)

    found = Profiles((ProfileComparison(profiled("a", 8.0, 9.0), (profiled("a.pytorch", 5.0, 6.0, "a"),)),))
    (section,) = shown(catalogue("en").gettext, told_of(found, tmp_path), "en")
    assert cells(section) == [["a", "pytorch", "10.00", "90.0%", "7.00", "85.7%", "Matrix products (+3.00 ms)"]]


@pytest.fixture
def root(tmp_path):
    for file in PAGES.values():
        shutil.copy(ROOT / file, tmp_path / file)
        text = (tmp_path / file).read_text(encoding="utf-8")
        language = next(key for key, value in PAGES.items() if value == file)
        (tmp_path / file).write_text(due(text, language, ""), encoding="utf-8")
    return tmp_path


def test_the_readme_gets_its_table_and_keeps_the_rest(root, reproduced):
    before = {file: (root / file).read_text(encoding="utf-8") for file in PAGES.values()}
    assert {path.name for path in reproduced_readme.differing(root, reproduced)} == set(PAGES.values())
    reproduced_readme.render(root, reproduced)
    assert reproduced_readme.differing(root, reproduced) == []
    for language, file in PAGES.items():
        text = (root / file).read_text(encoding="utf-8")
        block = text[text.index(BEGIN) : text.index(END)]
        assert text.replace(f"{block}{END}\n\n", "") == before[file]
        assert text.index(END) < text.index(BEFORE[language])
        assert "\nmake bench MODEL=gpt FIT=2,4 RUNS=runs\n" in block
        standing = {"en": "1 met", "zh": "达到 1 行"}[language]
        assert f"| gpt | amp | 4 | 1 | 0.90 | ≥ 0.85 | {standing} |" in block
        assert due(text, language, "") == before[file]
    reproduced_readme.render(root, reproduced)
    assert reproduced_readme.differing(root, reproduced) == []


def test_a_changed_table_is_found_and_replaced_in_its_place(root, reproduced):
    reproduced_readme.render(root, reproduced)
    path = root / "README.md"
    right = path.read_text(encoding="utf-8")
    path.write_text(right.replace("| 0.90 |", "| 1.90 |"), encoding="utf-8")
    assert reproduced_readme.differing(root, reproduced) == [path]
    reproduced_readme.render(root, reproduced)
    assert path.read_text(encoding="utf-8") == right


def test_without_kept_runs_the_readme_has_no_table(root, tmp_path):
    (tmp_path / "none").mkdir()
    assert reproduced_readme.blocks(tmp_path / "none") == {"en": "", "zh": ""}
    assert reproduced_readme.differing(root, tmp_path / "none") == []


def test_a_readme_without_a_place_for_it_is_said():
    with pytest.raises(RecordError, match="neither the markers"):
        due("# Title\n", "en", f"{BEGIN}\nx\n{END}")


def test_nothing_kept_is_said(tmp_path):
    with pytest.raises(RecordError, match="holds no run"):
        load("h200", tmp_path)


def test_the_task_refuses_what_it_does_not_know(task):
    done = task("reproduced", HOST="nowhere")
    assert done.returncode == 2
    assert "holds no run" in done.stderr


def test_the_committed_runs_are_as_recorded():
    for name in hosts():
        for told in load(name).runs:
            assert verify(told.run.folder).lines() == []


def test_the_committed_pages_are_what_the_committed_runs_give():
    assert [path for name in hosts() for path in reproduced_page.differing(name)] == []


def test_the_readmes_are_what_the_committed_runs_give():
    assert reproduced_readme.differing() == []
