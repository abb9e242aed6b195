"""The page of a host: every figure from the runs, nothing that is not there, and links that lead somewhere."""

import re
from dataclasses import replace
from types import SimpleNamespace

import pytest

from repro.analysis.ratio import Ratio
from repro.analysis.results import summarise
from repro.published.cases import load_catalogue
from repro.report.document import markdown
from repro.report.host import measured
from repro.report.host import page as host_page
from repro.report.host.answer import concluded, decided
from repro.report.host.figures import figure_specs
from repro.report.host.notes import NOTES, Notes
from repro.report.host.results import load
from repro.report.html import check_same_structure
from repro.runs.attempts import Windows
from repro.runs.failures import Failure
from repro.runs.record import RecordError
from repro.utils.i18n import LANGUAGES, catalogue
from tests.support.pages import anchors, cells, links, table

ENGLISH = catalogue("en").gettext
RUN = "20261121-080000-gpt-published"
PAGES = {"en": "README.md", "zh": "README.zh.md"}
PUBLISHED_SCALING = "DP_1x1x1_2_1536x16,DP_8x1x1_16_1536x16"
SHARDED = "DP_8x1x1_16_1536x16.as_4x1x1"


def page(reproduced, language="en") -> str:
    return (reproduced / "h200" / PAGES[language]).read_text(encoding="utf-8")


def section_of(host, name, language="en"):
    return next(each for each in host_page.build(host, language, []).sections if each.id == name)


def test_the_page_opens_with_what_was_measured_and_what_follows(reproduced):
    head = page(reproduced).split("\n## How fast")[0]
    assert head.startswith(
        "# Reproduction on NVIDIA H200 (4 GPUs)\n\nMeasured on NVIDIA H200 (4 GPUs), 2026-11-21: 3 of the "
    )
    assert "1 in their published configuration and 2 shrunk or otherwise derived" in head
    assert "(runs: 1; attempts: 49, failed: 1, interrupted: 0)." in head
    assert re.search(
        r"No target is decided: all \d rest on a single session each, and 2 are needed\. 2 of the measured values", head
    )
    assert re.findall(r"figures/(\w+)\.en\.svg", head) == ["ratios", "efficiency"]
    assert "|" not in head, "no table before the figures"


def test_what_may_be_concluded_follows_from_what_ran(host):
    (kept,) = host.runs
    text = concluded(ENGLISH, host)
    assert "show, for the port of the published program: speed relative to PyTorch, scaling and memory. " in text
    assert "of 1 results, none was measured under the published conditions" in text and "did not run" not in text
    results = [replace(each, unit=replace(each.unit, program="tuned")) for each in kept.results]
    tuned = replace(host, runs=(replace(kept, results=results),))
    assert "how fast the port of the published program is, which did not run." in concluded(ENGLISH, tuned)
    judged = replace(
        kept.judgement, verdicts=tuple(replace(each, outcome="faster") for each in kept.judgement.verdicts)
    )
    text = concluded(ENGLISH, replace(host, runs=(replace(kept, judgement=judged),)))
    assert text.endswith(" Published throughputs with a verdict: 1 of 1 results.")
    alone = [each for each in kept.results if not each.unit.baseline_of and each.unit.world_size == 1]
    text = concluded(ENGLISH, replace(host, runs=(replace(kept, results=alone),)))
    assert "relative to PyTorch" not in text and "scaling" not in text and "memory" in text


def test_targets_are_counted_by_their_rows(host):
    rows = host.aimed
    found = [replace(rows[0], measurements=tuple(replace(rows[0].measurements[0], session=each) for each in "ab"))]
    assert "0 met, 0 missed, 1 undecided, 0 of these" in decided(ENGLISH, found)
    within = sum(row.target.holds(row.ratio.value) for row in rows)
    assert 0 < within < len(rows)
    assert f"{within} of the measured values are within their target" in decided(ENGLISH, rows)


def test_targets_say_who_set_them_and_why(host):
    for language, by in (("en", "this project"), ("zh", "本项目")):
        (table_,) = section_of(host, "targets", language).blocks
        assert {row[3].text for row in table_.rows} == {by}
        assert all(len(row[4].text) > 20 for row in table_.rows)
    assert sum(int(row[2].text.split(" / ")[2]) for row in table_.rows) == len(host.aimed)


def test_ratios_are_those_of_the_run(reproduced):
    rows = table(page(reproduced), "Every configuration compared with PyTorch")
    assert {(row["Configuration"], row["GPUs"]) for row in rows} == {
        ("DP_1x1x1_2_1536x16", "1"),
        ("DP_8x1x1_16_1536x16.as_2x1x1", "2"),
        (SHARDED, "4"),
    }
    four = next(row for row in rows if row["GPUs"] == "4")
    assert (four["OneFlow (samples/s)"], four["PyTorch (samples/s)"]) == ("352.8", "392.0")
    assert (four["OneFlow / PyTorch"], four["Target"], four["Verdict"]) == ("0.900", "≥ 1.00", "undecided")
    assert (four["Steady state"], four["95% interval"]) == ("0.900", "– (n = 1)")
    short = table(page(reproduced), "How fast compared with PyTorch?")
    assert [(row["Model"], row["GPUs"], row["OneFlow / PyTorch"], row["Verdict"]) for row in short] == [
        ("GPT, AMP", gpus, "0.900", "undecided") for gpus in "124"
    ]
    memory = table(page(reproduced), "Memory compared with PyTorch")
    assert {(row["OneFlow (MiB)"], row["OneFlow / PyTorch"]) for row in memory} == {("9000", "1.000")}


def test_a_group_shows_its_lowest_and_highest_and_counts_its_verdicts(host):
    one = host.ratios[0]
    slower = replace(one.measurements[0], ratio=Ratio(0.8, one.ratio.interval))
    met = replace(one, target=replace(one.target, at_least=0.5))
    group = (replace(one, measurements=(slower,)), met)
    short, _every = measured.ratios(ENGLISH, SimpleNamespace(ratios=group, programs=("published",)))
    (row,) = cells(short)
    assert row[2:4] == ["0.800–0.900", "2 undecided"]


def test_scaling_and_layouts_are_those_of_the_run(reproduced):
    scaled = table(page(reproduced), "Scaling of every configuration")
    four = next(row for row in scaled if row["Configuration"] == SHARDED)
    assert (four["Efficiency"], four["Target"], four["Verdict"]) == ("98.0%", "≥ 97%", "undecided")
    baseline = next(row for row in scaled if row["Configuration"] == f"{SHARDED}.pytorch")
    assert (baseline["Target"], baseline["Verdict"]) == ("–", "–"), "a baseline has no target"
    one, eight = (case.published.throughput for case in load_catalogue().select(None, PUBLISHED_SCALING))
    assert four["Published (V100)"] == f"{eight / one / 8:.1%} (8 GPUs)"
    assert baseline["Published (V100)"] == "–", "a baseline was not published"
    assert all(row["Model"] == "GPT, AMP" for row in table(page(reproduced), "How does it scale?"))
    found = table(page(reproduced), "Every layout on several GPUs")
    assert {row["Layout"] for row in found} == {"2x1x1", "4x1x1", "1x2x1", "1x4x1"}
    compared = [row for row in found if row["Expected (samples/s)"] != "–"]
    assert 0 < len(compared) < len(found), "none for what the model was fitted on"
    for row in compared:
        measured_, expected = float(row["Throughput (samples/s)"]), float(row["Expected (samples/s)"])
        assert float(row["Measured / expected"]) == pytest.approx(measured_ / expected, rel=1e-3)


def test_memory_is_compared_where_layout_and_precision_are_the_published_ones(host):
    ((case, unit, published, ours),) = measured.memories(host)
    assert (case, unit.name, ours) == ("DP_1x1x1_2_1536x16", "DP_1x1x1_2_1536x16", 9000)
    assert published == float(load_catalogue().case(case).published.memory_mib)


def test_windows_left_out_are_told_by_what_may_change_them(host):
    (kept,) = host.runs
    units = {unit.name: unit for unit in kept.plan.units}
    attempts = [
        replace(each, windows=Windows(float(units[each.unit].global_batch), -0.5))
        for each in kept.attempts
        if each.status == "ok"
    ]
    timed = [replace(each, windows=replace(each.windows, after_last_row_s=0.25)) for each in attempts]
    text = markdown(host_page.build(replace(host, runs=(replace(kept, attempts=timed),)), "en", []), host.folder)
    rows = table(text, "Windows left out of the steady state")
    assert {(row["Framework"], row["GPUs"]) for row in rows} == {
        (name, gpus) for name in ("OneFlow", "PyTorch") for gpus in "124"
    }
    assert sum(int(row["Attempts"]) for row in rows) == len(timed)
    interval = {unit.config["log_interval"] for unit in units.values()}.pop()
    for row in rows:
        assert row["Second window"] == f"{-0.5 / interval:.1%}"
        assert (row["Second window (ms)"], row["Second window (iterations)"]) == ("-500", "-0.50")
        closing = row["Framework"] == "PyTorch" and row["GPUs"] != "1"
        assert row["After the last row (iterations)"] == ("–" if closing else "0.25")


def test_machine_runs_and_preflight_are_shown(reproduced, host):
    text = page(reproduced)
    facts = {row["Item"]: row["Value"] for row in table(text, "Machine and libraries")}
    assert facts["GPU"] == "4 x NVIDIA H200"
    assert facts["Driver"] == "580.1"
    assert "1600 MHz at the median of" in facts["SM clock under load"]
    assert "(1500 to 1700), at most 64 °C" in facts["SM clock under load"]
    assert facts["GPU interconnect"] == "P2P"
    (run,) = table(text, "Runs and their commands")
    name = host.runs[0].run.id
    assert run["Run"] == f'<a id="{name}"></a>R1 [{name}](runs/{name}.zip)'
    assert run["Command"] == "`make bench MODEL=gpt MAX_GPUS=2,4 RUNS=runs`"
    assert run["Failed"] == "1"
    assert "libcublas.so.13.1" in text
    assert "at best 19.5 GB/s of bus bandwidth; the links can do 39.0 GB/s" in text


@pytest.mark.parametrize("language", LANGUAGES)
def test_links_lead_to_files_and_anchors_of_the_page(reproduced, host, language):
    text = page(reproduced, language)
    found = links(text)
    assert f"#{host.runs[0].run.id}" in found and "runs/preflight-1.zip" in found
    for link in found:
        assert link[1:] in anchors(text) if link.startswith("#") else (reproduced / "h200" / link).is_file(), link


def test_both_languages_have_the_same_numbers(reproduced, host):
    english, chinese = (
        [line for line in page(reproduced, language).splitlines() if line.endswith("[R1](#" + RUN + ") |")]
        for language in PAGES
    )
    numbers = [[re.findall(r"\d+\.\d+", line) for line in lines] for lines in (english, chinese)]
    assert numbers[0] == numbers[1]
    assert len(english) == len(chinese) > 8
    check_same_structure(*(host_page.build(host, language, []) for language in PAGES))


@pytest.mark.parametrize(("language", "reason"), [("en", "iteration 70 is not a number"), ("zh", "70")])
def test_failed_attempts_are_shown_with_their_reasons(host, language, reason):
    first, *others = host.runs[0].attempts
    failure = Failure("the loss at iteration {iteration} is not a number", {"iteration": 70})
    failed = replace(first, status="failed", failure=failure)
    changed = replace(host, runs=(replace(host.runs[0], attempts=[failed, *others]),))
    sections = {section.id: section for section in host_page.build(changed, language, []).sections}
    (row,) = cells(sections["failures"])
    assert row[1:3] == [first.unit, str(first.repeat)] and reason in row[3]


def test_each_figure_has_its_own_name(host):
    assert [each.id for each in figure_specs(host)] == ["ratios", "efficiency", "memory", "coverage"]


def test_what_was_not_run_has_no_section(reproduced, host):
    text = page(reproduced)
    for title in ("Do all layouts train the same?", "Do the models learn?", "Where does the time go?"):
        assert f"## {title}" not in text
    assert "## How does it scale?" in text
    silent = host_page.build(replace(host, notes=Notes({})), "en", [])
    assert "Commentary" not in [section.title for section in silent.sections]


@pytest.mark.parametrize(("language", "said"), [("en", "0 of the 57 published cases ran"), ("zh", "57")])
def test_a_host_that_measured_no_published_case_has_a_page(host, language, said):
    """As one that was only rehearsed on, or whose loss curves alone were kept."""
    lead = host_page.build(replace(host, runs=(), notes=Notes({})), language, []).lead
    assert said in lead and "–" in lead


def test_the_page_is_what_the_runs_give(host):
    assert host_page.differing(host) == []


def test_what_differs_from_the_runs_is_named(altered):
    readme = altered / "h200" / "README.md"
    readme.write_text(readme.read_text().replace("0.900", "1.000"))
    (altered / "h200" / "figures" / "ratios.zh.svg").unlink()
    (altered / "h200" / "figures" / "more.svg").write_text("")
    (altered / "h200" / "results.csv").write_text("")
    assert [path.name for path in host_page.differing(load("h200", altered))] == [
        "README.md",
        "more.svg",
        "ratios.zh.svg",
        "results.csv",
    ]


def test_other_measurements_make_another_page(altered):
    host = load("h200", altered)
    (kept,) = host.runs
    attempts = [
        replace(each, throughput=each.throughput * 0.9) if each.unit == SHARDED and each.status == "ok" else each
        for each in kept.attempts
    ]
    changed = replace(host, runs=(replace(kept, attempts=attempts, results=summarise(kept.plan, attempts)),))
    assert {path.name for path in host_page.differing(changed)} >= {"README.md", "README.zh.md", "results.csv"}
    host_page.render(changed)
    four = next(row for row in table(page(altered), "How fast compared with PyTorch?") if row["GPUs"] == "4")
    assert (four["OneFlow / PyTorch"], four["Verdict"]) == ("0.810", "undecided")


def test_notes_are_shown_as_written_by_hand(altered):
    (altered / "h200" / NOTES).write_text('en = """\nFirst\nline.\n\nSecond."""\nzh = "第一。"\n')
    host = load("h200", altered)
    section = next(each for each in host_page.build(host, "en", []).sections if each.id == "notes")
    assert [block.text for block in section.blocks[1:]] == ["First line.", "Second."]
    assert "written by hand" in section.blocks[0].text


def test_notes_name_runs_by_how_their_ids_begin(host):
    (kept,) = host.runs
    notes = Notes({"zh": f"见 {{{kept.run.id[:-1]}}}。"})
    document = host_page.build(replace(host, notes=notes), "zh", [])
    section = next(each for each in document.sections if each.id == "notes")
    assert section.blocks[1].text == f"见 [R1](#{kept.run.id})。"
    with pytest.raises(RecordError, match=r"the text in en has \{gone\}, which 0 kept runs or rows are called"):
        host_page.build(replace(host, notes=Notes({"en": "In {gone}."})), "en", [])
