"""Starts the ranks of a baseline on a node, as OneFlow's launcher starts a trainer's; needs Python 3.8 and nothing else.

Its options are those of oneflow.distributed.launch that the project uses. PyTorch's own launcher names logs otherwise.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

POLL_S = 0.05
GRACE_S = 5.0


def main(argv: Sequence[str]) -> int:
    """Start all ranks and wait for them; once one fails the others are ended. The status of the first that failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--nnodes", "--node_rank", "--nproc_per_node", "--master_port"):
        parser.add_argument(name, type=int, required=True)
    parser.add_argument("--master_addr", required=True)
    parser.add_argument("--logdir", required=True)
    for name in ("--redirect_stdout_and_stderr", "--no_python"):
        parser.add_argument(name, action="store_true", help="what this launcher does in any case")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    ranks: list[subprocess.Popen] = []
    try:
        for local_rank in range(options.nproc_per_node):
            ranks.append(_start(options, local_rank))
        while True:
            ended = [rank.poll() for rank in ranks]
            failed = [status for status in ended if status]
            if failed:
                return failed[0] if failed[0] > 0 else 128 - failed[0]
            if None not in ended:
                return 0
            time.sleep(POLL_S)
    finally:
        _end(ranks)


def _start(options: argparse.Namespace, local_rank: int) -> subprocess.Popen:
    """One rank, which shows by its environment which it is."""
    environment = {
        **os.environ,
        "MASTER_ADDR": options.master_addr,
        "MASTER_PORT": str(options.master_port),
        "WORLD_SIZE": str(options.nnodes * options.nproc_per_node),
        "RANK": str(options.node_rank * options.nproc_per_node + local_rank),
        "LOCAL_RANK": str(local_rank),
    }
    folder = os.path.join(options.logdir, f"local_rank_{local_rank}")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "stdout"), "ab") as out, open(os.path.join(folder, "stderr"), "ab") as err:
        return subprocess.Popen(options.command, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=err)


def _end(ranks: Sequence[subprocess.Popen]) -> None:
    """End the ranks that still run: with SIGTERM, and what is left after a while with SIGKILL."""
    for rank in ranks:
        if rank.poll() is None:
            rank.terminate()
    deadline = time.monotonic() + GRACE_S
    for rank in ranks:
        try:
            rank.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            rank.kill()
            rank.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
