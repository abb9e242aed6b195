"""The page of a host: every figure from the runs, nothing that is not there, and links that lead somewhere."""

import re
from dataclasses import replace
from types import SimpleNamespace

import pytest

from repro.analysis.ratio import Ratio
from repro.analysis.results import summarise
from repro.published.cases import load_catalogue
from repro.report import method
from repro.report.document import markdown
from repro.report.host import answer, figures, measured
from repro.report.host import page as host_page
from repro.report.host.answer import believed, by_model, how_to_read, over_published
from repro.report.host.configurations import baselines, configurations
from repro.report.host.figures import figure_specs
from repro.report.host.goals import decided
from repro.report.host.notes import NOTES, Notes
from repro.report.host.results import load
from repro.report.html import check_same_structure
from repro.report.numbers import significant
from repro.runs.failures import Failure
from repro.runs.record import RecordError
from repro.utils.i18n import LANGUAGES, catalogue
from repro.utils.paths import REPORTS
from repro.utils.stats import Interval
from tests.support.kept import faster
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


def test_the_page_opens_with_the_result_in_words_and_one_figure(reproduced):
    head = page(reproduced).split("\n## How fast")[0]
    assert head.startswith(
        "# Measurements on NVIDIA H200 (machines with 4 GPUs)\n\nMeasured on NVIDIA H200 (machines with 4 GPUs), 2026-11-21: 3 of the "
    )
    assert "1 in their published configuration and 2 shrunk or otherwise derived" in head
    assert (
        "- **GPT AMP** over `pytorch`, 1, 2 and 4 GPUs: port 0.90 (n\xa0=\xa01)\n"
        "- **Over the published V100 throughput** (other hardware, no verdict): GPT AMP: port " in head
    )
    assert "- **Scaling efficiency**: GPT AMP, port, 2 GPUs: " in head
    assert re.findall(r"figures/([\w-]+)\.en\.svg", head) == ["ratios"]
    assert "|" not in head, "no table before the figure"
    titles = re.findall(r"^## (.+)$", page(reproduced), re.MULTILINE)
    assert titles[-1] == "Goals we set ourselves", "what the project wants comes after what it measured"


def test_what_the_figures_rest_on_follows_from_what_ran(host):
    (kept,) = host.runs
    text = believed(ENGLISH, host)
    assert text.startswith("Every comparison comes from a single session") and "Left out" not in text
    assert text.endswith("no result was measured under the published conditions.")
    judged = replace(
        kept.judgement, verdicts=tuple(replace(each, outcome="faster") for each in kept.judgement.verdicts)
    )
    text = believed(ENGLISH, replace(host, runs=(replace(kept, judgement=judged),)))
    assert text.endswith(" Published throughputs with a verdict: 1 of 1 results.")
    assert believed(ENGLISH, replace(host, runs=())) == ""


def test_the_words_are_the_lowest_and_highest_of_a_models_configurations(host):
    one = next(row for row in host.ratios if row.unit.world_size == 1)
    other = replace(
        one,
        measurements=(replace(one.measurements[0], steady=None, ratio=Ratio(0.8, Interval(0.7, 0.85, 0.95, "", ()))),),
    )
    rows = SimpleNamespace(ratios=[one, other], configurations=[], catalogue=host.catalogue)
    (text,) = by_model(ENGLISH, rows)
    assert "port 0.80–0.90 (" in text
    older = SimpleNamespace(ratios=[one, replace(other, current=False)], configurations=[], catalogue=host.catalogue)
    assert "0.80" not in by_model(ENGLISH, older)[0], "older code is no result"


def test_what_is_said_of_the_result_is_true_of_it(host):
    (kept,) = host.runs
    assert how_to_read(ENGLISH, host).startswith("Throughput over that of each baseline")
    alone = replace(kept, results=[each for each in kept.results if not each.unit.baseline_of])
    without = replace(host, runs=(alone,))
    assert how_to_read(ENGLISH, without).startswith("In parentheses "), "there is scaling, and no baseline"
    single = replace(kept, results=[each for each in alone.results if each.unit.world_size == 1])
    assert how_to_read(ENGLISH, replace(host, runs=(single,))) == ""

    def over(**changes):
        verdicts = tuple(replace(each, **changes) for each in kept.judgement.verdicts)
        judgement = replace(kept.judgement, verdicts=verdicts)
        return over_published(ENGLISH, replace(host, runs=(replace(kept, judgement=judgement),)))

    said = "**Over the published V100 throughput**"
    assert over().startswith(f"{said} (other hardware, no verdict): ")
    assert over(reasons=()).startswith(f"{said} (no verdict): ")
    assert over(outcome="reproduced").startswith(f"{said}: ")


def test_goals_are_counted_by_their_rows(host):
    rows = host.aimed
    found = [replace(rows[0], measurements=tuple(replace(rows[0].measurements[0], session=each) for each in "ab"))]
    assert "0 met, 0 missed, 1 undecided, 0 of these" in decided(ENGLISH, found)
    within = sum(row.goal.holds(row.ratio.value) for row in rows)
    assert 0 < within < len(rows)
    assert f"Within their goal: {within} of {len(rows)} measured values" in decided(ENGLISH, rows)


def test_goals_say_who_set_them_and_why(host):
    for language, count in (("en", r"(\d+) undecided"), ("zh", r"(\d+) 项?待定|(\d+) .*待定")):
        (_text, table) = section_of(host, "goals", language).blocks
        titles = [column.title for column in table.columns]
        assert all(len(row[-1].text) > 20 for row in table.rows) and len(titles) == 4, "all are this project's"
        if language == "en":
            assert sum(int(re.search(count, row[2].text)[1]) for row in table.rows) == len(host.aimed)
    of_first = host.aimed[0].goal
    guests = (replace(goal, by={"en": "a guest"}) if goal == of_first else goal for goal in host.goals)
    several = replace(host, goals=tuple(guests))
    (_text, table) = section_of(several, "goals").blocks
    assert "Set by" in [column.title for column in table.columns]


def test_each_configuration_is_one_row_with_its_ratios(reproduced):
    rows = table(page(reproduced), "How fast compared with PyTorch?")
    assert [row["Configuration"] for row in rows] == [
        "DP_1x1x1_2_1536x16 (GPT AMP, 1 GPU)",
        "DP_8x1x1_16_1536x16.as_2x1x1 (GPT AMP, 2 GPUs)",
        f"{SHARDED} (GPT AMP, 4 GPUs)",
    ]
    assert {row["Port / pytorch"] for row in rows} == {"0.900 (n\xa0=\xa01)"}
    every = table(page(reproduced), "Every comparison, with its runs")
    four = next(row for row in every if row["Configuration"].startswith(SHARDED))
    assert (four["samples/s"], four["Compared with (samples/s)"]) == ("352.8", "392.0")
    assert (four["Ratio or efficiency"], four["Goal"]) == ("0.900 (n\xa0=\xa01)", "≥ 1.00 (undecided)")
    runs = table(page(reproduced), "Every comparison, with its runs", 1)
    assert {(row["What is compared"], row["Runs"]) for row in runs} == {("all of them", f"2026-11-21 [08:00](#{RUN})")}
    memory = table(page(reproduced), "Memory compared with the baselines")
    assert {(row["Port"], row["pytorch"]) for row in memory} == {("9000", "9000")}


def test_programs_and_baselines_of_a_configuration_share_its_row(host):
    one = next(row for row in host.ratios if row.unit.world_size == 1)

    def like(program, name, label, tf32=False):
        (measurement,) = one.measurements
        unit = replace(measurement.result.unit, name=name, program=program, tf32=tf32)
        base = replace(measurement.base.unit, variant=label, tf32=tf32)
        result, over = replace(measurement.result, unit=unit), replace(measurement.base, unit=base)
        return replace(one, measurements=(replace(measurement, result=result, base=over),))

    rows = [
        like("published", "a", "pytorch"),
        like("tuned", "a.tuned", "pytorch"),
        like("tuned", "a.tuned", "pytorch-unfused"),
        like("tuned", "a.tf32.tuned", "pytorch-tf32", tf32=True),
        like("published", "a", "pytorch-tf32"),
        like("tuned", "a.tf32.tuned", "pytorch", tf32=True),
    ]
    first, second = configurations(rows)
    assert (first.name, second.name) == ("a", "a.tf32")
    assert [
        first.of(*pair) for pair in (("published", "pytorch"), ("tuned", "pytorch"), ("tuned", "pytorch-unfused"))
    ] == rows[:3]
    assert second.of("tuned", "pytorch-tf32") is rows[3]
    assert first.of("published", "pytorch-tf32") is rows[4], "of a configuration in fp32 it is another than pytorch"
    assert second.of("tuned", "pytorch") is rows[5], "in either precision it is the same baseline"
    assert baselines(rows) == ["pytorch", "pytorch-tf32", "pytorch-unfused"]
    columns = [
        column.title for column in measured.speed(ENGLISH, SimpleNamespace(ratios=rows, gains=[]))[0].blocks[0].columns
    ]
    assert columns[1:] == [
        "Port / pytorch",
        "Tuned / pytorch",
        "Port / pytorch-tf32",
        "Tuned / pytorch-tf32",
        "Tuned / pytorch-unfused",
    ]


def test_scaling_and_layouts_are_those_of_the_run(reproduced):
    scaled = table(page(reproduced), "How does it scale?")
    four = next(row for row in scaled if row["Configuration"].startswith(SHARDED))
    assert (four["Port"], four["pytorch"]) == ("98.0% (n\xa0=\xa01)",) * 2
    one, eight = (case.published.throughput for case in load_catalogue().select(None, PUBLISHED_SCALING))
    assert four["Published (V100)"] == f"{eight / one / 8:.1%} (8 GPUs)"
    found = table(page(reproduced), "Every layout on several GPUs")
    assert {row["Layout"] for row in found} == {"2x1x1", "4x1x1", "1x2x1", "1x4x1"}
    compared = [row for row in found if row["Expected (samples/s)"] != "–"]
    assert 0 < len(compared) < len(found), "none for what the model was fitted on"
    for row in compared:
        measured_, expected = float(row["Throughput (samples/s)"]), float(row["Expected (samples/s)"])
        assert float(row["Measured / expected"].split()[0]) == pytest.approx(measured_ / expected, rel=1e-3)


def test_older_code_is_only_in_the_list_of_every_comparison(host):
    """The newest run of the program has other code, and other configurations than the row."""
    (kept,) = host.runs
    alone = [each for each in kept.results if each.unit.world_size == 1]
    changed = [replace(each, code={"sha256": "b"}) for each in kept.attempts]
    newest = replace(
        kept,
        run=SimpleNamespace(id="newest", path=kept.run.path, files=kept.run.files),
        results=alone,
        attempts=changed,
        description=replace(kept.description, created=kept.description.created + 86400),
    )
    both = replace(host, runs=(kept, newest))
    old = [row.unit.name for row in both.ratios if not row.current]
    assert SHARDED in old
    _ = ENGLISH
    assert SHARDED not in str(cells(measured.speed(_, both)[0])) and measured.scaling(_, both, []) == []
    chart = next(spec for spec in figure_specs(both) if spec.id == "ratios").chart(_)
    assert SHARDED not in repr(chart)
    every, _runs = measured.comparisons(_, both)[0].blocks
    notes = {row[0].text: row[4].note for row in every.rows}
    assert "older code" in notes[f"{SHARDED} (Port)"] and "older code" not in notes["DP_1x1x1_2_1536x16 (Port)"]
    assert "only with older code of their program: " in believed(_, both)


def test_the_first_figure_has_at_most_20_rows_and_says_how_many_are_left_out(host):
    one = next(row for row in host.ratios if row.unit.world_size == 1)
    (measurement,) = one.measurements

    def trained_in(precision, name):
        unit = measurement.result.unit
        return replace(unit, name=name, config=replace(unit.config, precision=precision))

    rows = [
        replace(
            one,
            measurements=(
                replace(
                    measurement,
                    result=replace(
                        measurement.result,
                        unit=trained_in(precision, f"case-{number}"),
                    ),
                ),
            ),
        )
        for precision in ("fp32", "amp")
        for number in (range(3) if precision == "fp32" else range(3, 22))
    ]
    spec = figures._ratios(SimpleNamespace(ratios=rows))
    (port,) = spec.chart(ENGLISH).charts
    shown = [row.label for _heading, group in port.groups for row in group]
    assert len(shown) == 20 and {f"case-{n}" for n in range(3, 22)} < set(shown), "the published precision comes first"
    assert "in the table only: 2." in spec.caption(ENGLISH)


def test_memory_is_compared_where_layout_and_precision_are_the_published_ones(host):
    (row,) = measured.memories(host)
    assert row.case.name == "DP_1x1x1_2_1536x16"
    assert {program: of.memory_mib for program, of in row.by_program.items()} == {"published": 9000}
    published = float(load_catalogue().case(row.case.name).published.memory_mib)
    assert measured.published_mib(row.case) == published
    (shown,) = table(markdown(host_page.build(host, "en", []), host.folder), "How much memory?")
    assert shown["Port"] == f"9000 ({9000 / published - 1:+.1%})".replace("-", "−")


def test_throughput_stands_beside_the_published_one(host):
    ((case, by_program),) = measured.factors(host)
    ratio = measured.factor(case, by_program["published"])
    assert ratio == pytest.approx(by_program["published"].throughput / float(case.published.throughput))
    (shown,) = table(
        markdown(host_page.build(host, "en", []), host.folder), "How does it compare with the published V100 results?"
    )
    assert shown["Port"].endswith(f"(× {significant(ratio)}, n\xa0=\xa01)")


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
    assert run["Run (start, UTC)"] == f'<a id="{name}"></a>[2026-11-21 08:00](runs/{name}.zip)'
    assert run["Command"] == "`make bench MODEL=gpt MAX_GPUS=2,4 RUNS=runs`"
    assert run["Session"] == "S1"
    assert "libcublas.so.13.1" in text
    assert "at best 19.5 GB/s of bus bandwidth; the links can do 39.0 GB/s" in text


@pytest.mark.parametrize("language", LANGUAGES)
def test_links_lead_to_files_and_anchors_of_the_page(reproduced, host, language):
    text = page(reproduced, language)
    found = links(text)
    assert f"#{host.runs[0].run.id}" in found and "runs/preflight-1.zip" in found
    for link in found:
        if link.startswith("../../method."):
            file, _, section = link.removeprefix("../../").partition("#")
            assert file == method.file_name(language)
            assert section in {section.id for section in method.build(language).sections}, link
            continue
        if link.startswith("../../published/"):
            assert (REPORTS / link.removeprefix("../../").partition("#")[0]).is_file(), link
            continue
        assert link[1:] in anchors(text) if link.startswith("#") else (reproduced / "h200" / link).is_file(), link


def test_both_languages_have_the_same_numbers(reproduced, host):
    english, chinese = (
        [line for line in page(reproduced, language).splitlines() if line.startswith("| ")] for language in PAGES
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
    assert [each.id for each in figure_specs(host)] == ["ratios", "efficiency-1"]
    (kept,) = host.runs
    fewer = replace(host, runs=(replace(kept, results=[each for each in kept.results if each.unit.world_size < 4]),))
    assert [each.id for each in figure_specs(fewer)] == ["ratios"], "nothing to join"


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


def test_a_baseline_is_no_port_in_the_list_of_comparisons(reproduced):
    """Baselines that scaled are rows as well, and have no program of OneFlow's."""
    rows = table(page(reproduced), "Every comparison, with its runs")
    over_one_gpu = [row["Configuration"] for row in rows if row["Compared with"] == "1 GPU"]
    assert [name for name in over_one_gpu if name.endswith(" (pytorch)")]
    assert len(over_one_gpu) == len(set(over_one_gpu)), "each trains under its own name"


def test_every_framework_that_was_compared_is_named_with_its_release():
    torch, megatron = {"torch": "2.10.0"}, {"torch": "2.10.0", "megatron_core": "0.16.1"}
    starts = {
        "port": {"versions": {"oneflow": "0.8.0"}},
        "pytorch": {"versions": torch},
        "megatron": {"versions": megatron},
    }
    host = SimpleNamespace(measured=[SimpleNamespace(starts=starts)])
    said = answer._against(ENGLISH, host)
    assert said == ", some compared with PyTorch 2.10.0 and Megatron-Core 0.16.1"
    assert answer._against(ENGLISH, SimpleNamespace(measured=[])) == ""


def test_other_measurements_make_another_page(altered):
    host = load("h200", altered)
    (kept,) = host.runs
    attempts = [faster(each, 0.9) if each.unit == SHARDED else each for each in kept.attempts]
    changed = replace(host, runs=(replace(kept, attempts=attempts, results=summarise(kept.plan, attempts)),))
    assert {path.name for path in host_page.differing(changed)} >= {"README.md", "README.zh.md", "results.csv"}
    host_page.render(changed)
    *_others, four = table(page(altered), "How fast compared with PyTorch?")
    assert four["Port / pytorch"] == "0.810 (n\xa0=\xa01)"


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
    assert section.blocks[1].text == f"见 [2026-11-21 08:00](#{kept.run.id})。"
    with pytest.raises(RecordError, match=r"the text in en has \{gone\}, which 0 kept runs or rows are called"):
        host_page.build(replace(host, notes=Notes({"en": "In {gone}."})), "en", [])
