"""The measuring rules: the window that each reads, and what it refuses."""

import pytest

from repro.published.cases import Rule
from repro.published.logs import LogError, parse
from repro.published.rules import RuleError, latency_ms, throughput
from tests.support.log_rows import A, B, C, a_row, d_row


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
