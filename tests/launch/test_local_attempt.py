"""Local launch: what happens to the ranks, and what is said of it."""

import itertools
import os
import re
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from repro.images.stack import TF32
from repro.launch.agent.node import port_is_free
from repro.launch.agent.ranks import children, new_ranks
from repro.launch.attempt import Limits, Tail
from repro.launch.local_attempt import LocalAttempt, local_attempts
from repro.published.cases import Layout
from repro.published.rules import MeanRows
from repro.runs.failures import Failure, explain_logs, last_lines
from repro.runs.unit import Unit
from repro.utils.ports import free_port
from tests.support.patience import patience, wait_until
from tests.support.processes import processes_of
from tests.support.runs import CONFIG


def attempt(folder, standin, ranks=1, **limits):
    config = replace(CONFIG, layout=Layout(ranks))
    return LocalAttempt(config, folder, Limits(**limits), trainer=standin)


@pytest.mark.parametrize("ranks", [1, 3])
def test_every_rank_ends_well(tmp_path, standin, ranks):
    events = []
    outcome = attempt(tmp_path, standin, ranks).run(events.append)
    assert outcome.failure is None
    for rank in range(ranks):
        assert [event["event"] for event in events if event["rank"] == rank] == ["start", *["iteration"] * 7, "end"]
    assert "step: 6" in (tmp_path / "logs/local_rank_0/stdout").read_text()
    assert (tmp_path / f"metrics-rank{ranks - 1}.jsonl").exists()
    assert not processes_of(tmp_path)


@pytest.mark.parametrize(
    ("fault", "ranks", "message"),
    [
        ("exit=3@0", 1, "rank 0 exited with status 3"),
        ("exit=3@1", 2, "rank 1 exited with status 3"),
        ("kill@0", 1, "rank 0 was killed by SIGKILL"),
        ("kill@1", 2, "rank 1 was killed by SIGKILL"),
        ("quiet@0", 1, "rank 0 ended before its work was done"),
        ("quiet@1 hang@0", 2, "rank 1 ended before its work was done"),
        ("hang@0", 1, "no rank has printed anything for 1 s: at least one hangs"),
        ("hang@1", 2, "no rank has printed anything for 1 s: at least one hangs"),
        ("damage@0", 1, 'line 2 of metrics-rank0.jsonl is damaged: {"event": "iterat{"event": "start"'),
        ("damage@1", 2, 'line 2 of metrics-rank1.jsonl is damaged: {"event": "iterat{"event": "start"'),
        ("damage@1 exit=3@1", 2, "rank 1 exited with status 3"),
        ("damage@1 quiet@1", 2, 'line 2 of metrics-rank1.jsonl is damaged: {"event": "iterat{"event": "start"'),
        ("full@0", 1, "rank 0 exited with status 1 (the disk is full: free some space, then resume the run)"),
    ],
)
def test_a_fault_is_named_and_leaves_no_process(tmp_path, standin, monkeypatch, fault, ranks, message):
    monkeypatch.setenv("STANDIN", fault)
    monkeypatch.setenv("STANDIN_WAIT", "3" if "@1" in fault and "hang" not in fault else "0")
    started = time.monotonic()
    outcome = attempt(tmp_path, standin, ranks, stall_timeout_s=1 if "hangs" in message else patience(10)).run()
    assert outcome.failure is not None
    said = outcome.failure.text().partition(', "rank"')[0]
    # A busy machine may look only after the launcher has seen how the rank ended, and ended all.
    assert said in (message, re.sub("exited with status .*", "ended before its work was done", message))
    assert time.monotonic() - started < patience(8)
    assert not processes_of(tmp_path)


@pytest.mark.parametrize("seen", [slice(0), slice(1, None)], ids=["none", "all but the first"])
def test_a_rank_that_a_glance_misses_has_not_ended(tmp_path, standin, monkeypatch, seen):
    """The kernel's list of children may lack one in the moment in which another is waited for.

    Rank 0 ends long before the others.
    """
    glances = itertools.count()
    monkeypatch.setattr(
        "repro.launch.agent.ranks.children", lambda pid: children(pid) if next(glances) > 4 else children(pid)[seen]
    )
    monkeypatch.setenv("STANDIN", "nothing@9")
    monkeypatch.setenv("STANDIN_WAIT", "1")
    assert attempt(tmp_path, standin, 2).run().failure is None
    assert next(glances) > 4


@pytest.mark.parametrize(
    ("seen", "expected"), [((20, 21, 22), {0: 20, 1: 21, 2: 22}), ((20, 22), {2: 22}), ((21,), {})]
)
def test_a_rank_that_says_nothing_is_told_by_its_place_among_all(monkeypatch, seen, expected):
    monkeypatch.setattr("repro.launch.agent.ranks.children", lambda pid: seen)
    monkeypatch.setattr("repro.launch.agent.ranks._local_rank", {22: 2}.get)
    assert new_ranks(7, 3, {}) == expected
    assert new_ranks(7, 3, expected) == {}


def test_the_tail_is_of_the_rank_that_failed(tmp_path, standin, monkeypatch):
    monkeypatch.setenv("STANDIN", "exit=3@1")
    monkeypatch.setenv("STANDIN_WAIT", "3")
    assert "this rank gives up" in attempt(tmp_path, standin, 2).run().log_tail


def test_a_run_without_end_is_ended(tmp_path, standin, monkeypatch):
    monkeypatch.setenv("STANDIN", "hang@0")
    outcome = attempt(tmp_path, standin, 1, total_s=0.5).run()
    assert outcome.failure.text() == "no end after 0 s, the limit for one run"


def test_a_trainer_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        attempt(tmp_path, ("/nowhere/python", "x.py")).run()


def test_the_ranks_end_when_the_controller_is_killed(tmp_path, standin):
    program = (
        "import sys; from pathlib import Path; from repro.launch.attempt import *; from repro.launch.local_attempt import *\n"
        "from dataclasses import replace; from repro.published.cases import Layout; from tests.support.runs import CONFIG\n"
        "config = replace(CONFIG, layout=Layout(2))\n"
        f"LocalAttempt(config, Path({str(tmp_path)!r}), Limits(), trainer={standin!r}).run()"
    )
    environment = dict(os.environ, STANDIN="hang@0 hang@1")
    controller = subprocess.Popen([sys.executable, "-c", program], env=environment)
    wait_until(
        lambda: [standin[1] in command.split("\0")[1:3] for _, command in processes_of(tmp_path)].count(True) == 2
    )
    controller.send_signal(signal.SIGKILL)
    controller.wait()
    wait_until(lambda: not processes_of(tmp_path))
    assert not processes_of(tmp_path)


def test_ports():
    port = free_port()
    assert port_is_free(port)
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", port))
        taken.listen()
        assert not port_is_free(port)


def test_a_tail_waits_for_whole_lines(tmp_path):
    file = tmp_path / "metrics.jsonl"
    tail = Tail(file)
    assert tail.read() == []
    file.write_text('{"event": "start"}\n{"event": "en')
    assert tail.read() == [{"event": "start"}]
    file.write_text('{"event": "start"}\n{"event": "end"}\n')
    assert tail.read() == [{"event": "end"}] and tail.finished
    with open(file, "ab") as more:
        more.write(b"\x00\n17\n")
    assert tail.read() == [] and tail.finished, "what follows the end damages the file, not what was said before"
    assert [line.line for line in tail.damaged] == [3, 4]


@pytest.mark.parametrize(("device", "message"), [("cpu", None), ("cuda", "the NVIDIA driver is too old for CUDA 10.2")])
def test_a_missing_driver_explains_nothing_on_the_cpu(tmp_path, device, message):
    log = tmp_path / "stderr"
    log.write_text("E2026 cuda_device_manager_factory.cpp:65] CUDA driver version is insufficient for CUDA runtime\n")
    hint = explain_logs(Failure("rank {rank} exited", {"rank": 0}), [log], device).hint
    assert hint is None if message is None else hint.startswith(message)


def test_the_last_lines_tell_what_oneflow_said_and_not_its_native_stack(tmp_path):
    log = tmp_path / "stderr"
    message = ["F20261122 op_graph.h:98]", "    Check failed: (a) == (b) (9 vs 2)", "Error Type: check"]
    frames = [f"    @     0x7fdac9f9c{i:03x}  google::LogMessage::Flush()" for i in range(40)]
    stack = ["*** Check failure stack trace: ***", *frames, "    @   (nil)  (unknown)"]
    log.write_text("\n".join(["before"] * 20 + message + stack))
    assert last_lines(log)[-3:] == message
    assert len(last_lines(log)) == 15
    assert last_lines(tmp_path / "nowhere") == []


def test_what_decides_on_tf32_is_that_of_the_unit(tmp_path, monkeypatch):
    """Neither what the user's shell says of it nor the run's other units."""
    for name in (*TF32, "NVIDIA_TF32_OVERRIDE"):
        monkeypatch.setenv(name, "9")
    monkeypatch.setattr(LocalAttempt, "argv", lambda attempt, port: ["/bin/sh", "-c", "env > environment"])
    config = replace(CONFIG, device="cuda", layout=Layout())
    attempt_of = local_attempts(Limits(total_s=20), None, environment={"LD_PRELOAD": ""}, baseline=("python",))
    found = {}
    for name, more in (("fp32", {}), ("tf32", {"tf32": True}), ("pytorch", {"tf32": True, "baseline_of": "tf32"})):
        attempt_of(Unit(name, "gpt", config, MeanRows(skip_first=1), 8, **more), tmp_path / name).run()
        seen = dict(line.partition("=")[::2] for line in (tmp_path / name / "environment").read_text().splitlines())
        found[name] = {each: seen[each] for each in (*TF32, "NVIDIA_TF32_OVERRIDE") if each in seen}
    assert found == {"fp32": {}, "tf32": TF32, "pytorch": {}}


@pytest.mark.parametrize(
    ("device", "ranks", "given", "level"),
    [
        ("cuda", 2, None, "INFO"),
        ("cuda", 2, "TRACE", "TRACE"),
        ("cuda", 1, None, None),
        ("cpu", 2, None, None),
    ],
)
def test_nccl_logs_its_network_on_several_gpus(tmp_path, monkeypatch, device, ranks, given, level):
    """From "INFO" on it names the network that it uses, which a verdict needs to know; at "WARN" it does not."""
    if given:
        monkeypatch.setenv("NCCL_DEBUG", given)
    else:
        monkeypatch.delenv("NCCL_DEBUG", raising=False)
    monkeypatch.delenv("NCCL_DEBUG_SUBSYS", raising=False)
    monkeypatch.setattr(LocalAttempt, "argv", lambda attempt, port: ["/bin/sh", "-c", "env > environment"])
    config = replace(CONFIG, device=device, layout=Layout(ranks))
    folder = tmp_path / "attempt"
    LocalAttempt(config, folder, Limits(total_s=20)).run()
    seen = dict(line.partition("=")[::2] for line in (folder / "environment").read_text().splitlines())
    assert seen.get("NCCL_DEBUG") == level
    assert seen.get("NCCL_DEBUG_SUBSYS") == ("INIT,NET" if level else None)
