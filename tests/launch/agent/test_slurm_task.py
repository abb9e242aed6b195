"""The task of a Slurm job on a node."""

import json
import os
import subprocess
import sys
import time

from repro.launch.slurm.batch_script import PROGRAM

FILES = 3000


def test_a_task_told_twice_to_end_still_removes_its_folder(tmp_path):
    """As when srun ends the tasks of a failed step and the controller cancels the job at the same time."""
    home = tmp_path / "step-1/node-0"
    own = {"messages": str(tmp_path / "messages.jsonl"), "home": str(home), "code": str(home / "code")}
    order = {"step": 1, "nodes": {"node1": own}, "files": {f"folder{i % 9}/{i}.py": "pass\n" for i in range(FILES)}}
    environment = {**os.environ, "SLURMD_NODENAME": "node1"}
    with subprocess.Popen([sys.executable, PROGRAM], stdin=subprocess.PIPE, env=environment) as task:
        task.stdin.write((json.dumps(order) + "\n").encode())
        task.stdin.flush()
        while not home.exists():
            time.sleep(0.001)
        while task.poll() is None:
            task.terminate()
            time.sleep(0.001)
    assert task.returncode == 128 + 15
    assert not home.exists()
