"""What ranks write is read whatever is in it: events, and lines that are none, by their numbers."""

import json

import pytest

from repro.runs.metrics import DamagedLine, damage, damaged_lines, events, parse, read_metrics

START = {"event": "start", "pid": 1, "time": 1.0}
ROW = {"event": "iteration", "iteration": 1, "time": 2.0, "throughput": 8.0, "latency_ms": 1.0, "loss": float("nan")}
HALF = b'{"event": "iteration", "iterat'
DAMAGE = {
    "a number that no float holds": json.dumps({**ROW, "throughput": 10**400}).encode(),
    "half a line, then more": HALF + json.dumps(ROW).encode(),
    "NULs": b"\x00" * 16,
    "a number": b"17",
    "a list": b"[]",
    "null": b"null",
    "nothing": b"",
    "no UTF-8": b'{"event": "start", "host": "\xff"}',
    "UTF-16": '{"event": "start"}'.encode("utf-16"),
    "no kind": b'{"iteration": 1}',
    "a kind that is no text": b'{"event": 3}',
    "a kind of the launcher's": b'{"event": "gpu"}',
    "a row without its time": b'{"event": "iteration", "iteration": 1}',
    "a row whose time is text": json.dumps({**ROW, "time": "soon"}).encode(),
    "a loss that is true": json.dumps({**ROW, "loss": True}).encode(),
    "versions that are a list": b'{"event": "start", "versions": []}',
    "a lone surrogate": b'{"event": "start", "host": "\\ud800"}',
    "deeply nested": b'{"event": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "a number of 10,000 digits": b'{"event": "end", "time": ' + b"9" * 10_000 + b"}",
}


@pytest.mark.parametrize("line", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_line_is_a_fact_and_no_error(tmp_path, line):
    path = tmp_path / "metrics-rank0.jsonl"
    path.write_bytes(json.dumps(START).encode() + b"\n" + line + b"\n" + json.dumps(ROW).encode() + b"\n" + HALF)
    metrics = read_metrics(path)
    assert [event["event"] for event in metrics.events] == ["start", "iteration"] == [e["event"] for e in events(path)]
    assert [(line.file, line.line) for line in metrics.damaged] == [("metrics-rank0.jsonl", 2)]
    assert metrics.damaged[0].text.isprintable() and len(metrics.damaged[0].text) < 120
    assert damaged_lines(tmp_path) == metrics.damaged
    assert damage(metrics.damaged).text().startswith("line 2 of metrics-rank0.jsonl is damaged: ")
    json.dumps(vars(metrics.damaged[0]), ensure_ascii=False).encode()


def test_a_file_that_is_whole_or_not_there(tmp_path):
    assert read_metrics(tmp_path / "metrics-rank0.jsonl") == ([], [])
    assert damage([]) is None
    assert parse(json.dumps(ROW).encode() + b"\n", "metrics-rank0.jsonl").damaged == []


def test_only_rank_0_has_to_state_its_loss():
    line = json.dumps({name: value for name, value in ROW.items() if name != "loss"}).encode() + b"\n"
    assert parse(line, "metrics-rank1.jsonl").damaged == []
    (damaged,) = parse(line, "metrics-rank0.jsonl", 6).damaged
    assert damaged == DamagedLine("metrics-rank0.jsonl", 7, damaged.text)
