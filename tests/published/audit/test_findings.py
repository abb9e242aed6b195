"""A finding by itself: what it is compared from, what rounding explains, and what is shown beside a figure."""

import pytest

from repro.published.audit.findings import (
    HOLDS,
    Finding,
    Message,
    Place,
    as_figure,
    at_precision,
    compare,
    finding,
    ratio_reach,
    slug,
    unless,
)
from repro.published.cases import load_catalogue
from repro.published.figures import PrintedNumber

CASE = load_catalogue().case("bert_1n8g_bs96")
RULE = Message("a rule")


def a_finding(**changes):
    given = {"id": "x", "report": "r", "place": Place("t"), "kind": "arithmetic", "printed": "1", "expected": "2"}
    return Finding(**{**given, "rule": RULE, **changes})


@pytest.mark.parametrize("wrong", [{"kind": "other"}, {"severity": "other"}, {"kind": "other", "severity": "other"}])
def test_only_known_kinds_and_severities(wrong):
    with pytest.raises(ValueError, match="other"):
        a_finding(**wrong)
    assert a_finding(kind="missing", severity="note").severity == "note"


def test_what_is_shown_beside_a_figure():
    assert a_finding().remark() == "audit: 2"
    assert a_finding(source=Message("a log")).remark() == "another source: 2"
    assert a_finding(expected="").remark() == "see the audit"
    assert a_finding(note=Message("care")).remark() == "care"


def test_what_is_known_is_from_the_report_or_from_elsewhere():
    own, other = a_finding(), a_finding(source=Message("a log"))
    assert (own.recomputed, own.elsewhere) == ("2", "") and (other.recomputed, other.elsewhere) == ("", "2")
    assert own.as_json()["recomputed"] == "2" and own.as_json()["elsewhere"] is None
    assert other.as_json()["recomputed"] is None and other.as_json()["elsewhere"] == {"value": "2", "source": "a log"}
    assert a_finding(expected="", source=Message("a log")).as_json()["elsewhere"] is None
    assert own.as_json()["evidence"] is None
    assert a_finding(evidence=Message("more")).as_json()["evidence"] == "more"


def test_a_figure_that_its_digits_explain_holds():
    assert compare("c", CASE, "speedup", printed=PrintedNumber("7.73"), value=7.7336, rule=RULE) is HOLDS
    found = compare("c", CASE, "speedup", printed=PrintedNumber("7.74"), value=7.7336, rule=RULE)
    assert (found.severity, found.printed, found.expected, found.evidence) == ("error", "7.74", "7.73", None)
    assert (found.report, found.place) == (CASE.report, Place("results", CASE.name, "speedup"))
    assert (
        compare("c", CASE, "speedup", printed=PrintedNumber("7.74"), value=7.7336, rule=RULE, report="other").report
        == "other"
    )


@pytest.mark.parametrize(
    ("reach", "severity"),
    [
        ((7.70, 7.80), "warning"),
        ((7.76, 7.80), "error"),
        ((7.75, 7.80), "warning"),
        ((7.74, 7.80), "warning"),
        ((7.60, 7.65), "warning"),
        ((7.60, 7.64), "error"),
        ((7.60, 7.66), "warning"),
    ],
)
def test_what_unrounded_inputs_may_have_given_is_a_warning(reach, severity):
    """7.7 is anything from 7.65 to 7.75."""
    printed = PrintedNumber("7.7")
    ends = {7.75: printed + printed.half_unit, 7.65: printed - printed.half_unit}
    found = compare(
        "c", CASE, "speedup", printed=printed, value=9.0, rule=RULE, reach=tuple(ends.get(end, end) for end in reach)
    )
    assert found.severity == severity
    assert (found.evidence is not None) is (severity == "warning")


def test_how_far_rounding_reaches():
    low, high = ratio_reach(PrintedNumber("1158.5"), PrintedNumber("149.8"), 2.0)
    assert (low, high) == pytest.approx((2 * 1158.45 / 149.85, 2 * 1158.55 / 149.75), rel=1e-12)


def test_a_printed_value_has_at_least_so_many_decimals():
    assert as_figure(41).decimals == 0 and as_figure("41.5").decimals == 1
    assert as_figure(41, 2).decimals == 2 and str(as_figure("41.0", 2)) == "41.00"
    precise = PrintedNumber("41.123")
    assert as_figure(precise, 2) is precise and as_figure(precise, 3) is precise
    assert at_precision(2.345, 1) == "2.3"


def test_an_identifier_names_report_rule_and_subject():
    found = finding(
        "rule", "report", Place("table", "a row, b", "column"), kind="missing", printed=1, expected="", rule=RULE
    )
    assert found.id == "report/rule/a-row-b/column" and str(found.place) == "table, a row, b, column"
    assert slug("a", "", "b=1.5+c_d-e", "/x/") == "a/b=1.5+c_d-e/x"
    assert str(Place("table")) == "table"


def test_a_rule_that_comes_out_right_finds_nothing():
    assert unless(True, "c", "r", Place("t"), kind="missing", printed=1, expected=2, rule=RULE) is HOLDS
    assert (
        unless(False, "c", "r", Place("t"), kind="missing", printed=1, expected=2, rule=RULE, severity="note").severity
        == "note"
    )


def test_a_message_is_shown_with_its_values_in_a_language():
    inner = Message("{n} runs", n=3)
    message = Message("{who}: {what}", who=["a", "b"], what=inner)
    assert str(message) == "a, b: 3 runs"
    words = {", ": "、", "{n} runs": "{n} 次", "{who}: {what}": "{who}：{what}"}
    assert message.text(lambda text: words.get(text, text)) == "a、b：3 次"
