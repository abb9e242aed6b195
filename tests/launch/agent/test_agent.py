"""The agent's own loop where what it asks for fails: it never outlives its controller, nor leaves ranks behind."""

import subprocess
import sys

import pytest

from repro.launch.agent import __main__ as agent
from repro.launch.agent import node
from tests.support.paths import ROOT

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
    done = subprocess.run(argv, input=last, capture_output=True, cwd=ROOT, timeout=20)
    assert done.stdout == b"swept\n"
    assert done.returncode == agent.CUT_OFF


def test_an_engine_that_hangs_is_asked_again_later(tmp_path, monkeypatch):
    (tmp_path / "docker").write_text("#!/bin/sh\nexec sleep 60\n")
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(node, "DOCKER_S", 0.2)
    assert node.first_process("any") == 0


def test_ranks_end_with_an_agent_that_cannot_follow_them(tmp_path, monkeypatch):
    ended = []
    order = {
        "folder": str(tmp_path / "run"),
        "logs": ["local_rank_0"],
        "caches": [],
        "config": {},
        "port": 0,
        "libraries": {},
        "lease_s": 60,
        "container": "c",
        "sample": [],
    }

    class NoLease:
        def __init__(self, *given):
            pass

    def fail(process, lease, order):
        raise OSError(5, "Input/output error")

    for name, stand_in in {"Lease": NoLease, "beat": lambda *given: None, "start": lambda order: "ranks"}.items():
        monkeypatch.setattr(agent, name, stand_in)
    monkeypatch.setattr(agent, "follow", fail)
    monkeypatch.setattr(agent, "end", lambda process, container: ended.append((process, container)))
    with pytest.raises(OSError, match="Input/output error"):
        agent.run(order)
    assert ended == [("ranks", "c")]
