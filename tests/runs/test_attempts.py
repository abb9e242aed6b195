"""The record of an attempt: one form, which a line has before and after, and what is no record."""

import json
import zipfile
from dataclasses import replace

import pytest

from repro.runs.attempts import NAMES, AttemptRecord, CutLog, Neighbour, parse, serialise
from repro.runs.digests import REPRODUCED
from repro.runs.failures import Failure
from repro.runs.metrics import DamagedLine
from tests.support.attempts import ALWAYS, recorded

FULL = {
    **ALWAYS,
    "attempt": 1,
    "nodes": ["n1", "n2"],
    "losses": [2.0, float("inf")],
    "failure": {"message": "it ended with {status}", "values": {"status": 3}, "hint": None},
    "cut": [{"path": "logs/x", "printed": 9, "kept": 4}],
    "damaged": [{"file": "metrics-rank0.jsonl", "line": 2, "text": '{"event'}],
    "beside": [{"attempt": "units/b/repeat-1.attempt-1", "nodes": ["n3"]}],
    "enough": None,
    "log_tail": "原因",
}


def line(content):
    return json.dumps(content, ensure_ascii=False)


def test_a_line_is_read_into_types_and_written_as_it_was():
    attempt = parse(line(FULL))
    assert attempt.nodes == ("n1", "n2") and attempt.cut == (CutLog("logs/x", 9, 4),)
    assert attempt.failure == Failure("it ended with {status}", {"status": 3})
    assert attempt.damaged == (DamagedLine("metrics-rank0.jsonl", 2, '{"event'),)
    assert attempt.beside == (Neighbour("units/b/repeat-1.attempt-1", ("n3",)),)
    assert attempt.ended == ALWAYS["started"] + ALWAYS["wall_s"]
    assert serialise(attempt).decode() == line(FULL) + "\n"


def test_what_a_release_did_not_record_is_nothing_and_is_not_written():
    attempt = recorded({})
    assert (attempt.failure, attempt.losses, attempt.nodes, attempt.adapters, attempt.attempt) == (
        None,
        None,
        (),
        {},
        1,
    )
    assert parse(line({**ALWAYS, "rdma": None})).recorded == (*ALWAYS, "rdma", "attempt")
    assert "rdma" in parse(line({**ALWAYS, "rdma": None})).recorded and "rdma" not in attempt.recorded
    assert json.loads(serialise(attempt)) == {**ALWAYS, "attempt": 1}
    assert parse(line({**ALWAYS, "of a later release": 1})) == attempt


def test_values_that_are_added_come_last():
    attempt = AttemptRecord.of(**ALWAYS).with_more(enough="decided", beside=())
    assert list(attempt.as_json()) == [*ALWAYS, "enough", "beside"]
    assert replace(attempt, status="failed").as_json() == {
        **ALWAYS,
        "status": "failed",
        "enough": "decided",
        "beside": [],
    }


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"status": "fine"}, "status"),
        ({"started": -1}, "started"),
        ({"folder": "../x"}, "folder"),
        ({"nodes": "n1"}, "nodes"),
        ({"enough": "a\nb"}, "enough"),
        ({"failure": {"message": "{x.y}", "values": {}}}, "message"),
        ({"cut": [{"path": "x", "printed": 1}]}, "has no kept"),
        ({"damaged": [{"file": "x", "line": 0, "text": ""}]}, "line"),
        ({"damaged": [{"file": "x"}]}, "has no line"),
        ({"beside": [{"attempt": "x"}]}, "has no nodes"),
        ({"beside": ["x"]}, "must be a table"),
    ],
)
def test_a_line_that_no_run_records_is_refused(change, fault):
    with pytest.raises(ValueError, match=fault):
        parse(line({**ALWAYS, **change}))


@pytest.mark.parametrize("name", sorted(ALWAYS))
def test_what_every_release_recorded_is_required(name):
    with pytest.raises(ValueError, match=f"has no {name}"):
        parse(line({key: value for key, value in ALWAYS.items() if key != name}))


@pytest.mark.parametrize("text", ["", "[]", "null", "{", "[" * 100_000])
def test_a_line_that_is_no_record_is_refused(text):
    with pytest.raises(ValueError):
        parse(text)


def test_every_kept_line_is_written_as_it_was_read():
    """Apart from the number of the attempt, which earlier releases had in its folder alone."""
    archives = sorted(REPRODUCED.glob("*/runs/*.zip"))
    count = 0
    for path in archives:
        with zipfile.ZipFile(path) as archive:
            lines = archive.read("attempts.jsonl").splitlines() if "attempts.jsonl" in archive.namelist() else []
        for text in lines:
            attempt = parse(text.decode())
            own = tuple(name for name in attempt.recorded if name in json.loads(text))
            assert serialise(replace(attempt, recorded=own)).decode() == line(json.loads(text)) + "\n"
            count += 1
    assert not archives or count > 100


def test_the_names_of_a_line_are_the_fields_of_the_record():
    assert {*FULL, "throughput", "adapters", "rdma"} <= NAMES and not {"recorded", "windows"} & NAMES
