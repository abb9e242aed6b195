"""A run's figures are read again from what its ranks wrote; tests/attacks bends every part of a kept run."""

import json
import time

import pytest

from repro.analysis.adapter_traffic import FILE
from repro.analysis.difference import Difference
from repro.analysis.evidence import (
    Evidence,
    _as_recorded,
    _log_and_metrics,
    _losses_of_rank,
    _of_configuration,
    _of_record,
    examine,
    require,
)
from repro.analysis.measurement import LOG
from repro.analysis.verification import verify
from repro.planning.plan import Wanted, make_plan
from repro.published.cases import load_catalogue
from repro.published.logs import parse
from repro.runs.digests import REPRODUCED
from repro.runs.history import History
from repro.runs.manifest import record
from repro.runs.metrics import METRICS
from repro.runs.record import RecordError, Run
from tests.support import raw_output
from tests.support.attempts import recorded
from tests.support.configs import configured
from tests.support.synthetic import add_attempt, edit_starts, environment, published_run

KEPT = sorted(REPRODUCED.glob("*/runs/[0-9]*.zip"))
CASE = load_catalogue().case("DP_8x1x1_16_1536x16")


@pytest.fixture
def run(tmp_path):
    return published_run(tmp_path, [CASE.name], (1.0, 1.01))


@pytest.mark.parametrize("archive", KEPT, ids=lambda path: path.stem)
def test_every_kept_run_is_what_its_raw_output_gives(archive):
    began = time.process_time()
    found = examine(Run(archive))
    assert found.lines() == [] and found.attempts > 0
    assert time.process_time() - began < 10, "reading a run again must not make its pages slow"


@pytest.mark.parametrize("name", ["resnet50_0808_1n8g_bs160", "bert_1n8g_bs96", "gpt2_small_1n8g_bs4_zero1"])
def test_every_generation_of_log_is_read_again(tmp_path, name):
    run = published_run(tmp_path, [name], (1.0, 1.001, 0.999))
    assert examine(run).holds and examine(run).attempts == 3


def test_an_older_run_that_lacks_a_newer_figure_is_read(run):
    lines = [json.loads(line) for line in run.attempts_file.read_text().splitlines()]
    without = [{name: value for name, value in line.items() if name != "memory_allocated_mib"} for line in lines]
    run.attempts_file.write_text("".join(json.dumps(line) + "\n" for line in without))
    assert examine(run).holds
    none = [{name: value for name, value in line.items() if name != "throughput"} for line in lines]
    run.attempts_file.write_text("".join(json.dumps(line) + "\n" for line in none))
    assert [line.partition(": ")[2].partition(" in ")[0] for line in examine(run).lines()] == ["throughput: None"] * 2


def test_fewer_losses_than_a_run_records_are_named(run):
    lines = [json.loads(line) for line in run.attempts_file.read_text().splitlines()]
    lines[0]["losses"] = lines[0]["losses"][:3]
    run.attempts_file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (found,) = examine(run).lines()
    assert "losses: [" in found


def test_damaged_metrics_are_named_by_file_and_line(run):
    metrics = next(run.folder.rglob(METRICS.format(3)))
    lines = metrics.read_text().splitlines()
    metrics.write_text("\n".join([lines[0], "{", *lines[1:], ""]))
    (found,) = examine(run).lines()
    where = metrics.parent.relative_to(run.folder)
    assert found == f"{where}: line 2 of {METRICS.format(3)}: an event in attempts.jsonl, {{ in its folder"


def test_an_unreadable_file_is_named(run):
    config = next(run.folder.rglob(METRICS.format(0))).with_name("config.json")
    config.write_text("{\n")
    (found,) = examine(run).lines()
    assert found.startswith(f"{config.parent.relative_to(run.folder)}: files: whole in attempts.jsonl, unreadable")


def test_a_failed_attempt_claims_nothing_and_a_killed_one_is_no_contradiction(run):
    add_attempt(run, CASE, 1, status="failed")
    add_attempt(run, CASE, 2, status="interrupted")
    assert examine(run).holds
    killed = run.attempt_folder(CASE.name, 3)
    found = examine(run)
    assert found.differences == () and found.unrecorded == (killed.relative_to(run.folder).as_posix(),)
    assert "it was killed with its run" in found.lines()[0]
    require(run)


def test_a_failure_whose_ranks_all_reached_their_end_is_remarked(run):
    add_attempt(run, CASE, 3, status="failed")
    (*others, failed) = lines_of(run)
    metrics = run.folder / failed["folder"] / METRICS.format(3)
    whole = metrics.read_text()

    def remarked():
        return [str(remark) for remark in examine(run).remarks if "recorded as" in str(remark)]

    text = f"{failed['folder']}: recorded as failed, although all of its ranks trained to their end"
    assert remarked() == [text]
    for cut in ("".join(whole.splitlines(keepends=True)[:-1]), ""):
        metrics.write_text(cut)
        assert remarked() == []
    metrics.write_text(whole)
    for changes in ({"unit": "another"}, {"folder": "elsewhere"}):
        run.attempts_file.write_text("".join(json.dumps(line) + "\n" for line in (*others, failed | changes)))
        assert remarked() == []


@pytest.mark.parametrize("cluster", [{}, {"hosts": ["node1"]}])
def test_gpus_of_a_cluster_s_nodes_are_not_those_of_the_controller(tmp_path, cluster):
    run = published_run(tmp_path, [CASE.name], (1.0,), env=environment(cluster=cluster))
    edit_starts(run, lambda start: start | {"gpu": "NVIDIA H100"})
    assert ("GPU" in {difference.what for difference in examine(run).differences}) is not bool(cluster)


def test_counters_that_were_recorded_are_in_the_attempt_s_folder(run):
    record_again(run, lambda line: line.update(adapters={"node1": {}}))
    assert said(examine(run).differences) == [("adapters", (RECORD, {"node1": {}}), (FILE.format("*"), {}))]


def test_a_unit_of_another_plan_is_named(run):
    lines = run.attempts_file.read_text().splitlines(keepends=True)
    run.attempts_file.write_text(lines[0] + lines[1].replace(CASE.name, "another"))
    assert any(
        "line 2: unit: another in the record, none of this name in the plan" in each for each in examine(run).lines()
    )
    with pytest.raises(RecordError, match="is not as it was recorded"):
        require(run)


def test_a_commit_is_there_absent_or_unknown_and_each_is_said(run):
    lines = [json.loads(line) for line in run.attempts_file.read_text().splitlines()]
    run.attempts_file.write_text("".join(json.dumps(line | {"code": None}) + "\n" for line in lines))
    record(run)
    commit = run.description().environment.git_commit

    def said(past):
        found = verify(run, past)
        return [line for line in (*found.holds, *found.faults) if f"commit {commit[:12]}" in line], bool(found.faults)

    assert said(History(frozenset({commit}))) == ([f"commit {commit[:12]} is in the history"], False)
    (absent,), faulty = said(History(frozenset()))
    assert faulty and absent.startswith(f"commit {commit[:12]} is in no branch or tag here")
    (unknown,), faulty = said(History(frozenset(), "the clone is shallow"))
    assert not faulty and "NOT checked: the clone is shallow" in unknown


# How near is the same: each comparison by itself

(UNIT,) = make_plan([CASE], 8, Wanted(scale="published", repeats=1)).units
INTERVAL, ITERATIONS, BATCH = UNIT.config.log_interval, UNIT.config.iterations, UNIT.global_batch
SPEED = 40.0


def events(**edits):
    """Rank 0's events at one speed; `edits` change an iteration's event by its number among the rows, from 1."""
    found = raw_output.events(UNIT, SPEED, 1000.0)
    for number, change in edits.items():
        row = found[int(number.removeprefix("row"))]
        row.update({key: row[key] + more for key, more in change.items()})
    return found


def log_of(written):
    return parse(raw_output.log_text(UNIT, written).splitlines())


def names(differences):
    return [(each.what, [name for name, _ in each.says]) for each in differences]


@pytest.mark.parametrize(
    ("figure", "within", "beyond"),
    [("loss", 5.9e-4, 6.1e-4), ("throughput", 5.9e-4, 6.1e-4), ("latency_ms", 5.9e-3, 6.1e-3)],
)
def test_a_printed_figure_is_that_of_the_metrics_to_its_decimals(figure, within, beyond):
    log = log_of(events())
    for sign in (1, -1):
        assert names(_log_and_metrics("x", log, events(row2={figure: sign * within}))) == []
        found = names(_log_and_metrics("x", log, events(row2={figure: sign * beyond})))
        assert found == [(f"{figure} at iteration {2 * INTERVAL}", [LOG, METRICS.format(0)])]


def test_a_loss_that_the_log_has_by_a_rule_of_its_own_is_compared_with_that():
    """The ports print means as the published programs did, while the metrics have the last iteration's loss too."""
    written = events()
    log = log_of([{**event, "loss": event["loss"] / 8} if "loss" in event else event for event in written])
    assert names(_log_and_metrics("x", log, written))
    for event in written:
        if event["event"] == "iteration":
            event["printed_loss"] = event["loss"] / 8
    assert names(_log_and_metrics("x", log, written)) == []
    next(event for event in written if "printed_loss" in event)["printed_loss"] += 0.001
    assert names(_log_and_metrics("x", log, written)) == [(f"loss at iteration {INTERVAL}", [LOG, METRICS.format(0)])]


@pytest.mark.parametrize(("seconds", "named"), [(0.019, False), (0.021, True), (-0.019, False), (-0.021, True)])
def test_a_printed_stamp_is_the_time_of_its_event(seconds, named):
    case = load_catalogue().case("bert_1n8g_bs96")
    (unit,) = make_plan([case], 8, Wanted(scale="published", repeats=1)).units
    written = raw_output.events(unit, SPEED, 1000.0)
    log = parse(raw_output.log_text(unit, written).splitlines())
    written[3]["time"] += seconds
    found = [each for each in names(_log_and_metrics("x", log, written)) if each[0].startswith("time at")]
    assert bool(found) is named


def test_figures_that_are_no_numbers_differ():
    log = log_of(events())
    written = events()
    written[2]["loss"] = float("nan")
    assert [what for what, _ in names(_log_and_metrics("x", log, written))] == [f"loss at iteration {2 * INTERVAL}"]


def test_every_row_of_the_log_is_an_event_and_the_other_way_round():
    written = events()
    for log, seen in ((log_of(written), [*written[:3], *written[4:]]), (log_of(written[:-2]), written)):
        ((what, sources),) = names(_log_and_metrics("x", log, seen))
        assert (what, sources) == ("rows", [LOG, METRICS.format(0)])
    assert names(_log_and_metrics("x", log_of(written), [*written, {"event": "loss", "iteration": 1}])) == []


ROWS = ITERATIONS // INTERVAL


def rank(**edits):
    return [{**each, "rank": 3} for each in events(**edits)]


def test_another_rank_has_the_same_rows_and_losses():
    assert names(_losses_of_rank("x", events(), rank(), 3)) == []
    ((what, sources),) = names(_losses_of_rank("x", events(), rank(row2={"loss": 2e-6}), 3))
    assert (what, sources) == (f"loss at iteration {2 * INTERVAL}", [METRICS.format(0), METRICS.format(3)])
    assert names(_losses_of_rank("x", events(), rank(row2={"loss": 0.5e-6}), 3)) == []
    assert [what for what, _ in names(_losses_of_rank("x", events(), rank()[:-2], 3))] == ["iterations"]
    assert names(_losses_of_rank("x", events(), [], 3)) == [], "a rank that printed no row"


def attempt(repeat=1, number=1, unit=CASE.name, **changes):
    folder = f"units/{unit}/repeat-{repeat}.attempt-{number}"
    return recorded({"unit": unit, "repeat": repeat, "folder": folder, **changes})


PLAN = make_plan([CASE], 8, Wanted(scale="published", repeats=2))


@pytest.mark.parametrize(
    ("attempts", "left", "expected"),
    [
        ([attempt(), attempt(2)], [], []),
        ([attempt(status="failed"), attempt(number=2)], [], []),
        ([attempt(unit="other")], [], [("attempts.jsonl, line 1", "unit")]),
        ([attempt(), attempt(2, folder="units/x/repeat-2.attempt-1")], [], [("attempts.jsonl, line 2", "folder")]),
        ([attempt(folder=f"units/{CASE.name}/repeat-1.attempt-1x")], [], [("attempts.jsonl, line 1", "folder")]),
        (
            [attempt(status="failed"), attempt(status="failed")],
            [],
            [(f"units/{CASE.name}/repeat-1.attempt-1", "lines that record it")],
        ),
        ([attempt(), attempt(number=2)], [], [(f"units/{CASE.name}/repeat-1", "attempts that succeeded")]),
        ([attempt(number=2)], [], [(f"units/{CASE.name}/repeat-1.attempt-1", "attempt")]),
        (
            [attempt(number=4)],
            [f"units/{CASE.name}/repeat-1.attempt-2"],
            [(f"units/{CASE.name}/repeat-1.attempt-{number}", "attempt") for number in (1, 3)],
        ),
        ([attempt(number=2)], [f"units/{CASE.name}/repeat-1.attempt-1"], []),
        ([], [f"units/{CASE.name}/repeat-1.attempt-2"], [(f"units/{CASE.name}/repeat-1.attempt-1", "attempt")]),
    ],
)
def test_lines_of_a_record_that_no_run_writes_are_named(attempts, left, expected):
    assert [(each.where, each.what) for each in _of_record(PLAN, attempts, left)][: len(expected)] == expected
    if not expected:
        assert list(_of_record(PLAN, attempts, left)) == []


@pytest.mark.parametrize(
    ("recorded", "again", "same"),
    [
        (1.0, 1.0 + 0.9e-6, True),
        (1.0, 1.0 + 1.1e-6, False),
        (1e6, 1e6 + 0.9e-3, True),
        (1e6, 1e6 + 1.1e-3, False),
        (3, 3.0, True),
        ("a", "a", True),
        ("a", "b", False),
        (None, 0.0, False),
        (None, None, True),
        ([1.0], [1.0], True),
    ],
)
def test_figures_may_differ_by_the_order_of_a_sum(recorded, again, same):
    assert _as_recorded("throughput", recorded, again) is same


@pytest.mark.parametrize(
    ("recorded", "again", "same"), [(10, 30, True), (9, 30, False), (5, 5, True), (4, 5, False), (30, 10, False)]
)
def test_as_many_first_losses_are_recorded_as_any_release_recorded(recorded, again, same):
    losses = [10.0 - number / 100 for number in range(40)]
    assert _as_recorded("losses", losses[:recorded], losses[:again]) is same
    assert not _as_recorded("losses", [*losses[: recorded - 1], 7.0], losses[:again])


def test_a_configuration_that_is_not_the_planned_one_is_named(tmp_path):
    log, written = log_of(events()), events()

    def said(**changes):
        config = {**UNIT.config.as_json(), "output": "/anywhere", **changes}
        (tmp_path / "config.json").write_text(
            json.dumps({key: value for key, value in config.items() if value != "left"})
        )
        return [each.what for each in _of_configuration(UNIT, "x", tmp_path, log, written)]

    assert said() == []
    assert said(dropout=0.5) == ["dropout"] and said(dropout="left") == ["dropout"] and said(more=1) == ["more"]
    (tmp_path / "config.json").unlink()
    assert list(_of_configuration(UNIT, "x", tmp_path, log, written)) == [], "older runs have none"
    ended = [{**written[-1], "iterations": ITERATIONS - 1}]
    for end in ([], ended, [written[-1], written[-1]]):
        found = [each.what for each in _of_configuration(UNIT, "x", tmp_path, log, [*written[:-1], *end])]
        assert found == ["iterations"]
    other = parse(["global_batch_size = 7", *raw_output.log_text(UNIT, written).splitlines()])
    assert [each.what for each in _of_configuration(UNIT, "x", tmp_path, other, written)] == ["global batch"]


def test_a_copied_attempt_is_named(run):
    first, second = (run.folder / each.folder for each in run.attempts())
    (second / METRICS.format(0)).write_bytes((first / METRICS.format(0)).read_bytes())
    found = [line for line in examine(run).lines() if "a copy of" in line]
    assert len(found) == 1 and found[0].startswith(str(second.relative_to(run.folder)))


# What is said, exactly


def said(differences):
    return [(each.what, *each.says) for each in differences]


RECORD, RUN, RANK_0 = "attempts.jsonl", "a run", METRICS.format(0)


def test_evidence_holds_without_differences_and_without_attempts_that_have_no_record():
    one = Difference("x", "y", (("a", 1), ("b", 2)))
    assert Evidence(1, (), ()).holds and not Evidence(1, (one,), ()).holds
    assert not Evidence(1, (), ("x",)).holds and not Evidence(1, (one,), ("x",)).holds
    assert Evidence(1, (), (), {"x": 1}, ("y",)).holds, "what nothing proves, and what is remarked, contradicts nothing"


def test_a_record_is_compared_with_what_a_run_writes():
    twice = [attempt(status="failed"), attempt(status="failed"), attempt(status="failed")]
    assert said(_of_record(PLAN, twice, [])) == [("lines that record it", (RECORD, 3), (RUN, 1))]
    both = said(_of_record(PLAN, [attempt(), attempt(number=2)], []))
    assert both == [("attempts that succeeded", (RECORD, 2), (RUN, 1))]
    gap = said(_of_record(PLAN, [attempt(), attempt(number=4, status="failed")], []))
    assert gap == [("attempt", (RECORD, "none"), ("attempt-4", "one before it"))] * 2
    odd = attempt(folder=f"units/{CASE.name}/repeat-1.attempt-x", status="failed")
    found = said(_of_record(PLAN, [odd, attempt(number=2)], []))
    assert [what for what, *_ in found] == ["folder", "attempt"], "a name without a number is the first of none"


def lines_of(run):
    return [json.loads(line) for line in run.attempts_file.read_text().splitlines()]


def record_again(run, change):
    """Change the first line of the record."""
    first, *rest = lines_of(run)
    change(first)
    run.attempts_file.write_text("".join(json.dumps(line) + "\n" for line in (first, *rest)))


@pytest.mark.parametrize(
    ("figure", "source"),
    [
        ("throughput", LOG),
        ("latency_ms", LOG),
        ("memory_peak_mib", RANK_0),
        ("first_row_s", RANK_0),
        ("parameters", RANK_0),
    ],
)
def test_each_recorded_figure_is_held_against_its_source(run, figure, source):
    written = lines_of(run)[0][figure]
    record_again(run, lambda line: line.update({figure: 7.5}))
    assert said(examine(run).differences) == [(figure, (RECORD, 7.5), (source, written))]


def test_a_recorded_transport_is_held_against_the_ranks_logs(run):
    none = {"networks": {}, "ways": []}
    record_again(run, lambda line: line.update(transport=none))
    assert examine(run).holds
    record_again(run, lambda line: line.update(transport={"networks": {}, "ways": ["P2P"]}))
    assert said(examine(run).differences) == [
        ("transport", (RECORD, {"networks": {}, "ways": ["P2P"]}), ("logs/", none))
    ]


@pytest.mark.parametrize(("packets", "still"), [(0, True), (9000, False)])
def test_infiniband_in_nccl_s_log_is_held_against_the_adapters(run, packets, still):
    """Also a record of counters that the attempt's folder does not have."""
    folder = run.folder / lines_of(run)[0]["folder"]
    with open(folder / LOG, "ab") as log:
        log.write(b"node1:41:55 [0] NCCL INFO Channel 00 : 0[1a000] -> 8[1a000] [send] via NET/IB/0\n")
    before, after = ({"mlx5_0:1": {"counters/port_xmit_packets": count}} for count in (5, 5 + packets))
    (folder / FILE.format("node1")).write_text(json.dumps({"before": before, "after": after}))
    found = [each for each in examine(run).differences if each.what == "packets sent"]
    assert [(each.where, each.says[1]) for each in found] == [
        (lines_of(run)[0]["folder"], (FILE.format("node1"), 0))
    ] * still
    record_again(
        run, lambda line: line.update(adapters={"node1": {"mlx5_0:1": {"counters/port_xmit_packets": 1 << 30}}})
    )
    assert "adapters" in {each.what for each in examine(run).differences}


def edit_rank(run, rank, change):
    """Change the rows in a rank's metrics of the first attempt."""
    file = run.folder / lines_of(run)[0]["folder"] / METRICS.format(rank)
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    for row in rows:
        if row["event"] == "iteration":
            change(row)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.parametrize("rank", [1, 7])
def test_every_rank_is_compared_with_rank_0_in_its_losses_alone(run, rank):
    edit_rank(run, rank, lambda row: row.update(memory_mib=1))
    assert examine(run).holds
    edit_rank(run, rank, lambda row: row.update(loss=row["loss"] + 1))
    found = examine(run).differences
    assert len(found) == ROWS
    (_, one), (_, other) = found[0].says
    assert [name for name, _ in found[0].says] == [RANK_0, METRICS.format(rank)] and other == pytest.approx(one + 1)


def test_a_rank_may_lack_the_loss_of_some_rows():
    without = rank()
    del without[2]["loss"]
    without[1]["loss"] = 99.0
    assert names(_losses_of_rank("x", events(), without, 3)) == []


def test_a_loss_that_is_no_number_contradicts_success(run):
    edit_rank(run, 0, lambda row: row.update(loss=float("nan")) if row["iteration"] == ITERATIONS else None)
    found = [each for each in said(examine(run).differences) if each[0] == "status"]
    assert found == [("status", (RECORD, "ok"), (RANK_0, "a loss is no number"))]


def test_what_ended_is_said_with_its_iterations(tmp_path):
    log, written = log_of(events()), events()
    for end, shown in (([], "no end"), ([{**written[-1], "iterations": 3}], [3])):
        (found,) = said(_of_configuration(UNIT, "x", tmp_path, log, [*written[:-1], *end]))
        assert found == ("iterations", ("run.json", ITERATIONS), (RANK_0, shown))


def test_where_a_node_has_its_stand_in_is_no_difference(tmp_path):
    data = {"kind": "text", "standin": "small"}
    unit = configured(UNIT, data=data)
    for ran, differs in (
        ({**data, "folder": "/somewhere"}, False),
        ({**data, "standin": "large", "folder": "/somewhere"}, True),
        ({"kind": "text", "folder": "/somewhere"}, True),
    ):
        (tmp_path / "config.json").write_text(json.dumps({**unit.config.as_json(), "data": ran}))
        found = [each.what for each in _of_configuration(unit, "x", tmp_path, log_of(events()), events())]
        assert found == (["data"] if differs else []), ran
    own = configured(UNIT, data={"kind": "text", "folder": "/data"})
    (tmp_path / "config.json").write_text(json.dumps(own.config.as_json()))
    assert list(_of_configuration(own, "x", tmp_path, log_of(events()), events())) == [], "files of one's own"
    (tmp_path / "config.json").write_text(
        json.dumps({key: value for key, value in UNIT.config.as_json().items() if key != "data"})
    )
    assert [each.what for each in _of_configuration(UNIT, "x", tmp_path, log_of(events()), events())] == ["data"]


def test_just_at_the_printed_decimals_is_the_same():
    written = events()
    written[2]["loss"] = 0.0006
    log = log_of(written)
    written[2]["loss"] = 0.0
    assert names(_log_and_metrics("x", log, written)) == []


def test_losses_are_compared_as_lists_and_other_lists_in_full():
    assert not _as_recorded("losses", None, [1.0]) and not _as_recorded("losses", [1.0], None)
    assert not _as_recorded("losses", 1.0, 2.0) and _as_recorded("losses", None, None)
    assert not _as_recorded("ways", [1.0] * 10, [1.0] * 12)


def test_a_copy_is_said_with_what_it_is_a_copy_of(run):
    first, second = (each.folder for each in run.attempts())
    (run.folder / second / RANK_0).write_bytes((run.folder / first / RANK_0).read_bytes())
    found = [each for each in examine(run).differences if each.what == "an attempt of its own"]
    assert [(each.where, each.says) for each in found] == [(second, ((RECORD, "yes"), (RANK_0, f"a copy of {first}")))]
