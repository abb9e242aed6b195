"""When a process that simulated nodes need has ended."""

import subprocess
import sys
from pathlib import Path

from repro.simulation.owners import has_ended
from tests.support.patience import wait_until


def test_a_processhas_ended_whoever_its_parent_is():
    """A child of this process, and one whose parent never asks how it ended."""
    child = subprocess.Popen(["sleep", "60"])
    assert not has_ended(child.pid)
    child.kill()
    child.wait()
    assert has_ended(child.pid)
    program = "import subprocess, sys; print(subprocess.Popen(['true']).pid, flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        pid = int(parent.stdout.readline())
        while not has_ended(pid):
            pass
        parent.stdin.close()


def test_a_process_whose_first_thread_alone_has_ended_holds_its_files():
    """As QEMU's threads do, one after the other, once it is killed."""
    rest = "import ctypes, threading, time; threading.Thread(target=time.sleep, args=(600,)).start()"
    program = f"{rest}; print(flush=True); ctypes.PyDLL(None).pthread_exit(None)"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        wait_until(lambda: Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z")
        assert not has_ended(process.pid)
        process.kill()
        wait_until(lambda: has_ended(process.pid))
