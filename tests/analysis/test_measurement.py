"""What a run records of an attempt: rank 0's events, and its log by the report's rule."""

import math

import pytest

from repro.analysis.measurement import LOG, LOSSES_KEPT, RankZero, measure, read_log
from repro.planning.plan import PARITY_ITERATIONS, Wanted, make_plan
from repro.published.cases import load_catalogue
from repro.published.logs import LogError
from repro.runs.record import LAST_LOSSES
from tests.support import raw_output

CASE = load_catalogue().case("DP_1x1x1_2_1536x16")
(UNIT,) = make_plan([CASE], 1, Wanted(scale="published", repeats=1)).units


def iteration(number, **values):
    return {"event": "iteration", "iteration": number, "time": 1000.0 + number, "loss": 10.0 - number / 100, **values}


def seen(*events, started=990.0):
    rank_zero = RankZero(started)
    for event in events:
        rank_zero.see(event)
    return rank_zero


@pytest.mark.parametrize("readings", [[100, 400, 250], [400, 100], [100, 400], [7]])
def test_the_recorded_memory_is_the_largest_reading(readings):
    found = seen(*(iteration(number, memory_mib=each) for number, each in enumerate(readings, 1))).figures()
    assert found["memory_peak_mib"] == max(readings)


def test_a_row_without_a_reading_counts_as_none_in_use():
    assert (
        seen(iteration(1), iteration(2, memory_mib=None), iteration(3, memory_mib=5)).figures()["memory_peak_mib"] == 5
    )
    assert seen(iteration(1)).figures()["memory_peak_mib"] == 0
    assert seen().figures()["memory_peak_mib"] is None


def test_the_first_row_is_timed_from_the_attempts_start():
    assert seen(iteration(1), iteration(2)).figures()["first_row_s"] == pytest.approx(1001.0 - 990.0)
    assert seen().figures()["first_row_s"] is None


def test_the_first_and_the_last_losses_are_kept():
    assert max(2 * LAST_LOSSES, PARITY_ITERATIONS) == LOSSES_KEPT >= 2 * LAST_LOSSES
    count = LOSSES_KEPT + 3
    losses = [10.0 - number / 100 for number in range(1, count + 1)]
    found = seen(*(iteration(number) for number in range(1, count + 1))).figures()
    assert found["losses"] == losses[:LOSSES_KEPT]
    assert found["last_losses"] == losses[-LAST_LOSSES:]


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_the_first_lost_loss_is_named(loss):
    lost = seen(iteration(10), iteration(20, loss=loss), iteration(30, loss=math.nan)).no_number()
    assert lost.values == {"iteration": 20}
    assert seen(iteration(10), iteration(20)).no_number() is None


def test_start_end_and_census_are_told_apart():
    found = seen(
        {"event": "start", "versions": {"oneflow": "0.8.0"}, "parameters": 3, "data": {"kind": "synthetic"}},
        {"event": "loss", "iteration": 1, "loss": 1.0},
        {"event": "census", "operators": {"matmul": 2}},
        iteration(1),
        {"event": "end", "peak_allocated_mib": 12.5},
    ).figures()
    assert found["versions"] == {"oneflow": "0.8.0"} and found["parameters"] == 3
    assert found["data"] == {"kind": "synthetic"} and found["operators"] == {"matmul": 2}
    assert found["memory_allocated_mib"] == 12.5 and found["losses"] == [9.99]


def test_a_log_is_measured_by_the_units_rule(tmp_path):
    raw_output.write(tmp_path, UNIT, 4.0, 1000.0, memory_mib=11066)
    found = measure(UNIT, read_log(tmp_path))
    assert found == {
        "generation": "E",
        "throughput": pytest.approx(4.0),
        "latency_ms": pytest.approx(1000 * UNIT.global_batch / 4.0),
        "memory_mib": 11066,
    }


def test_a_log_that_is_not_there_is_named(tmp_path):
    with pytest.raises(LogError, match="cannot be read") as caught:
        read_log(tmp_path)
    assert caught.value.path == LOG
