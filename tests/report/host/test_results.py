"""What the kept runs of a host give together: comparisons and their goals, clocks, and the table of all results."""

import csv
import shutil
import tomllib
import zipfile
from dataclasses import replace

import pytest

from repro.analysis.ratio import Ratio
from repro.analysis.results import RESULT_COLUMNS
from repro.models.programs import TUNED
from repro.report.host import page
from repro.report.host.keep import keep
from repro.report.host.results import (
    GOALS,
    clocks,
    goals_for,
    goals_of,
    load,
    preflight_tables,
    results_table,
)
from repro.report.host.rows import MET, MISSED, OPEN, RatioGoal, configuration
from repro.runs.digests import entered, hosts, list_of, remove
from repro.runs.manifest import verify
from repro.runs.record import RecordError
from repro.utils.paths import sha256
from repro.utils.stats import Interval, TooFew
from tests.support.bent import chain_again
from tests.support.configs import configured
from tests.support.kept import bench_run, throughput


def quick(unit) -> float:
    """OneFlow as quick as PyTorch."""
    return throughput(unit) / (1.0 if unit.baseline_of else 0.9)


@pytest.mark.parametrize(
    ("low", "high", "status"), [(1.0, 1.1, MET), (0.9, 0.999, MISSED), (0.99, 1.01, OPEN), (None, None, OPEN)]
)
def test_the_whole_interval_decides(low, high, status):
    interval = Interval(low, high, 0.95, "", (3, 3)) if low else TooFew((1, 1), 2)
    assert RatioGoal("ratio", 1.0).status(Ratio(1.05, interval)) == status


@pytest.mark.parametrize(
    ("low", "high", "status"),
    [(0.95, 1.05, MET), (1.2, 1.25, MISSED), (0.8, 0.85, MISSED), (1.05, 1.15, OPEN), (0.8, 1.2, OPEN)],
)
def test_an_expectation_that_is_exceeded_is_not_met(low, high, status):
    goal = RatioGoal("expectation", 0.9, 1.11)
    assert goal.status(Ratio(1.0, Interval(low, high, 0.95, "", (3, 3)))) == status
    assert str(goal) == "0.90–1.11"


def test_every_expectation_goal_has_two_sides():
    files = sorted(GOALS.glob("*.toml"))
    found = [each for file in files for each in tomllib.loads(file.read_text()).get("goal", ())]
    assert [each for each in found if each["of"] == "expectation"]
    assert all("at_most" in each for each in found if each["of"] == "expectation")


def test_a_single_repeat_decides_nothing(tmp_path):
    original = bench_run(tmp_path / "original", repeats=(1.0,), speed=quick, failed=False)
    keep(original.path, tmp_path / "reproduced" / "h200" / "runs" / f"{original.id}.zip")
    host = load("h200", tmp_path / "reproduced")
    assert {row.status for row in host.ratios} == {OPEN}
    assert [row.ratio.value for row in host.ratios] == pytest.approx([1.0] * 3)


def test_a_host_without_goals_meets_none(reproduced, tmp_path):
    host = load("h200", reproduced, tmp_path)
    assert {row.goal for row in (*host.ratios, *host.efficiencies, *host.layouts)} == {None}
    assert "goals" not in {section.id for section in page.build(host, "en", []).sections}


def test_goals_are_those_of_the_files_that_name_the_host(tmp_path):
    for name, named in (("one", '"h200", "h100"'), ("two", '"v100"')):
        text = f'hosts = [{named}]\n[[goal]]\nof = "ratio"\nat_least = 1.0\nmodel = "{name}"\n'
        text += 'by = { en = "we", zh = "我们" }\nwhy = { en = "so", zh = "如此" }\n'
        (tmp_path / f"{name}.toml").write_text(text, encoding="utf-8")
    found = {host: [each.where["model"] for each in goals_for(host, tmp_path)] for host in ("h100", "v100", "a100")}
    assert found == {"h100": ["one"], "v100": ["two"], "a100": []}
    (tmp_path / "two.toml").write_text("hosts = []\n", encoding="utf-8")
    with pytest.raises(RecordError, match=r"two\.toml: hosts: name the hosts"):
        goals_for("h100", tmp_path)


@pytest.mark.parametrize("left_out", ["by", "why"])
def test_a_goal_says_who_set_it_and_why(tmp_path, left_out):
    given = {"by": 'by = { en = "we", zh = "我们" }', "why": 'why = { en = "so", zh = "如此" }'}
    file = tmp_path / "goals.toml"
    head = '[[goal]]\nof = "ratio"\nat_least = 1.0\n'
    file.write_text(head + "\n".join(given.values()), encoding="utf-8")
    (goal,) = goals_of(file)
    assert (goal.by["en"], goal.why["zh"], goal.where) == ("we", "如此", {})
    file.write_text(head + given[{"by": "why", "why": "by"}[left_out]], encoding="utf-8")
    with pytest.raises(RecordError, match=f"goal 1: {left_out}: say in zh and en"):
        goals_of(file)


def test_each_comparison_is_computed_once(reproduced, monkeypatch):
    from repro.report.host import results, run

    calls = []

    def counted(function):
        return lambda *arguments: (calls.append(function.__name__), function(*arguments))[1]

    for module, name in ((run, "judge"), (results, "baseline_relations"), (results, "scaling_relations")):
        monkeypatch.setattr(module, name, counted(getattr(module, name)))
    host = load("h200", reproduced)
    for language in ("en", "zh"):
        page.build(host, language, [])
    page.figure_specs(host)
    assert sorted(calls) == ["baseline_relations", "judge", "scaling_relations"]


def test_the_goals_are_whole():
    for file in GOALS.glob("*.toml"):
        read = tomllib.loads(file.read_text(encoding="utf-8"))
        assert set(read["hosts"]) <= set(hosts()), "a goal that no page is held to is not seen"
        for each in read["goal"]:
            assert each["of"] in ("ratio", "efficiency", "peak", "expectation")
            assert each["at_least"] > 0
            assert each.keys() - {"of", "at_least", "at_most", "by", "why"} <= {
                "model",
                "precision",
                "program",
                "gpus",
                "shape",
                "baseline",
            }


@pytest.mark.parametrize(
    ("model", "precision", "baseline", "least"),
    [
        ("gpt", "fp32", "pytorch", 1.0),
        ("gpt", "fp32", "pytorch-tf32", None),
        ("bert", "tf32", "pytorch-tf32", 1.0),
        ("bert", "tf32", "pytorch", None),
        ("gpt", "amp", "pytorch", 1.0),
        ("resnet50", "amp", "pytorch", 1.0),
        ("resnet50", "amp", "pytorch-unfused", None),
    ],
)
def test_each_precision_is_compared_with_the_baseline_in_it(host, model, precision, baseline, least):
    """A unit in TF32 says fp32 to its trainer, and none of the goals for fp32 applies to it."""
    aimed = replace(host, goals=goals_of(GOALS / "hopper.toml"))
    row = host.ratios[0]
    unit = configured(row.unit, model=model, program=TUNED, precision=precision.replace("tf32", "fp32"))
    result = replace(row.results[-1], unit=replace(unit, tf32=precision == "tf32"))
    measurement = replace(row.measurements[-1], result=result)
    goal = aimed._aimed(replace(row, measurements=(measurement,)), "ratio", baseline=baseline).goal
    assert (goal.at_least if goal else None) == least
    assert configuration(result.unit) != configuration(replace(result.unit, tf32=not result.unit.tf32))


def test_a_ratio_is_expected_of_the_tuned_program_alone():
    ratios = [each for each in goals_of(GOALS / "hopper.toml") if each.of == "ratio"]
    assert ratios and {each.where["program"] for each in ratios} == {TUNED}


def test_clocks_are_of_samples_under_load(host):
    (kept,) = host.runs
    found = clocks([kept])
    assert (found.lowest, found.middle, found.highest, found.hottest) == (1500, 1600, 1700, 64)
    good = [each for each in kept.attempts if each.status == "ok"]
    assert found.samples == 2 * len(good), "what the idle sample and the failed attempt saw does not count"
    assert clocks([replace(kept, attempts=[])]) is None


def test_the_table_of_results_has_a_row_for_each_configuration(host):
    rows = list(csv.DictReader(results_table(host).splitlines()))
    (kept,) = host.runs
    assert [row["unit"] for row in rows] == [result.unit.name for result in kept.results]
    assert {row["run"] for row in rows} == {kept.run.id}
    assert rows[0].keys() == {"run", *RESULT_COLUMNS}
    assert float(rows[0]["throughput_samples_per_s"]) == kept.results[0].throughput


def test_a_preflights_tables_are_read(host):
    (preflight,) = host.preflights
    tables = preflight_tables(preflight)
    assert [each["check"] for each in tables["findings"]] == ["names"]
    assert [each["ranks"] for each in tables["allreduce"]] == [4]
    assert tables["kernels"] == []


def test_nothing_kept_is_said(tmp_path):
    with pytest.raises(RecordError, match="holds no run"):
        load("h200", tmp_path)


def listed_anew(archive):
    """Give an archive the line in the list of kept runs that would be its own."""
    listed = list_of(archive)
    chain_again(listed, listed.read_text().replace(entered(archive, listed), sha256(archive)))


def test_an_altered_archive_is_refused(altered, tmp_path):
    archive = next((altered / "h200" / "runs").glob("*-published.zip"))
    shutil.copy(archive, tmp_path / "before.zip")
    with zipfile.ZipFile(tmp_path / "before.zip") as before, zipfile.ZipFile(archive, "w") as after:
        for name in before.namelist():
            content = before.read(name)
            after.writestr(name, content.replace(b'"repeat": 1', b'"repeat": 9') if "attempts" in name else content)
    with pytest.raises(RecordError, match=r"published\.zip is not the archive that was kept"):
        load("h200", altered)
    listed_anew(archive)
    with pytest.raises(RecordError, match=r"changed: attempts\.jsonl"):
        load("h200", altered)


def test_an_archive_that_is_none_is_named(altered):
    archive = next((altered / "h200" / "runs").glob("*-published.zip"))
    archive.write_bytes(b"no archive")
    listed_anew(archive)
    with pytest.raises(RecordError, match=r"published\.zip cannot be read as a ZIP archive"):
        load("h200", altered)


@pytest.fixture(scope="module")
def committed(content):
    """Every host whose runs are committed."""
    return content.hosts


def test_the_committed_runs_are_as_recorded(committed):
    assert committed
    for host in committed:
        for kept in host.runs:
            assert verify(kept.run.files).lines() == []


def test_the_committed_pages_are_what_the_committed_runs_give(committed):
    assert [path for host in committed for path in page.differing(host)] == []


def test_the_task_refuses_what_it_does_not_know(refused):
    assert "HOST=nowhere: no run is kept in" in refused("host-reports", HOST="nowhere")


def test_an_archive_that_is_removed_is_named_on_the_page(tmp_path):
    folder = tmp_path / "reproduced" / "h200"
    for number in (1, 2):
        run = bench_run(
            tmp_path / "runs",
            f"2026112{number}-080000-gpt-published",
            "DP_1x1x1_2_1536x16",
            repeats=(1.0 + number / 1000,),
        )
        keep(run.path, folder / "runs" / f"{run.id}.zip")
    old, new = sorted(each.run.id for each in load("h200", folder.parent).runs)
    assert "were removed" not in texts(load("h200", folder.parent))
    remove(folder, [folder / "runs" / f"{old}.zip"], "measured again with newer code")
    host = load("h200", folder.parent)
    assert [each.run.id for each in host.runs] == [new]
    assert f"Kept runs that were removed, with the reasons in SHA256SUMS: {old}." in texts(host)


def texts(host) -> str:
    blocks = [block for section in page.build(host, "en", []).sections for block in section.blocks]
    return " ".join(text for block in blocks for text in getattr(block, "items", ()) or (getattr(block, "text", ""),))
