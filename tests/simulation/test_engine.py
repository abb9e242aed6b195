"""How the engine's processes end."""

import subprocess
import sys

from repro.simulation.engine import _has_ended


def test_a_process_has_ended_whoever_its_parent_is():
    """A child of this process, and one whose parent never asks how it ended."""
    child = subprocess.Popen(["sleep", "60"])
    assert not _has_ended(child.pid)
    child.kill()
    child.wait()
    assert _has_ended(child.pid)
    program = "import subprocess, sys; print(subprocess.Popen(['true']).pid, flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        pid = int(parent.stdout.readline())
        while not _has_ended(pid):
            pass
        parent.stdin.close()
