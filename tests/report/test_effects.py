"""What newer kernels gain, in verdicts and on pages: from recorded measurements alone, and nothing without them."""

import json
import re

import jsonschema
import pytest

from repro.analysis.results import summarise
from repro.analysis.verdict import judge
from repro.models.past import LAYER_NORM
from repro.perfmodel import past_kernels
from repro.perfmodel.past_kernels import Span
from repro.planning.past import uses_of
from repro.published.audit.engine import audit
from repro.published.cases import load_catalogue
from repro.published.deviations import deviations
from repro.report import effects
from repro.report.document import Table, Text
from repro.report.published.program import kept_otherwise
from repro.report.published.program import past_kernels as timed_section
from repro.report.published.tables import Sheet
from repro.report.run.programs import deviation_section
from repro.report.run.verdicts import verdict_sections
from repro.utils.i18n import catalogue
from tests.support.past import measured
from tests.support.paths import ROOT
from tests.support.synthetic import edit_starts, published_run

CASES = load_catalogue()
SINGLE, EIGHT = "DP_1x1x1_2_1536x16", "DP_8x1x1_16_1536x16"
SCHEMA = json.loads((ROOT / "repro/data/verdicts.schema.json").read_text())
_ = catalogue("en").gettext


@pytest.fixture
def recorded(monkeypatch):
    """All cases were measured on an H100: in DP_1x1x1_2_1536x16, 96 calls that took 0.2 to 0.3 ms longer."""
    whole = measured(CASES.cases)
    for module in (past_kernels, effects):
        monkeypatch.setattr(module, "measurements", lambda: (whole,))


@pytest.fixture
def nothing_recorded(monkeypatch):
    for module in (past_kernels, effects):
        monkeypatch.setattr(module, "measurements", tuple)


def judgement(run):
    plan, attempts = run.description().plan, run.attempts()
    found = judge(run, plan, attempts, summarise(plan, attempts))
    jsonschema.validate(found.as_json(), SCHEMA)
    return found


def texts(section):
    return " ".join(block.text for block in section.blocks if isinstance(block, Text))


def tables(section):
    return {block.id: block for block in section.blocks if isinstance(block, Table)}


def test_a_verdict_says_what_was_to_be_expected(tmp_path, recorded):
    found = judgement(published_run(tmp_path, [SINGLE]))
    (verdict,) = found.verdicts
    low, high = 96 * 0.2 * 132 * 1.98 / (80 * 1.53), 96 * 0.3 * 3350 / 900
    iteration = 1000 * 2 / 4.92
    expected = verdict.as_json()["expected_faster"]
    assert expected["low"] == pytest.approx(low / (iteration - low))
    assert expected["high"] == pytest.approx(high / (iteration - high))
    assert list(expected["by_deviation"]) == [LAYER_NORM]
    assert expected["measured_on"] == ["NVIDIA H100 80GB HBM3"]
    section, *_rest = verdict_sections(_, found)
    span = f"{100 * expected['low']:.1f}–{100 * expected['high']:.1f}%"
    assert f"The port is expected to be {span} faster than the program of that time" in texts(section)
    (row,) = tables(section)["verdict-gains"].rows
    assert [cell.text for cell in row] == [SINGLE, span, span]


def test_a_case_without_a_verdict_has_no_expectation(tmp_path, recorded):
    run = published_run(tmp_path, [SINGLE])
    edit_starts(run, lambda start: start.update(device="cpu:0"))
    (verdict,) = judgement(run).verdicts
    assert (verdict.comparable, verdict.gain) == (False, None)
    assert "expected_faster" not in verdict.as_json()


def test_without_a_measurement_a_verdict_says_nothing_of_it(tmp_path, nothing_recorded):
    found = judgement(published_run(tmp_path, [SINGLE]))
    assert "expected_faster" not in found.verdicts[0].as_json()
    assert "verdict-gains" not in tables(verdict_sections(_, found)[0])


def test_measured_deviations_are_marked_and_the_others_keep_their_estimates(recorded):
    report = CASES.report("gpt-3d-2021-05")
    section = kept_otherwise(Sheet(_, audit(), report), "en")
    rows = {row[0].text: [cell.text for cell in row] for row in tables(section)["deviations"].rows}
    said = "Kernels timed on NVIDIA H100 80GB HBM3, scaled to Tesla V100-SXM2-16GB: "
    assert said in rows[LAYER_NORM][4] and rows[LAYER_NORM][5] == "measurement"
    assert said not in rows["cuda-of-wheel"][4] and rows["cuda-of-wheel"][5] == "estimate"
    assert "[how they were timed](../method.en.md#kernels)" in texts(section)
    assert tables(section)["gains"].caption, "the section has two tables, and its title names one"
    assert len(tables(section)["gains"].rows) == len([each for each in CASES.cases if each.report == report.id])


def test_without_a_measurement_the_source_is_the_evidence(nothing_recorded):
    section = kept_otherwise(Sheet(_, audit(), CASES.report("gpt-3d-2021-05")), "en")
    rows = {row[0].text: [cell.text for cell in row] for row in tables(section)["deviations"].rows}
    assert rows[LAYER_NORM][5] == "source code"
    assert "gains" not in tables(section)


def test_the_deviations_of_a_run_have_the_measured_effect(tmp_path, recorded):
    plan = published_run(tmp_path, [SINGLE, EIGHT]).description().plan
    section = deviation_section(catalogue("zh").gettext, "zh", plan.units)
    rows = {row[0].text: [cell.text for cell in row] for row in tables(section)["deviations"].rows}
    assert "上实测 kernel，换算到 Tesla V100-SXM2-16GB：在已发布的用例中快 " in rows[LAYER_NORM][4]
    assert "预计就比当年的程序快 " in texts(section)


@pytest.mark.parametrize("report", ["bert-2020-08-22", "gpt2-small-2020-12", "gpt-3d-2021-05"])
def test_every_published_case_has_the_recorded_effect_of_each_operator_that_it_calls(report):
    """With what is in the repository, so that no page falls back to a text without an interval."""
    cases = [case for case in CASES.cases if case.report == report]
    case_gains = effects.gains([report])
    assert list(case_gains) == [case.name for case in cases]
    for case in cases:
        assert set(case_gains[case.name].by_deviation) == {use.subject.deviation for use in uses_of(case)}
    section = kept_otherwise(Sheet(_, audit(), CASES.report(report)), "en")
    rows = {row[0].text: [cell.text for cell in row] for row in tables(section)["deviations"].rows}
    for deviation in {use.subject.deviation for case in cases for use in uses_of(case)}:
        assert re.search(r": [−\d.–]+% faster in the published cases\.", rows[deviation][4])
        assert rows[deviation][5] == "measurement"


def test_the_text_of_a_measured_deviation_has_no_speed_of_its_own():
    """Its interval comes from the recorded times; a figure that somebody wrote would contradict it one day."""
    measured_ids = {use.subject.deviation for case in CASES.cases for use in uses_of(case)}
    for deviation in deviations():
        if deviation.id in measured_ids:
            assert deviation.evidence == "source", "what is measured is said by the recorded times"
            for text in deviation.effect.values():
                assert not re.search(r"%|estimat|few per cent|measured|估计|百分之|测量", text), deviation.id


def test_what_was_timed_is_listed_for_the_report_that_calls_it(recorded):
    section = timed_section(Sheet(_, audit(), CASES.report("gpt2-small-2020-12")))
    rows = tables(section)["past-h100-80"].rows
    assert tables(section)["past-h100-80"].caption == "On NVIDIA H100 80GB HBM3, whose memory has 3350 GB/s:"
    assert len(rows) == 2 * 10  # five operators at two batch sizes, in both directions
    assert [cell.text for cell in rows[0]][:3] == ["softmax 2020-12 12288×1024", "forward", "6"]
    assert timed_section(Sheet(_, audit(), CASES.report("resnet50-2020-08-08"))) is None


@pytest.mark.parametrize(
    ("low", "high", "text"), [(0.052, 0.071, "5.2–7.1%"), (0.05, 0.0501, "5.0%"), (-0.012, 0.003, "−1.2–0.3%")]
)
def test_a_range_in_per_cent(low, high, text):
    assert effects.percent_span(Span(low, high)) == text
