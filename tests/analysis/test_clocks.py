"""The times of an attempt contradict each other from the stated bounds on, and not before."""

from dataclasses import replace
from itertools import pairwise

import pytest

from repro.analysis.clocks import contradictions
from repro.planning.plan import Wanted, make_plan
from repro.published.cases import load_catalogue
from repro.runs.metrics import METRICS
from tests.support import raw_output
from tests.support.attempts import recorded
from tests.support.configs import configured

CASE = load_catalogue().case("DP_8x1x1_16_1536x16")
(UNIT,) = make_plan([CASE], 8, Wanted(scale="published", repeats=1)).units
ON_PROCESSORS = configured(UNIT, device="cpu")
INTERVAL, BATCH = UNIT.config.log_interval, UNIT.global_batch
SPEED = 40.0
ROW = INTERVAL * BATCH / SPEED
"""Seconds of a row."""
ROWS = UNIT.config.iterations // INTERVAL
SPAN = (ROWS - 1) * ROW
WHOLE = ROWS * ROW
ATTEMPT = {"folder": "x", "started": 999.0, "wall_s": WHOLE + 2}
RANK_0, RANK_1 = METRICS.format(0), METRICS.format(1)


def events(**edits):
    """A rank's events from 1000.0 on at one speed; `edits` add to the keys of an event, by its number from 0."""
    found = raw_output.events(UNIT, SPEED, 1000.0)
    for number, change in edits.items():
        row = found[int(number.removeprefix("event"))]
        row.update({key: row[key] + more for key, more in change.items()})
    return found


def said(*ranks, unit=UNIT, **changes):
    return [(each.what, *each.says) for each in contradictions(unit, recorded(ATTEMPT | changes), ranks)]


def whats(*ranks, **changes):
    return [what for what, *_ in said(*ranks, **changes)]


def test_times_that_agree_are_not_named():
    assert said(events()) == [] == said(events(), events(), events())


# Rows


@pytest.mark.parametrize("sign", [1, -1])
def test_a_row_takes_the_time_between_its_stamps(sign):
    allowed = 0.001 * ROW + 0.001
    assert said(events(event3={"time": sign * 0.98 * allowed})) == []
    found = said(events(event3={"time": sign * 1.02 * allowed}))
    assert found == [
        (
            f"seconds of the row of iteration {3 * INTERVAL} and of 1 others",
            (f"its latency in {RANK_0}", pytest.approx(ROW)),
            ("the clock", pytest.approx(ROW + sign * 1.02 * allowed)),
        )
    ]


def test_rows_that_the_rule_reads_made_faster_and_others_slower_are_named():
    """The whole is as long as before: only each row's own time tells."""
    faster = {f"event{number}": {"latency_ms": -0.01 * 1e3 * ROW / INTERVAL} for number in range(5, 9)}
    slower = {f"event{number}": {"latency_ms": 0.01 * 1e3 * ROW / INTERVAL} for number in range(1, 5)}
    found = whats(events(**faster, **slower))
    assert found[0] == f"seconds of the row of iteration {INTERVAL} and of 7 others"


def test_many_rows_that_are_each_within_the_bound_are_not_together():
    each = 0.0009 * ROW + 0.0009
    late = {f"event{number}": {"time": (number - 1) * each} for number in range(2, ROWS + 2)}
    assert whats(events(**late)) == [f"seconds from iteration {INTERVAL} to {ROWS * INTERVAL}"]
    ended = {f"event{ROWS + 1}": {"time": 1.0}}
    assert said(events(**{f"event{ROWS}": {"time": 0.9 * each}}, **ended)) == []


@pytest.mark.parametrize(("later", "named"), [(0.49, False), (0.51, True), (-0.002, False), (-0.006, True)])
def test_the_first_row_begins_soon_after_the_start(later, named):
    found = whats(events(event0={"time": -later}), started=998.0)
    assert found == ([f"seconds of the row of iteration {INTERVAL}"] if named else [])


def test_a_rank_without_a_start_event_or_rows_has_no_times_to_compare():
    written = events()
    del written[0]["time"]
    assert said(written) == []
    assert said([written[-1]]) == [] and said([events()[0], events()[1]]) == []


def test_throughput_and_latency_of_a_row_are_of_one_batch():
    assert said(events(event2={"throughput": 0.0009 * SPEED})) == []
    for factor in (0.0011, -0.0011):
        found = said(events(event2={"throughput": factor * SPEED}))
        assert found == [
            (
                f"samples per iteration in the row of iteration {2 * INTERVAL} of {RANK_0}",
                ("throughput times latency", pytest.approx(BATCH * (1 + factor))),
                ("the plan", BATCH),
            )
        ]


def test_the_first_of_several_rows_of_another_batch_is_named():
    ((what, (_, samples), _),) = said(events(event2={"throughput": 4.0}, event5={"throughput": 8.0}))
    assert what == f"samples per iteration in the row of iteration {2 * INTERVAL} and of 1 others of {RANK_0}"
    assert samples == pytest.approx(1.1 * BATCH)


def test_a_second_start_event_begins_no_row():
    """Who counts start events names it (`repro.analysis.what_ran`)."""
    written = events()
    assert said([written[0], *written]) == []


@pytest.mark.parametrize("sign", [1, -1])
def test_a_row_exactly_at_the_bound_is_within(sign):
    """Rows without a duration: the bound is its part in seconds alone."""
    rows = [{"event": "iteration", "iteration": at, "latency_ms": 0.0, "throughput": 0.0} for at in (1, 2)]
    written = [row | {"time": time} for row, time in zip(rows, (0.0, sign * 0.001), strict=True)]
    assert not [what for what in whats(written, nodes=["a"]) if what.startswith("seconds")]


def test_the_rows_of_every_rank_have_times_of_their_own():
    found = whats(events(), events(event3={"latency_ms": 50}))
    assert found[0] == f"seconds of the row of iteration {3 * INTERVAL}" and len(found) == 3


# Order


def test_events_follow_each_other():
    swapped = events()
    swapped[2], swapped[3] = swapped[3], swapped[2]
    assert [what for what in whats(swapped) if what == f"order of events in {RANK_0}"]
    late = events()
    late[-1]["time"] = late[-2]["time"] - 0.001
    assert (f"order of events in {RANK_0}", ("iteration", late[-2]["time"]), ("end", late[-1]["time"])) in said(late)
    late[-1]["time"] = late[-2]["time"]
    assert said(late) == []
    again = events()
    again[3] = {**again[3], "iteration": 1}
    assert (f"order of events in {RANK_0}", ("iteration", 2 * INTERVAL), ("iteration", 1)) in said(again)


# Ranks


@pytest.mark.parametrize("sign", [1, -1])
def test_another_rank_takes_as_long_from_start_to_end(sign):
    allowed = 0.005 * (WHOLE + 1) + 0.3 + ROW / INTERVAL
    end = f"event{ROWS + 1}"
    early = {f"event{number}": {"time": -2.0} for number in range(ROWS + 1)}
    for share, named in ((0.98, False), (1.02, True)):
        other = events(**early, **{end: {"time": sign * share * allowed - 1.0}})
        found = said(events(**{end: {"time": 1.0}}), other, nodes=["a"])
        assert found == (
            [
                (
                    "seconds from start to end",
                    (RANK_0, pytest.approx(WHOLE + 1)),
                    (RANK_1, pytest.approx(WHOLE + 1 + sign * share * allowed)),
                )
            ]
            if named
            else []
        )


def shifted(rank, seconds, rows):
    """A rank's events with the stamps and latencies of some rows moved, so that its own times agree."""
    for number in rows:
        rank[number]["time"] += seconds
    for before, row in pairwise(rank[:-1]):
        elapsed = row["time"] - before["time"]
        row["latency_ms"] = 1e3 * elapsed / INTERVAL
        row["throughput"] = BATCH * INTERVAL / elapsed
    return rank


@pytest.mark.parametrize("sign", [1, -1])
def test_a_rank_that_waits_prints_its_rows_when_rank_0_does(sign):
    at = 4
    allowed = 0.005 * (at - 1) * ROW + 0.3
    for share, named in ((0.98, False), (1.02, True)):
        found = said(events(), shifted(events(), sign * share * allowed, [at]))
        own = (at - 1) * ROW
        says = (RANK_0, pytest.approx(own)), (RANK_1, pytest.approx(own + sign * share * allowed))
        assert found == ([(f"seconds from iteration {INTERVAL} to {at * INTERVAL}", *says)] if named else [])


def without_losses(rank):
    return [{key: value for key, value in event.items() if key != "loss"} for event in rank]


def test_a_rank_that_does_not_wait_prints_its_rows_before_rank_0():
    ahead = shifted(events(), -0.5 * ROW, range(2, ROWS + 1))
    assert said(events(), without_losses(ahead)) == []
    assert whats(events(), ahead) != []
    assert said(events(), [*ahead[:2], *without_losses(ahead)[2:]]) == [], "it waited for one row only"
    at = ROWS
    late = shifted(events(event9={}), 0.98 * (0.005 * (at - 1) * ROW + 0.3), [at])
    late[-1]["time"] = max(late[-1]["time"], late[at]["time"])
    assert "seconds from iteration" not in " ".join(whats(events(), without_losses(late)))
    late = shifted(events(), 2.0, [4])
    named = [f"seconds from iteration {INTERVAL} to {4 * INTERVAL}"]
    assert whats(events(), without_losses(late)) == named
    ends = {f"event{ROWS + 1}": {"time": 3.0}}
    late = shifted(events(**ends), 2.0, [4])
    assert whats(events(**ends), without_losses(late), wall_s=WHOLE + 5) == named, "ends may come long after the rows"


def test_a_rank_may_end_an_iteration_before_the_one_that_has_the_losses():
    """Rank 0 ends while the iterations of a pipeline that it waits for take 1.46 s, and 1.3 s after another rank."""
    slow = {f"event{ROWS}": {"latency_ms": 1460.0 - 1e3 * ROW / INTERVAL}}
    other = events(**{f"event{ROWS + 1}": {"time": -1.3}})
    assert "seconds from start to end" not in whats(events(**slow), other, nodes=["a"])
    assert "seconds from start to end" in whats(events(), other, nodes=["a"])


@pytest.mark.parametrize(
    ("left", "iterations", "named"), [(4, 3.9, False), (4, 4.5, True), (0, 0.9, False), (0, 1.5, True)]
)
def test_a_rank_without_losses_may_end_the_iterations_after_the_last_row_before_rank_0(left, iterations, named):
    """Rank 0 gathers losses at its rows, and only there the others wait for it."""
    slow = {f"event{ROWS}": {"latency_ms": 1460.0 - 1e3 * ROW / INTERVAL}}
    longer = configured(UNIT, iterations=UNIT.config.iterations + left)
    other = without_losses(events(**{f"event{ROWS + 1}": {"time": -1.46 * iterations}}))
    differing = whats(events(**slow), other, unit=longer, nodes=["a"])
    assert ("seconds from start to end" in differing) == named


@pytest.mark.parametrize("more", [{"loss": 1.0}, {}], ids=["waits", "does not wait"])
def test_a_rank_exactly_at_the_bound_is_within(more):
    """Rows and ends at one time on rank 0: the bound is its part in seconds alone."""
    rows = [{"event": "iteration", "iteration": at, "latency_ms": 0.0, "throughput": 0.0, **more} for at in (1, 2)]

    def rank(row, end):
        times = zip(({"event": "start"}, *rows, {"event": "end"}), (0.0, 0.0, row, end), strict=True)
        return [event | {"time": time} for event, time in times]

    for row, end in ((0.3, 0.0), (0.0, 0.3)):
        differing = said(rank(0.0, 0.0), rank(row, end), nodes=["a"])
        assert RANK_0 not in [source for _, (source, _), _ in differing]


def test_clocks_of_other_nodes_may_be_set_differently():
    """All ranks end together, so the ends tell how far a clock is ahead."""
    other = events(**{f"event{number}": {"time": 60.0} for number in range(ROWS + 2)})
    assert said(events(), other, nodes=["a", "b"]) == [] == said(events(), without_losses(other), nodes=["a", "b"])
    assert whats(events(), other) == ["time of the attempt"], "on one machine there is one clock"


def test_a_rank_without_rows_or_ends_is_compared_as_far_as_it_goes():
    assert said(events(), [events()[0]]) == [] == said(events(), [])


def test_ranks_on_a_busy_processor_lag():
    late = events(
        **{f"event{number}": {"time": 1.5} for number in range(ROWS + 1)}, **{f"event{ROWS + 1}": {"time": 3.0}}
    )
    assert whats(events(), late, wall_s=WHOLE + 4) == ["seconds from start to end"]
    assert said(events(), late, unit=ON_PROCESSORS, wall_s=WHOLE + 4) == []


# The record


@pytest.mark.parametrize(
    ("started", "wall_s", "named"),
    [
        *((1000.04, WHOLE, False), (1000.06, WHOLE, True), (999.0, WHOLE + 0.96, False), (999.0, WHOLE + 0.94, True)),
        *((1000.0 + 0.05, WHOLE, False), (1000.0, WHOLE - 0.05, False)),
    ],
)
def test_all_lies_within_the_time_of_the_attempt(started, wall_s, named):
    found = said(events(), started=started, wall_s=wall_s)
    assert found == (
        [
            (
                "time of the attempt",
                ("attempts.jsonl", f"{started} to {started + wall_s}"),
                (RANK_0, f"1000.0 to {1000.0 + WHOLE}"),
            )
        ]
        if named
        else []
    )
    assert said(events(), started=started, wall_s=wall_s, nodes=["a"]) == []


@pytest.mark.parametrize(
    ("count", "wall_s", "named"),
    [(10, 44.1, False), (10, 44.0, False), (10, 43.9, True), (10, 500.0, False), (1, 2.0, False), (0, 2.0, False)],
)
def test_an_attempt_takes_at_least_as_long_as_its_gpus_are_sampled(count, wall_s, named):
    samples = [{"index": index} for index in ("0", "1") for _ in range(count)] + [{"index": "2"}] * (count > 0)
    attempt = recorded(ATTEMPT | {"started": 999.0, "wall_s": wall_s})
    found = [
        (each.what, *each.says)
        for each in contradictions(UNIT, attempt, [events()], samples)
        if each.what == "seconds of the attempt"
    ]
    assert found == (
        [("seconds of the attempt", ("attempts.jsonl", wall_s), ("10 samples in gpu.csv", "45 at least"))]
        if named
        else []
    )
    nodes = contradictions(UNIT, replace(attempt, nodes=("a",)), [events()], samples)
    assert "seconds of the attempt" not in [each.what for each in nodes]


def test_on_processors_a_row_may_be_stamped_later_than_it_ended():
    """What a rank on a busy processor did in two virtual machines: 16 ms passed between its two readings."""
    late = {"event3": {"time": 0.016}, "event4": {"time": 0.016}}
    assert whats(events(**late))
    assert whats(events(**late), unit=ON_PROCESSORS) == []
    allowed = 0.001 * ROW + 0.5
    assert whats(events(event3={"time": 0.98 * allowed}), unit=ON_PROCESSORS) == []
    assert whats(events(event3={"time": 1.02 * allowed}), unit=ON_PROCESSORS)
