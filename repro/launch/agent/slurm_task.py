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
from collections.abc import Iterator
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
    """Slurm ends the job: leave by way of what removes the container and the folder, which a second signal may not end."""
    signal.signal(number, signal.SIG_IGN)
    sys.exit(128 + number)


def main() -> None:
    with open(0, "rb", buffering=0, closefd=False) as unbuffered:  # which takes not a byte of what follows the line
        order, node = json.loads(unbuffered.readline()), os.environ["SLURMD_NODENAME"]
    mine = order["nodes"][node]
    signal.signal(signal.SIGTERM, stop)
    try:
        redirect_output(mine["messages"])
        os.write(1, b"\n")  # an earlier step may have been killed in the middle of a line
        send(step=order["step"])
        write_code(mine["code"], order["files"])
        sys.path.insert(0, mine["code"])
        sys.dont_write_bytecode = True
        from repro.launch.agent.patience import set_patience

        set_patience(mine.get("patience", 1.0))
        with node_held(order["owner"], mine) as is_mine:
            sys.exit(run_agent(mine) if is_mine else 1)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        shutil.rmtree(mine["home"], ignore_errors=True)


def send(**message: object) -> None:
    """Send a message of this task's own, in one piece."""
    os.write(1, (json.dumps(message) + "\n").encode())


@contextlib.contextmanager
def node_held(owner: dict, mine: dict) -> Iterator[bool]:
    """Hold the node's lock, also against runs that Slurm does not know of; whether it is this job's."""
    from repro.launch.agent.leftovers import clear, sweep_processes
    from repro.launch.agent.lock import Held, acquire

    given = {**owner, "job": os.environ.get("SLURM_JOB_ID", "")}
    try:
        lock = acquire(given, mine["lease_s"])
    except (Held, OSError) as error:
        send(**({"held": error.holder} if isinstance(error, Held) else {"error": str(error)}))
        yield False
        return
    stopped = threading.Event()
    lock.keep(stopped, lambda why: send(lost=why))
    try:
        sweep_processes(mine["work"])
        _, others = clear(mine["work"]) if mine["container"] else ([], [])
        if others:
            send(others=others)
        yield not others
    finally:
        stopped.set()
        lock.release()


def run_agent(mine: dict) -> int:
    """Run the agent with this node's order; its status. Whatever ends it, no container is left."""
    from repro.launch.agent import START
    from repro.launch.agent.leftovers import AGENT
    from repro.launch.agent.node import remove_containers
    from repro.launch.agent.patience import limit
    from repro.launch.agent.processes import identity

    agent = subprocess.Popen(
        [sys.executable, "-I", "-B", "-c", START, mine["code"]],
        stdin=subprocess.PIPE,
    )
    assert agent.stdin is not None
    own = identity(agent.pid)
    try:
        order = (json.dumps(mine) + "\n").encode()
        threading.Thread(target=forward, args=(order, agent.stdin), daemon=True).start()
        return agent.wait()
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            agent.stdin.close()  # without its lease it ends what it started
            agent.wait(limit(GRACE_S))
        agent.kill()
        if mine["container"]:
            remove_containers(f"name=^/?{mine['container']}$", f"label={AGENT}={own}")


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
