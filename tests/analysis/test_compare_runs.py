"""Two runs beside each other: what matches, what the ratio says, and what is refused or marked."""

import json
import re

import pytest

from repro.analysis.compare_runs import compare
from repro.published.cases import load_catalogue
from repro.report.compare import build, write
from repro.runs.record import read_json, write_json
from repro.utils.errors import PlanError
from repro.utils.stats import ratio_interval
from tests.support.synthetic import GPU, SIX, add_attempt, environment, published_run

CATALOGUE = load_catalogue()
SINGLE, EIGHT, TENSOR = "DP_1x1x1_2_1536x16", "DP_8x1x1_16_1536x16", "MP_1x8x1_16_1536x16"
H200 = environment({"name": "NVIDIA H200", "memory.total": "143771"}, host="node9")


def rewrite(run, change):
    """Change a run's description."""
    description = read_json(run.folder / "run.json")
    change(description)
    write_json(run.folder / "run.json", description)


def unit(description, name):
    return next(each for each in description["plan"]["units"] if each["name"] == name)


@pytest.mark.parametrize(
    ("factor", "ratios", "expected"),
    [
        (1.0, SIX, "same"),
        (1.3, SIX, "faster"),
        (0.7, SIX, "slower"),
        (1.3, SIX[:5], "inconclusive"),
        (1.0, (1.0, 1.2, 0.8, 1.0, 1.1, 0.9), "inconclusive"),
        (1.3, (1.0,), "inconclusive"),
    ],
)
def test_the_interval_of_the_ratio_decides(tmp_path, factor, ratios, expected):
    first = published_run(tmp_path, [EIGHT], label="first")
    second = published_run(tmp_path, [EIGHT], ratios, scale=lambda case: factor, label="second")
    (pair,) = compare(first, second).pairs
    assert pair.outcome == expected
    assert pair.ratio.value == pytest.approx(factor, rel=1e-3)


def test_the_interval_is_that_of_the_statistics(tmp_path):
    many = (1.0, 1.001, 0.999, 1.002, 0.998, 1.003, 0.997)
    first = published_run(tmp_path, [EIGHT], many, label="first")
    second = published_run(tmp_path, [EIGHT], many[::-1], scale=lambda case: 1.1, label="second")
    (pair,) = compare(first, second).pairs
    assert pair.ratio.interval == ratio_interval(pair.second.throughputs, pair.first.throughputs)


def test_a_single_first_measurement_is_not_taken_as_exact(tmp_path):
    first = published_run(tmp_path, [EIGHT], (1.0,), label="first")
    second = published_run(tmp_path, [EIGHT], scale=lambda case: 2.0, label="second")
    (pair,) = compare(first, second).pairs
    assert (
        pair.outcome == "inconclusive" and pair.ratio.value == pytest.approx(2.0, rel=1e-3) and not pair.ratio.interval
    )


def test_the_tolerance_is_the_published_noise_or_the_given_one(tmp_path):
    first = published_run(tmp_path, [EIGHT], label="first")
    second = published_run(tmp_path, [EIGHT], scale=lambda case: 1.04, label="second")
    found = compare(first, second)
    assert found.tolerance == pytest.approx(3 * 0.00835, rel=0.01) and found.pairs[0].outcome == "faster"
    assert compare(first, second, 0.05).pairs[0].outcome == "same"


def test_a_tolerance_is_given_as_for_a_verdict(tmp_path):
    """Zero is a tolerance."""
    first = published_run(tmp_path, [EIGHT], label="first")
    second = published_run(tmp_path, [EIGHT], scale=lambda case: 1.002, label="second")
    assert (compare(first, second).pairs[0].outcome, compare(first, second, 0.0).tolerance) == ("same", 0.0)
    assert compare(first, second, 0.0).pairs[0].outcome == "inconclusive"


def test_units_of_one_run_only_are_listed(tmp_path):
    first = published_run(tmp_path, [SINGLE, EIGHT], label="first")
    second = published_run(tmp_path, [EIGHT, TENSOR], label="second")
    found = compare(first, second)
    assert [pair.name for pair in found.pairs] == [EIGHT]
    assert (found.only_first, found.only_second) == ((SINGLE,), (TENSOR,))


def test_one_configuration_under_two_names_is_matched(tmp_path):
    first = published_run(tmp_path, [EIGHT], label="first")
    second = published_run(tmp_path, ["2D_8x1x1_16_1536x16"], label="second")
    (pair,) = compare(first, second).pairs
    assert (pair.name, pair.second.unit.name, pair.different) == (EIGHT, "2D_8x1x1_16_1536x16", {})


def test_a_name_is_a_better_match_than_a_configuration(tmp_path):
    first = published_run(tmp_path, [EIGHT, "2D_8x1x1_16_1536x16"], label="first")
    second = published_run(tmp_path, ["2D_8x1x1_16_1536x16"], label="second")
    found = compare(first, second)
    assert [(pair.name, pair.second.unit.name) for pair in found.pairs] == [("2D_8x1x1_16_1536x16",) * 2]
    assert found.only_first == (EIGHT,)


@pytest.mark.parametrize(
    ("change", "key"),
    [
        (lambda config: config.update(micro_batch=4), "micro_batch"),
        (lambda config: config.update(precision="fp32"), "precision"),
        (lambda config: config["shape"].update(layers=8), "shape"),
        (lambda config: config.update(device="cpu"), "device"),
        (lambda config: config["data"].update(kind="megatron"), "data"),
    ],
)
def test_another_configuration_under_one_name_is_marked_and_not_compared(tmp_path, change, key):
    first = published_run(tmp_path, [EIGHT, SINGLE], label="first")
    second = published_run(tmp_path, [EIGHT, SINGLE], label="second")
    rewrite(second, lambda description: change(unit(description, EIGHT)["config"]))
    found = compare(first, second)
    marked = {pair.name: pair for pair in found.pairs}
    assert list(marked[EIGHT].different) == [key]
    assert (marked[EIGHT].ratio, marked[EIGHT].outcome) == (None, "none")
    assert marked[SINGLE].outcome == "same"
    for language, phrase in (("en", "different configuration"), ("zh", "配置不同")):
        text = str(build(found, language))
        assert phrase in text and key in text


@pytest.mark.parametrize(
    ("key", "change"),
    [
        ("precision", {"tf32": True}),
        ("framework", {"framework": "pytorch"}),
        ("program", {"program": "tuned"}),
        ("variant", {"variant": "pytorch-compiled"}),
    ],
)
def test_a_configuration_is_what_it_is_on_a_host_s_page(tmp_path, key, change):
    """A trainer's own configuration is the same in both."""
    first = published_run(tmp_path, [EIGHT], label="first")
    second = published_run(tmp_path, [EIGHT], label="second")
    rewrite(second, lambda description: unit(description, EIGHT).update(change))
    (pair,) = compare(first, second).pairs
    assert (list(pair.different), pair.outcome) == ([key], "none")


def test_another_measuring_rule_is_another_configuration(tmp_path):
    first = published_run(tmp_path, [EIGHT], label="first")
    second = published_run(tmp_path, [EIGHT], label="second")
    rewrite(second, lambda description: unit(description, EIGHT)["rule"].update(rows=3))
    assert list(compare(first, second).pairs[0].different) == ["rule"]


def test_a_unit_that_failed_everywhere_has_no_ratio_and_its_failures_are_counted(tmp_path):
    first = published_run(tmp_path, [EIGHT, SINGLE], label="first")
    second = published_run(tmp_path, [EIGHT, SINGLE], label="second")
    kept = [line for line in second.attempts_file.read_text().splitlines(True) if json.loads(line)["unit"] != EIGHT]
    second.attempts_file.write_text("".join(kept))
    add_attempt(second, CATALOGUE.case(EIGHT), 1, status="failed")
    written = compare(first, second).as_json()
    (pair,) = [pair for pair in written["pairs"] if pair["unit"] == EIGHT]
    assert (pair["ratio"], pair["outcome"], pair["failed_attempts"]) == (None, "none", [0, 1])
    assert written["attempts"][1] == {"ok": 6, "failed": 1, "interrupted": 0}


def test_what_differs_in_the_environment_is_listed_and_nothing_else(tmp_path):
    first = published_run(tmp_path, [SINGLE], label="first")
    second = published_run(tmp_path, [SINGLE], env=H200, label="second")
    text = second.attempts_file.read_text().replace('"nccl": "2.7.8"', '"nccl": "2.12.10"')
    second.attempts_file.write_text(text)
    rewrite(second, lambda description: description["environment"]["gpus"][0].update(uuid="GPU-other"))
    found = compare(first, second).environment
    assert found["gpus.0.name"] == (GPU["name"], "NVIDIA H200")
    assert found["versions.nccl"] == ("2.7.8", "2.12.10")
    gpus = {f"gpus.{n}.{key}" for n in range(8) for key in ("name", "memory.total")}
    assert set(found) == {"host", "versions.nccl"} | gpus
    same = compare(first, published_run(tmp_path, [SINGLE], label="third"))
    assert same.environment == {}


def test_smoke_runs_are_set_beside_each_other_but_not_judged(tmp_path):
    runs = [published_run(tmp_path, [SINGLE], scale=lambda case, n=n: n, label=f"run{n}") for n in (1, 2)]
    for run in runs:
        rewrite(run, lambda description: description["plan"].update(scale="smoke"))
    (pair,) = compare(*runs).pairs
    assert pair.outcome == "none" and pair.ratio.value == pytest.approx(2)


def test_what_has_nothing_in_common_is_refused(tmp_path):
    first = published_run(tmp_path, [SINGLE], label="first")
    with pytest.raises(PlanError, match="no unit in common"):
        compare(first, published_run(tmp_path, [EIGHT], label="second"))
    with pytest.raises(PlanError, match="the same run"):
        compare(first, first)
    smoke = published_run(tmp_path, [SINGLE], label="smoke")
    rewrite(smoke, lambda description: description["plan"].update(scale="smoke"))
    with pytest.raises(PlanError, match="published scale, smoke at the smoke scale"):
        compare(first, smoke)


def test_both_languages_have_the_same_structure_and_numbers(tmp_path):
    first = published_run(tmp_path, [SINGLE, EIGHT, TENSOR], label="first")
    second = published_run(tmp_path, [SINGLE, EIGHT], env=H200, scale=lambda case: 1.7, label="second")
    rewrite(second, lambda description: unit(description, SINGLE)["config"].update(micro_batch=4))
    written = write(compare(first, second), tmp_path)
    assert [path.name for path in written] == ["compare.json", "compare.zh.md", "compare.en.md"]
    assert written[0].parent == tmp_path / "compare-first-second"
    chinese, english = (path.read_text() for path in written[1:])
    numbers = [sorted(re.findall(r"\d+(?:\.\d+)?", text)) for text in (chinese, english)]
    assert numbers[0] == numbers[1] and len(numbers[0]) > 20
    assert [line.count("|") for line in chinese.splitlines()] == [line.count("|") for line in english.splitlines()]
    assert "后者更快" in chinese and "second faster" in english
    prose = " ".join(line for line in chinese.splitlines() if not line.startswith("|"))
    assert not re.search(r"[a-z]{3,} [a-z]{3,} [a-z]{3,}", prose), "no English sentence is left in the Chinese"
    content = written[0].read_bytes()
    write(compare(first, second), tmp_path)
    assert written[0].read_bytes() == content


def test_the_task_prints_a_table_and_writes_beside_the_first(task, tmp_path):
    first = published_run(tmp_path / "here", [EIGHT], label="first")
    second = published_run(tmp_path / "there", [EIGHT], scale=lambda case: 1.5, label="second")
    done = task("compare", RUNS=f"{first.folder} {second.folder}")
    assert done.returncode == 0, done.stderr
    assert re.search(
        rf"{EIGHT}\s+38\.28\s+57\.42\s+6, 6\s+1\.5000\s+\S+ … \S+ \(96\.8%\)\s+1\.000\s+second faster", done.stdout
    )
    assert (tmp_path / "here" / "compare-first-second" / "compare.zh.md").is_file()


@pytest.mark.parametrize(
    ("runs", "message"),
    [
        ("", "name the two runs"),
        ("only-one", "name the two runs"),
        ("a b c", "name the two runs"),
        ("no such", "RUNS=no"),
    ],
)
def test_wrong_runs_are_refused(refused, runs, message):
    assert message in refused("compare", RUNS=runs)
