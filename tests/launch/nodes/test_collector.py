"""What nodes send is written where it belongs, and nowhere else."""

from dataclasses import replace

from repro.launch.nodes.collector import LogCollector
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
        "config.json",
    ):
        collected.write(1, name, 0, "x")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    collected.write(1, "logs/local_rank_0/stdout", 0, "caf\xe9")
    collected.write(1, "logs/local_rank_0/stdout", 0, "again, and so not taken")
    collected.write(1, "metrics-rank3.jsonl", 0, '{"event": "start"}\n{"half')
    assert (folder / "logs/local_rank_2/stdout").read_bytes() == b"caf\xe9"
    assert collected.events() == [{"event": "start", "rank": 3, "node": "n2"}]
