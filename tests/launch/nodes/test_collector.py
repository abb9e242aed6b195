"""What nodes send is written where it belongs, and nowhere else."""

from dataclasses import replace

import pytest

from repro.launch.nodes.collector import LogCollector, safe
from repro.launch.placement import place
from tests.support.clusters import NODES, V100


def test_a_node_may_only_send_files_of_its_own_ranks(tmp_path):
    folder = tmp_path / "attempt"
    folder.mkdir()
    collected = LogCollector(folder, place(replace(V100, nodes=NODES[:2], gpus_per_node=2), 4, True))
    for name in (
        "../evil",
        "logs/local_rank_2/stdout",
        "logs/local_rank_0/../../evil",
        "metrics-rank0.jsonl",
        "/etc/passwd",
        "logs/local_rank_0/..",
        "logs/local_rank_0/\x1b[2Jcleared",
        "logs/local_rank_0/two\nlines",
        "logs/local_rank_0/\udcff",
        "config.json",
    ):
        collected.write(1, name, 0, "x")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    collected.write(1, "logs/local_rank_0/stdout", 0, "caf\xe9")
    collected.write(1, "logs/local_rank_0/stdout", 0, "again, and so not taken")
    collected.write(1, "metrics-rank3.jsonl", 0, '{"event": "start"}\n{"half')
    assert (folder / "logs/local_rank_2/stdout").read_bytes() == b"caf\xe9"
    assert collected.events() == [{"event": "start", "rank": 3, "node": "n2"}]


def collector(folder, **options):
    return LogCollector(folder, place(replace(V100, nodes=NODES[:2], gpus_per_node=1), 2, True), **options)


@pytest.mark.parametrize(("one", "other"), [("节点", "机器"), ("a b", "a-b"), ("a/b", "a b"), ("é", "è")])
def test_names_that_cannot_be_names_of_files_stay_different(tmp_path, one, other):
    assert safe(one) != safe(other)
    assert safe("node-1.rack_2") == "node-1.rack_2"
    nodes = tuple(replace(node, name=name) for node, name in zip(NODES, (one, other), strict=False))
    collected = LogCollector(tmp_path, place(replace(V100, nodes=nodes, gpus_per_node=1), 2, True))
    for index in (0, 1):
        collected.write(index, "launcher.log", 0, f"node {index}")
    assert [path.read_text() for path in collected.log_files() if "launcher" in path.name] == ["node 0", "node 1"]


def test_what_is_missing_in_the_end_is_known_whoever_lost_it(tmp_path):
    collected = collector(tmp_path)
    collected.write(1, "logs/local_rank_0/stderr", 0, "12345")
    assert collected.cut() == []
    collected.sizes(1, {"logs/local_rank_0/stderr": 5, "logs/local_rank_0/stdout": 7, "config.json": 100, "../x": 9})
    assert [(log.path, log.printed, log.written) for log in collected.cut()] == [("logs/local_rank_1/stdout", 7, 0)]


def test_metrics_have_no_gap_and_no_node_fills_the_disk(tmp_path):
    collected = collector(tmp_path, cap=10)
    collected.write(0, "metrics-rank0.jsonl", 0, '{"a": 1}\n')
    collected.write(0, "metrics-rank0.jsonl", 50, "{}\n")
    collected.write(1, "logs/local_rank_0/stdout", 0, "12345678")
    collected.write(1, "logs/local_rank_0/stdout", 8, "90123")
    assert (tmp_path / "metrics-rank0.jsonl").read_text() == '{"a": 1}\n'
    assert (tmp_path / "logs/local_rank_1/stdout").read_text() == "12345678"
    assert [(log.path, log.printed, log.written) for log in collected.cut()] == [
        ("logs/local_rank_1/stdout", 13, 8),
        ("metrics-rank0.jsonl", 53, 9),
    ]


def test_a_rank_that_prints_beyond_the_cap_goes_on(tmp_path):
    """Its agent sends sizes alone: they show that it does not hang."""
    collected = collector(tmp_path)
    collected.write(0, "logs/local_rank_0/stdout", 0, "x")
    before = collected.bytes
    collected.write(0, "logs/local_rank_0/stdout", 1000, "")
    assert collected.bytes == before + 999


def test_a_trace_comes_from_the_first_node_where_one_is_wanted(tmp_path):
    for traces, index, taken in ((False, 0, False), (True, 1, False), (True, 0, True)):
        folder = tmp_path / f"{traces}-{index}"
        folder.mkdir()
        made = collector(folder, traces=traces)
        for name in ("trace.17", "trace.17/x", "../trace.17", "trace"):
            made.write(index, name, 0, "x")
        made.sizes(index, {"trace.17": 5})
        assert [path.name for path in folder.iterdir() if path.is_file()] == ["trace.17"] * taken
        assert [log.path for log in made.cut()] == ["trace.17"] * taken
