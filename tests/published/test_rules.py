"""The measuring rules: the window that each reads, and what it refuses."""

import re

import pytest

from repro.published.cases import Rule
from repro.published.logs import LogError, parse
from repro.published.rules import RuleError, latency_ms, print_interval, throughput
from tests.support.log_rows import HEADER, A, B, C, a_row, d_row, e_row


def test_stamps_give_the_published_window():
    rule = Rule("stamps", first_row=1, last_row=6)
    assert throughput(parse(B), rule, 2048) == pytest.approx(2048 * 100 / (1597933977.6064055 - 1597933942.9863544))
    assert latency_ms(parse(C), rule) == pytest.approx(10 * (1598056537.0029895 - 1598056519.8844702))


def test_stamps_are_taken_within_one_epoch():
    log = parse(
        [a_row(n, epoch=epoch, stamp=f" {1600000000 + n + 1000 * epoch}") for epoch in (0, 1) for n in (20, 40, 60)]
    )
    assert [row.step for row in log.rows] == [20, 40, 60, 80, 100, 120]
    with pytest.raises(RuleError, match="from step 20 to 60"):
        throughput(log, Rule("stamps", first_row=1, last_row=6), 4)
    with pytest.raises(RuleError, match="rows of the first epoch"):
        throughput(parse([a_row(20, epoch=3, stamp=" 1.0")]), Rule("stamps", first_row=1, last_row=6), 4)


def test_stamps_that_do_not_grow_are_refused():
    log = parse([a_row(20, stamp=" 1600000001"), a_row(40, stamp=" 1600000001")])
    with pytest.raises(RuleError, match=r"lie 0\.0 s"):
        throughput(log, Rule("stamps", first_row=1, last_row=2), 4)


def test_scaled_log_that_prints_every_iteration_keeps_the_published_rows():
    log = parse(
        [
            f"step: {n}, total_loss: 9.000, mlm_loss: 8.000, nsp_loss: 1.000, throughput: 4.000 {100 + n * 2}"
            for n in range(10)
        ]
    )
    assert throughput(log, Rule("stamps", first_row=1, last_row=6), 8) == pytest.approx(4)


def test_a_lost_first_row_is_not_taken_for_the_print_interval():
    log = parse([a_row(n, stamp=f" {1600000000 + n}") for n in range(40, 300, 20)])
    with pytest.raises(RuleError, match="not printed every 40 iterations"):
        throughput(log, Rule("stamps", first_row=1, last_row=6), 4)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (Rule("mean_rows", skip_first=2), "needs 3 rows, the log holds 2"),
        (Rule("last_rows", rows=5), "needs 5 rows, the log holds 2"),
        (Rule("stamps", first_row=1, last_row=2), "no Unix stamp"),
    ],
)
def test_too_little_for_the_rule(rule, message):
    with pytest.raises(RuleError, match=message):
        throughput(parse([a_row(20), a_row(40)]), rule, 8)


def test_throughput_that_is_no_number_is_refused():
    log = parse([d_row(10), d_row(20, rate="nan"), d_row(30)])
    with pytest.raises(RuleError, match="not a positive number"):
        throughput(log, Rule("mean_rows", skip_first=1))


def test_latency_without_printed_latency_needs_the_batch():
    log = parse(A)
    assert latency_ms(log, Rule("mean_rows", skip_first=1), 128) == pytest.approx(128000 / 385.0957, rel=1e-6)
    with pytest.raises(RuleError, match="global batch"):
        latency_ms(log, Rule("mean_rows", skip_first=1))


def test_the_error_names_the_rule_and_the_log_and_is_an_error_of_the_log():
    with pytest.raises(LogError) as error:
        throughput(parse(A), Rule("last_rows", rows=50))
    assert isinstance(error.value, RuleError)
    assert str(error.value) == f"{A}: the rule 'last_rows' cannot be applied: it needs 50 rows, the log holds 10"


def stamped(*steps, every_s=1.0):
    return [a_row(step, stamp=f" {1600000000 + number * every_s}") for number, step in enumerate(steps)]


STAMPS = Rule("stamps", first_row=1, last_row=2)


@pytest.mark.parametrize(
    ("stated", "row"),
    [(20, "row 1 (step 20) is missing"), (1, "row 1 (step 1) is missing")],
)
def test_the_print_interval_that_a_log_states_goes_before_its_first_row(stated, row):
    log = parse([f"loss_print_every_n_iter = {stated}", *stamped(40, 80, 120)])
    with pytest.raises(RuleError, match=re.escape(row)):
        throughput(log, STAMPS, 4)


@pytest.mark.parametrize("stated", ["0", "-20", "x"])
def test_a_print_interval_that_is_none_is_not_taken(stated):
    log = parse([f"loss_print_every_n_iter = {stated}", *stamped(40, 80, 120)])
    assert print_interval(log, STAMPS) == 40
    assert throughput(log, STAMPS, 4) == pytest.approx(4 * 40)


def test_rows_from_step_0_on_are_printed_every_iteration():
    log = parse([d_row(n, stamp=f" {100 + n}.0") for n in range(3)])
    assert log.rows[0].step == 0
    assert print_interval(log, STAMPS) == 1


def test_stamps_less_than_a_second_apart_are_taken():
    assert throughput(parse(stamped(20, 40, every_s=0.5)), STAMPS, 4) == pytest.approx(4 * 20 / 0.5)


def test_as_many_rows_as_a_rule_needs_are_enough():
    log = parse([d_row(10, rate="3.0"), d_row(20, rate="4.0"), d_row(30, rate="6.0")])
    assert throughput(log, Rule("last_rows", rows=3)) == pytest.approx(13 / 3)
    assert throughput(log, Rule("last_rows", rows=2)) == pytest.approx(5), "the last two"
    assert throughput(log, Rule("mean_rows", skip_first=2)) == pytest.approx(6)


@pytest.mark.parametrize(("rate", "positive"), [("0.25", True), ("0.0", False), ("-0.5", False), ("inf", False)])
def test_a_throughput_is_a_positive_number_however_small(rate, positive):
    log = parse([d_row(10), d_row(20, rate=rate)])
    rule = Rule("last_rows", rows=1)
    if positive:
        assert throughput(log, rule) == 0.25
    else:
        with pytest.raises(RuleError, match="not a positive number"):
            throughput(log, rule)


def test_the_latency_of_the_last_rows_is_the_mean_of_what_they_print():
    log = parse(
        [HEADER, *(e_row(n, rate=512 / seconds, latency=seconds) for n, seconds in ((1, 9.0), (2, 2.0), (3, 4.0)))]
    )
    rule = Rule("last_rows", rows=2)
    assert latency_ms(log, rule) == pytest.approx(3000.0)
    assert throughput(log, rule) == pytest.approx((256 + 128) / 2)
    unprinted = parse([d_row(10, rate="2.0"), d_row(20, rate="4.0")])
    assert latency_ms(unprinted, rule, 6) == pytest.approx(1000 * 6 / 3), "else it is batch over throughput"
