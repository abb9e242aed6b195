"""Runs on each node of a step of a Slurm job, from its text alone: takes an order, and starts the node agent with its part.

The order has the code to run, and for each node, by its name, the order of its agent. Needs Python 3.8 and nothing else.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from typing import IO

GRACE_S = 6.0


def redirect_output(path: str) -> None:
    """Let standard output be added to a file."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(file, 1)
    os.close(file)


def write_code(folder: str, files: dict[str, str]) -> None:
    """Write the code, given by its paths, to a folder."""
    for name, text in files.items():
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)


def stop(number: int, frame: object) -> None:
    """Slurm ends the job: leave by way of what removes the container."""
    sys.exit(128 + number)


def main() -> None:
    with open(0, "rb", buffering=0, closefd=False) as unbuffered:  # which takes not a byte of what follows the line
        order, node = json.loads(unbuffered.readline()), os.environ["SLURMD_NODENAME"]
    mine = order["nodes"][node]
    signal.signal(signal.SIGTERM, stop)
    try:
        redirect_output(mine["messages"])
        # A new line before it: an earlier step may have been killed in the middle of one.
        os.write(1, ("\n" + json.dumps({"step": order["step"]}) + "\n").encode())
        write_code(mine["code"], order["files"])
        sys.path.insert(0, mine["code"])
        sys.dont_write_bytecode = True
        sys.exit(run_agent(order["label"], mine))
    finally:
        shutil.rmtree(mine["home"], ignore_errors=True)


def run_agent(label: str, mine: dict) -> int:
    """Run the agent with this node's order; its status. Whatever ends it, no container is left."""
    from repro.launch.agent.node import remove_containers

    if mine["container"]:
        remove_containers(f"label={label}")
    agent = subprocess.Popen(
        [sys.executable, "-B", "-m", "repro.launch.agent.__main__"],
        stdin=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": mine["code"]},
    )
    assert agent.stdin is not None
    try:
        order = (json.dumps(mine) + "\n").encode()
        threading.Thread(target=forward, args=(order, agent.stdin), daemon=True).start()
        return agent.wait()
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            agent.stdin.close()  # without its lease it ends what it started
            agent.wait(GRACE_S)
        agent.kill()
        if mine["container"]:
            remove_containers(f"name=^/{mine['container']}$")


def forward(order: bytes, pipe: IO[bytes]) -> None:
    """Write the order, and pass on what renews the lease; the end of it too."""
    with contextlib.suppress(OSError, ValueError):
        data = order
        while data:
            pipe.write(data)
            pipe.flush()
            data = os.read(0, 4096)
        pipe.close()


if __name__ == "__main__":
    main()
