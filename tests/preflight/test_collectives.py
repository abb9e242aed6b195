"""The measurement of collectives: real sums on the CPU, what it makes of them, and what it says when it fails."""

import json
import math
import subprocess
from dataclasses import replace

import pytest

from repro.launch.local_attempt import local_programs
from repro.perfmodel.hardware import describe, from_devices
from repro.preflight import collectives as allreduce
from repro.preflight.collectives import LIMITS, PROGRAM, CollectiveError, link_gbs, measure
from repro.runs.failures import Failure
from tests.support.paths import ROOT
from tests.support.paths import TRAINER_PYTHON as PYTHON
from tests.support.recorded import RecordedAttempt


@pytest.fixture
def attempt_of():
    if not PYTHON.exists():
        pytest.fail(f"{PYTHON} is missing: `make setup` builds the trainer environment")
    return local_programs(PROGRAM, LIMITS, {}, str(PYTHON))


def test_two_ranks_of_the_cpu_are_measured(tmp_path, attempt_of, monkeypatch):
    monkeypatch.setitem(allreduce.SIZES, "cpu", (1024, 1 << 20))
    table = measure(attempt_of, 2, "cpu", tmp_path / "measured")
    assert [row["bytes"] for row in table.rows] == [1024, 1 << 20]
    for row in table.rows:
        assert row["algorithm_gbs"] == pytest.approx(row["bytes"] / row["seconds"] / 1e9)
        assert row["bus_gbs"] == pytest.approx(row["algorithm_gbs"]), "2(n-1)/n is 1 for two ranks"
        assert len(row["windows_s"]) == allreduce.REPEATS["cpu"]
    assert table.bus_gbs == max(row["bus_gbs"] for row in table.rows)
    assert [(pair["from"], pair["to"]) for pair in table.pairs] == [(0, 1)]
    assert table.pairs[0]["gbs"] > 0
    assert table.versions["oneflow"] == "0.8.0"
    assert json.loads(json.dumps(table.as_json()))["ranks"] == 2


def test_one_rank_has_nothing_to_send(tmp_path, attempt_of, monkeypatch):
    monkeypatch.setitem(allreduce.SIZES, "cpu", (1024,))
    table = measure(attempt_of, 1, "cpu", tmp_path / "measured")
    assert table.rows[0]["bus_gbs"] == 0
    assert table.pairs == ()


def test_a_wrong_configuration_names_its_key(tmp_path, attempt_of, monkeypatch):
    monkeypatch.setitem(allreduce.SIZES, "cpu", (2,))
    with pytest.raises(CollectiveError, match=r"sizes\[0\]: 2 is not a whole number of at least 4"):
        measure(attempt_of, 1, "cpu", tmp_path / "measured")


START = {"event": "start", "rank": 0, "versions": {"nccl": 21210, "oneflow": "0.8.0"}, "libraries": ["/x/libnccl.so.2"]}
ROW = {
    "event": "all_reduce",
    "rank": 0,
    "bytes": 1024,
    "calls": 10,
    "windows_s": [1e-5],
    "seconds": 1e-5,
    "algorithm_gbs": 0.1024,
    "bus_gbs": 0.1792,
    "time": 1.0,
}


def test_events_of_other_ranks_and_of_gpus_are_left_out(tmp_path):
    events = [{"event": "gpu", "index": 0}, START, {**START, "rank": 1}, ROW, {**ROW, "rank": 1, "bus_gbs": 9.9}]
    table = measure(lambda config, folder: RecordedAttempt(events), 8, "cuda", tmp_path / "m")
    assert len(table.rows) == 1
    assert table.bus_gbs == 0.1792
    assert table.latency_us == pytest.approx(10)
    assert table.versions["nccl"] == "2.12.10"


def test_a_failure_is_told_with_the_end_of_the_log(tmp_path):
    failure = Failure("rank {rank} exited with status {status}", {"rank": 1, "status": 1})
    failed = RecordedAttempt([START], failure, "a\nlog: NCCL WARN unhandled system error")
    with pytest.raises(CollectiveError, match="rank 1 exited with status 1\na\nlog: NCCL WARN"):
        measure(lambda config, folder: failed, 2, "cuda", tmp_path / "m")


def test_what_the_program_is_told(tmp_path):
    received = {}

    def attempt_of(config, folder):
        received.update(config.as_json())
        return RecordedAttempt([START, ROW])

    measure(attempt_of, 4, "cuda", tmp_path / "m")
    assert math.prod(received["layout"].values()) == 4
    assert (received["sizes"][0], received["sizes"][-1]) == (1024, 256 * 2**20)


def test_what_links_can_do():
    assert link_gbs(from_devices("NVIDIA H200", 4)) == pytest.approx(18 * 20.6)
    v100s = describe("v100x32")
    assert link_gbs(v100s) == pytest.approx(12.5), "between nodes all ranks share one EDR port"
    assert link_gbs(replace(v100s, nodes=1)) == pytest.approx(6 * 22.0)


@pytest.mark.parametrize(("expected", "status"), [(2.0, 0), (3.0, 1)])
def test_a_wrong_sum_has_no_speed(tmp_path, expected, status):
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import oneflow\n"
        "from repro.trainers.checks.collectives import check\n"
        "check(oneflow.ones(4) + 1, float(sys.argv[2]), 'the all-reduce of 16 bytes')"
    )
    command = [PYTHON, "-c", code, ROOT, str(expected)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == status, done.stderr
    error = "ValueError: the all-reduce of 16 bytes holds values from 2 to 2; each should be 3"
    assert (error in done.stderr) == bool(status)
