"""The measuring rules: the window that each reads, and what it refuses."""

import re
import sys
from dataclasses import asdict

import pytest

from repro.published import rules
from repro.published.logs import LogError, parse
from repro.published.rules import LastRows, MeanRows, RuleError, Stamps, kinds, print_interval, rule_of
from tests.support.log_rows import HEADER, A, B, C, a_row, d_row, e_row


def test_stamps_give_the_published_window():
    rule = Stamps(first_row=1, last_row=6)
    assert rule.throughput(parse(B), 2048) == pytest.approx(2048 * 100 / (1597933977.6064055 - 1597933942.9863544))
    assert rule.latency_ms(parse(C)) == pytest.approx(10 * (1598056537.0029895 - 1598056519.8844702))


def test_stamps_are_taken_within_one_epoch():
    log = parse(
        [a_row(n, epoch=epoch, stamp=f" {1600000000 + n + 1000 * epoch}") for epoch in (0, 1) for n in (20, 40, 60)]
    )
    assert [row.step for row in log.rows] == [20, 40, 60, 80, 100, 120]
    with pytest.raises(RuleError, match="from step 20 to 60"):
        Stamps(first_row=1, last_row=6).throughput(log, 4)
    with pytest.raises(RuleError, match="rows of the first epoch"):
        Stamps(first_row=1, last_row=6).throughput(parse([a_row(20, epoch=3, stamp=" 1.0")]), 4)


def test_stamps_that_do_not_grow_are_refused():
    log = parse([a_row(20, stamp=" 1600000001"), a_row(40, stamp=" 1600000001")])
    with pytest.raises(RuleError, match=r"lie 0\.0 s"):
        Stamps(first_row=1, last_row=2).throughput(log, 4)


def test_scaled_log_that_prints_every_iteration_keeps_the_published_rows():
    log = parse(
        [
            f"step: {n}, total_loss: 9.000, mlm_loss: 8.000, nsp_loss: 1.000, throughput: 4.000 {100 + n * 2}"
            for n in range(10)
        ]
    )
    assert Stamps(first_row=1, last_row=6).throughput(log, 8) == pytest.approx(4)


def test_a_lost_first_row_is_not_taken_for_the_print_interval():
    log = parse([a_row(n, stamp=f" {1600000000 + n}") for n in range(40, 300, 20)])
    with pytest.raises(RuleError, match="not printed every 40 iterations"):
        Stamps(first_row=1, last_row=6).throughput(log, 4)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (MeanRows(skip_first=2), "needs 3 rows, the log holds 2"),
        (LastRows(rows=5), "needs 5 rows, the log holds 2"),
        (Stamps(first_row=1, last_row=2), "no Unix stamp"),
    ],
)
def test_too_little_for_the_rule(rule, message):
    with pytest.raises(RuleError, match=message):
        rule.throughput(parse([a_row(20), a_row(40)]), 8)


def test_throughput_that_is_no_number_is_refused():
    log = parse([d_row(10), d_row(20, rate="nan"), d_row(30)])
    with pytest.raises(RuleError, match="not a positive number"):
        MeanRows(skip_first=1).throughput(log)


def test_latency_without_printed_latency_needs_the_batch():
    log = parse(A)
    assert MeanRows(skip_first=1).latency_ms(log, 128) == pytest.approx(128000 / 385.0957, rel=1e-6)
    with pytest.raises(RuleError, match="global batch"):
        MeanRows(skip_first=1).latency_ms(log)


def test_the_error_names_the_rule_and_the_log_and_is_an_error_of_the_log():
    with pytest.raises(LogError) as error:
        LastRows(rows=50).throughput(parse(A))
    assert isinstance(error.value, RuleError)
    assert str(error.value) == f"{A}: the rule 'last_rows' cannot be applied: it needs 50 rows, the log holds 10"


def stamped(*steps, every_s=1.0):
    return [a_row(step, stamp=f" {1600000000 + number * every_s}") for number, step in enumerate(steps)]


STAMPS = Stamps(first_row=1, last_row=2)


@pytest.mark.parametrize(
    ("stated", "row"),
    [(20, "row 1 (step 20) is missing"), (1, "row 1 (step 1) is missing")],
)
def test_the_print_interval_that_a_log_states_goes_before_its_first_row(stated, row):
    log = parse([f"loss_print_every_n_iter = {stated}", *stamped(40, 80, 120)])
    with pytest.raises(RuleError, match=re.escape(row)):
        STAMPS.throughput(log, 4)


@pytest.mark.parametrize("stated", ["0", "-20", "x"])
def test_a_print_interval_that_is_none_is_not_taken(stated):
    log = parse([f"loss_print_every_n_iter = {stated}", *stamped(40, 80, 120)])
    assert print_interval(log, STAMPS) == 40
    assert STAMPS.throughput(log, 4) == pytest.approx(4 * 40)


def test_rows_from_step_0_on_are_printed_every_iteration():
    log = parse([d_row(n, stamp=f" {100 + n}.0") for n in range(3)])
    assert log.rows[0].step == 0
    assert print_interval(log, STAMPS) == 1


def test_stamps_less_than_a_second_apart_are_taken():
    assert STAMPS.throughput(parse(stamped(20, 40, every_s=0.5)), 4) == pytest.approx(4 * 20 / 0.5)


def test_as_many_rows_as_a_rule_needs_are_enough():
    log = parse([d_row(10, rate="3.0"), d_row(20, rate="4.0"), d_row(30, rate="6.0")])
    assert LastRows(rows=3).throughput(log) == pytest.approx(13 / 3)
    assert LastRows(rows=2).throughput(log) == pytest.approx(5), "the last two"
    assert MeanRows(skip_first=2).throughput(log) == pytest.approx(6)


@pytest.mark.parametrize(("rate", "positive"), [("0.25", True), ("0.0", False), ("-0.5", False), ("inf", False)])
def test_a_throughput_is_a_positive_number_however_small(rate, positive):
    log = parse([d_row(10), d_row(20, rate=rate)])
    rule = LastRows(rows=1)
    if positive:
        assert rule.throughput(log) == 0.25
    else:
        with pytest.raises(RuleError, match="not a positive number"):
            rule.throughput(log)


def test_the_latency_of_the_last_rows_is_the_mean_of_what_they_print():
    log = parse(
        [HEADER, *(e_row(n, rate=512 / seconds, latency=seconds) for n, seconds in ((1, 9.0), (2, 2.0), (3, 4.0)))]
    )
    rule = LastRows(rows=2)
    assert rule.latency_ms(log) == pytest.approx(3000.0)
    assert rule.throughput(log) == pytest.approx((256 + 128) / 2)
    unprinted = parse([d_row(10, rate="2.0"), d_row(20, rate="4.0")])
    assert rule.latency_ms(unprinted, 6) == pytest.approx(1000 * 6 / 3), "else it is batch over throughput"


RULES = (MeanRows(skip_first=1), Stamps(first_row=1, last_row=6), LastRows(rows=5))


def test_each_kind_has_a_class_that_says_all_about_it():
    assert set(kinds()) == {rule.kind for rule in RULES}
    for rule in RULES:
        assert rule_of(asdict(rule)) == rule
        assert str(tuple(rule.parameters.values())[-1]) in rule.words.format(**rule.parameters)
        assert rule.reads.format(**rule.parameters)


def test_a_record_of_the_first_runs_names_the_parameters_of_every_kind():
    recorded = {"kind": "last_rows", "skip_first": None, "first_row": None, "last_row": None, "rows": 5, "repeats": 1}
    assert rule_of(recorded) == LastRows(rows=5)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.kind)
def test_a_rule_is_stated_unless_a_report_does_not_and_its_kind_is_its_classes(rule):
    assert rule.stated and rule.same_rows is (rule.kind == "stamps")
    with pytest.raises(TypeError, match="kind"):
        type(rule)(kind="other", **rule.parameters)


@pytest.mark.parametrize(
    ("kind", "name", "least"),
    [(MeanRows, "skip_first", 0), (Stamps, "first_row", 1), (Stamps, "last_row", 2), (LastRows, "rows", 1)],
)
def test_a_parameter_is_a_whole_number_that_has_a_least(kind, name, least):
    assert kind.keys[name](least) is None and f"at least {least}" in kind.keys[name](least - 1)


def test_the_last_row_is_behind_the_first():
    assert Stamps.fault({"first_row": 1, "last_row": 2}) is None
    assert Stamps.fault({"first_row": 2, "last_row": 2}) == ("last_row", "is 2; must be above first_row, 2")


def test_the_rows_that_a_rule_averages():
    rows = [1, 2, 3, 4, 5]
    assert [list(rule.averaged(rows)) for rule in (MeanRows(skip_first=1), LastRows(rows=2), STAMPS)] == [
        [2, 3, 4, 5],
        [4, 5],
        [],
    ]


def test_rules_from_outside_are_loaded_from_the_folders_that_have_some(tmp_path, monkeypatch):
    for name in ("with", "without"):
        (tmp_path / name).mkdir()
    loaded = tmp_path / "loaded"
    (tmp_path / "with" / "rules.py").write_text(f"open({str(loaded)!r}, 'w').close()")
    monkeypatch.setattr(rules, "folders_of", lambda part: [str(tmp_path / name) for name in ("without", "with")])
    monkeypatch.setattr("sys.modules", {**sys.modules})
    assert kinds.__wrapped__().keys() >= {rule.kind for rule in RULES} and loaded.is_file()


@pytest.mark.parametrize(("rule", "rows"), list(zip(RULES, (2, 6, 6), strict=True)))
def test_a_first_row_counts_only_where_the_rule_says_so(rule, rows):
    assert rule.least_rows == rows


def test_a_log_of_another_length_is_read_by_all_its_stamps():
    assert list(STAMPS.nearest(parse(stamped(20, 40, 60)))) == [Stamps(first_row=1, last_row=3)]
    assert list(STAMPS.nearest(parse(stamped(20, 40, 50)))) == [Stamps(first_row=1, last_row=2)]
    from_0 = parse([d_row(n, stamp=f" {100 + n}.0") for n in range(3)])
    assert list(STAMPS.nearest(from_0)) == [Stamps(first_row=1, last_row=2)], "one row an iteration"
    assert list(STAMPS.nearest(parse([a_row(20), a_row(40)]))) == []
    assert list(STAMPS.nearest(parse(stamped(20)))) == [Stamps(first_row=1, last_row=1)]
    assert list(MeanRows(skip_first=1).nearest(parse(A))) == []
