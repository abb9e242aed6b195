"""An attempt whose kernels are traced, wherever it runs: what is kept of the trace, and when there is none."""

import json
from pathlib import Path

import pytest

from repro.launch.attempt import Outcome
from repro.launch.traced import TracedAttempt, traced_on_nodes
from repro.runs.attempts import CutLog
from repro.runs.failures import Failure
from tests.support.metrics import row

MS = 1_000_000


class Attempt:
    """Leaves the metrics of 20 iterations of 10 ms and the trace of rank 0, in which each has a kernel of 8 ms."""

    def __init__(self, folder: Path, pid: int = 7, **outcome):
        self.folder, self.pid, self.places, self.tracing = folder, pid, [], None
        self.outcome = Outcome(**{"failure": None, "trainer_s": 1.0, **outcome})

    def on(self, names):
        self.places.append(tuple(names))
        return self

    def traced(self, tracing):
        self.tracing = tracing
        return self

    def run(self, on_event, stop):
        rows = [{"event": "start", "pid": 7}]
        rows += [row(n, time=1000 + n / 100) for n in (10, 20)]
        (self.folder / "metrics-rank0.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        kernels = "".join(
            f"{1_000_000 * MS + n * 10 * MS} {1_000_000 * MS + (n * 10 + 8) * MS} 0 7 1\n" for n in range(20)
        )
        clock = f"clock {1_000_000 * MS} {1_000_000 * MS}\n"
        (self.folder / f"trace.{self.pid}").write_text(f"trace 1 12 /cupti\n{clock}name 1 kernel\n{kernels}")
        (self.folder / "logs").mkdir()
        (self.folder / "logs/launcher-node1.log").write_text("other\nkernel_trace: CUPTI cannot be opened: why\n")
        return self.outcome


def test_a_profile_is_kept_in_place_of_the_trace(tmp_path):
    outcome = TracedAttempt(Attempt(tmp_path), tmp_path).run()
    assert outcome.failure is None
    assert json.loads((tmp_path / "profile.json").read_text())["busy_ms"] == pytest.approx(8)
    assert not (tmp_path / "trace.7").exists() and (tmp_path / "trace.json").exists()


def test_a_trace_of_another_process_is_none(tmp_path):
    outcome = TracedAttempt(Attempt(tmp_path, pid=8), tmp_path).run()
    assert outcome.failure.text().startswith("rank 0 left no trace of its kernels")
    assert outcome.log_tail == "kernel_trace: CUPTI cannot be opened: why"
    assert list(tmp_path.glob("trace*")) == []


def test_a_trace_that_was_cut_on_the_way_gives_no_figures(tmp_path):
    cut = (CutLog("logs/local_rank_0/stderr", 9, 5), CutLog("trace.7", 300 << 20, 256 << 20))
    outcome = TracedAttempt(Attempt(tmp_path, cut=cut), tmp_path).run()
    assert outcome.failure.text() == "the trace has 300 MiB, and 256 MiB of it came from its node"
    assert outcome.cut == cut[:1], "no log of the run"
    assert list(tmp_path.glob("trace*")) == [] and not (tmp_path / "profile.json").exists()


def test_an_attempt_that_failed_keeps_its_own_reason(tmp_path):
    failed = Attempt(tmp_path, failure=Failure("it broke"), log_tail="its last line")
    outcome = TracedAttempt(failed, tmp_path).run()
    assert (outcome.failure.text(), outcome.log_tail) == ("it broke", "its last line")
    assert list(tmp_path.glob("trace*")) == []


def test_it_runs_on_the_nodes_that_it_is_given(tmp_path):
    plain = Attempt(tmp_path)
    traced_on_nodes(lambda unit, folder: plain, "how")(None, tmp_path).on(["node2"]).run()
    assert (plain.tracing, plain.places) == ("how", [("node2",)])
