"""The agent's own loop where what it asks for fails: it never outlives its controller, nor leaves ranks behind."""

import errno
import json
import socket
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

from repro.launch.agent import __main__ as agent
from repro.launch.agent import node
from repro.launch.agent import patience as agent_patience
from tests.support.paths import ROOT
from tests.support.patience import patience

HOLDS = """
import threading
from repro.launch.agent.__main__ import Lease
def refuse(line):
    raise OSError(28, "No space left on device")
Lease(60, lambda: print("swept", flush=True), refuse)
threading.Event().wait()
"""


@pytest.mark.parametrize("last", [b"{}\n", b""], ids=["a line that fails", "the controller is gone"])
def test_a_lease_that_cannot_go_on_ends_the_agent(last):
    argv = [sys.executable, "-c", HOLDS]
    done = subprocess.run(argv, input=last, capture_output=True, cwd=ROOT, timeout=patience())
    assert done.stdout == b"swept\n"
    assert done.returncode == agent.CUT_OFF


def test_an_engine_that_hangs_is_asked_again_later(tmp_path, monkeypatch):
    (tmp_path / "docker").write_text("#!/bin/sh\nexec sleep 60\n")
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(node, "DOCKER_S", 0.2)
    assert node.first_process("any") == 0


def test_a_slow_node_gets_the_time_that_its_order_says(tmp_path, monkeypatch):
    (tmp_path / "docker").write_text("#!/bin/sh\nsleep 1\necho 7\n")
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(node, "DOCKER_S", 0.1)
    monkeypatch.setattr(agent_patience, "_times", 1.0)
    assert node.first_process("any") == 0
    agent_patience.set_patience(10 * patience())
    assert node.first_process("any") == 7


@pytest.fixture(autouse=True)
def never_cut_off(monkeypatch):
    """No lease of this process's own input."""
    monkeypatch.setattr(agent, "Lease", lambda *given: SimpleNamespace(stopped=threading.Event()))
    monkeypatch.setattr(agent, "beat", lambda *given: None)


def order_in(folder, **changes):
    return {
        "folder": str(folder / "run"),
        "logs": ["local_rank_0"],
        "caches": [],
        "config": {},
        "port": 0,
        "libraries": {},
        "meeting": {},
        "cupti": {},
        "lease_s": 60,
        "container": "",
        "sample": [],
        "output": ["out", "err"],
        "argv": ["true"],
        "work": str(folder),
        **changes,
    }


def test_a_port_that_is_taken_leaves_no_folder(tmp_path, capfd):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        agent.run(order_in(tmp_path, port=taken.getsockname()[1]))
    assert "is taken by another program" in capfd.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_a_library_that_cannot_be_made_leaves_no_folder(tmp_path):
    library = tmp_path / "compat" / "library.so"
    with pytest.raises(OSError, match="no compiler"):
        agent.run(order_in(tmp_path, libraries={str(library): ["sh", "-c", "echo no compiler >&2; exit 1"]}))
    assert [path.name for path in tmp_path.iterdir()] == ["compat"]


def test_a_program_that_is_not_there_leaves_no_folder(tmp_path):
    with pytest.raises(FileNotFoundError):
        agent.run(order_in(tmp_path, argv=["/nonexistent"]))
    assert list(tmp_path.iterdir()) == []


def test_the_folder_of_another_is_left_alone(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "log").touch()
    with pytest.raises(FileExistsError):
        agent.run(order_in(tmp_path))
    assert (tmp_path / "run" / "log").exists()


def test_nodes_that_do_not_meet_start_nothing(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(agent, "meet", lambda order, stopped: "it cannot connect" if order["index"] else "")
    agent.run(order_in(tmp_path, meeting={"index": 1}))
    assert '"error": "it cannot connect"' in capfd.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_ranks_end_with_an_agent_that_cannot_follow_them(tmp_path, monkeypatch):
    ended = []
    order = order_in(tmp_path, container="c")

    def fail(process, lease, order, before):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(agent, "start", lambda order: "ranks")
    monkeypatch.setattr(agent, "follow", fail)
    monkeypatch.setattr(agent, "end", lambda process, container: ended.append((process, container)))
    with pytest.raises(OSError, match="Input/output error"):
        agent.run(order)
    assert ended == [("ranks", "c")]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.EMFILE, "Too many open files"), "(limit nofile of this account: "),
        (BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"), "(limit nproc of this account: "),
        (RuntimeError("can't start new thread"), "(limit nproc of this account: "),
        (OSError(errno.ENOENT, "No such file"), ""),
    ],
)
def test_a_limit_that_is_reached_is_named(error, said):
    assert agent.limit_reached(error).strip().startswith(said)
    assert bool(agent.limit_reached(error)) == bool(said)


def test_what_a_program_prints_need_not_be_text(capfd):
    agent.ask({"argv": ["printf", "\\377\\n"], "patience_s": 10})
    first = json.loads(capfd.readouterr().out.splitlines()[0])
    assert first == {"status": 0, "stdout": "\ufffd\n", "stderr": ""}
