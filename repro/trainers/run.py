"""Entry of a trainer process: `run.py --config FILE`, alone or under oneflow.distributed.launch.

Ends with 0 when all iterations ran and their metrics are on disk, with 2 when the configuration is wrong, otherwise
with 1 and the reason.
"""
from __future__ import annotations

import argparse
import os
import socket
import sys
import time
import traceback
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[2])

from repro.trainers.config import Config, load  # noqa: E402
from repro.trainers.values import ConfigError  # noqa: E402

MASTER_PATIENCE_S = 60.0
MASTER_POLL_S = 0.02


def main() -> int:
    try:
        config = load(read_arguments())
        check_processes(config)
    except ConfigError as error:
        print(f"run.py: {error}", file=sys.stderr)
        return 2
    try:
        set_environment(config)
        wait_for_master()
        from repro.trainers.train import train

        train(config)
    except BaseException as error:
        fail(error)
    return 0


def read_arguments() -> str:
    parser = argparse.ArgumentParser(description="Train a published model as its configuration says.")
    parser.add_argument("--config", required=True, metavar="FILE", help="configuration in JSON")
    return parser.parse_args().config


def check_processes(config: Config) -> None:
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    if config.layout.world_size != processes:
        raise ConfigError(f"layout: needs {config.layout.world_size} processes, {processes} were started")


def set_environment(config: Config) -> None:
    """Choose what OneFlow reads when it is loaded; what the caller has set stays.

    On the CPU the search for cheaper transfers by way of a third layout is left out: it takes a third of the time to
    compile and changes no loss.
    """
    if config.device == "cpu":
        os.environ.setdefault("ONEFLOW_BOXING_DISABLE_MIDDLE_NODE_AND_CHECK", "1")


def wait_for_master() -> None:
    """Wait until rank 0 listens: a process that comes before it tries again only after 10 seconds."""
    if os.environ.get("RANK", "0") == "0":
        return
    address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    deadline = time.monotonic() + MASTER_PATIENCE_S
    while time.monotonic() < deadline:
        try:
            socket.create_connection(address, timeout=1.0).close()
            return
        except OSError:
            time.sleep(MASTER_POLL_S)


def fail(error: BaseException) -> None:
    """Say why this process ends, and end it at once: a rank that leaves in order would leave its peers waiting."""
    try:
        reason = str(error).strip().splitlines() or [""]
        print(f"run.py: rank {os.environ.get('RANK', '0')}: {type(error).__name__}: {reason[-1]}", file=sys.stderr)
        traceback.print_exception(type(error), error, error.__traceback__)
        sys.stderr.flush()
        sys.stdout.flush()
    finally:
        os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
