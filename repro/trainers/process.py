"""Start and exit of a process of a run, for any framework.

The exit status is 0 if all iterations ran and their metrics are on disk, 2 if the configuration is invalid, and
otherwise 1 with the reason.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Callable

from repro.trainers.config import Config, Sizes
from repro.trainers.validators import ConfigError


def run(load: Callable[[str], Config], train: Callable[[Config], None]) -> int:
    """Train with the configuration file named on the command line; returns the exit status."""
    try:
        config = load(read_arguments())
        check_processes(config.layout)
    except ConfigError as error:
        print(f"run.py: {error}", file=sys.stderr)
        return 2
    try:
        train(config)
    except BaseException as error:
        fail(error)
    return 0


def read_arguments() -> str:
    parser = argparse.ArgumentParser(description="Train a published model as its configuration says.")
    parser.add_argument("--config", required=True, metavar="FILE", help="configuration in JSON")
    return parser.parse_args().config


def check_processes(sizes: Sizes) -> None:
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    if sizes.world_size != processes:
        raise ConfigError(f"layout: needs {sizes.world_size} processes, {processes} were started")


def fail(error: BaseException) -> None:
    """Print the error and end this process at once; after an orderly exit, the other ranks would keep waiting."""
    try:
        reason = str(error).strip().splitlines() or [""]
        print(f"run.py: rank {os.environ.get('RANK', '0')}: {type(error).__name__}: {reason[-1]}", file=sys.stderr)
        traceback.print_exception(type(error), error, error.__traceback__)
        sys.stderr.flush()
        sys.stdout.flush()
    finally:
        os._exit(1)
