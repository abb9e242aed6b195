"""Processes that are ended: a group with all of its members, and without waiting for what has ended."""

import os
import signal
import subprocess
import sys

import pytest

from repro.launch.agent.processes import end_group, identity


def test_nobody_waits_for_a_process_that_has_ended(monkeypatch):
    monkeypatch.setattr("repro.launch.agent.processes.time.sleep", lambda seconds: pytest.fail(f"waits {seconds} s"))
    process = subprocess.Popen(["true"], start_new_session=True)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    end_group(process, 5.0)
    assert process.returncode == 0


def test_what_ignores_that_it_is_to_end_is_killed_with_its_group():
    program = "import signal, subprocess, sys\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    program += "child = subprocess.Popen(['sleep', '60'])\nprint(child.pid, flush=True)\nchild.wait()\nsignal.pause()"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, start_new_session=True) as process:
        child = int(process.stdout.readline())
        end_group(process, 0.3)
        assert process.wait() == -signal.SIGKILL
    assert not identity(child)
