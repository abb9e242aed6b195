"""Runs baselines in processes of their own, with an interpreter that has PyTorch."""

import json
import os
import socket
import subprocess

import pytest

from tests.support.paths import ROOT
from tests.support.patience import patience
from tests.trainers.conftest import TIME_LIMIT_S as TIME_LIMIT_S
from tests.trainers.conftest import Outcome, environment, read, size_of
from tests.trainers.conftest import python as python
from tests.trainers.conftest import train as train

RUN = ROOT / "repro" / "baselines" / "run.py"


@pytest.fixture(scope="session")
def torch_python() -> str:
    """Interpreter named by REPRO_BASELINE_PYTHON; tests that want it are skipped where there is none with PyTorch."""
    named = os.environ.get("REPRO_BASELINE_PYTHON")
    if not named:
        pytest.skip("REPRO_BASELINE_PYTHON does not name an interpreter with PyTorch, which is optional")
    try:
        command = [named, "-c", "import torch, numpy"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=patience(TIME_LIMIT_S))
    except OSError as error:
        pytest.skip(f"REPRO_BASELINE_PYTHON={named} cannot be started: {error.strerror}")
    if done.returncode:
        pytest.skip(f"REPRO_BASELINE_PYTHON={named}: {done.stderr.strip().splitlines()[-1]}")
    return named


@pytest.fixture
def baseline(torch_python, tmp_path):
    """Callable that runs a configuration on as many processes as its layout has, and gives an Outcome."""

    def run(config: dict, processes: int = 0) -> Outcome:
        folder = tmp_path / f"baseline{len(list(tmp_path.glob('baseline*')))}"
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps({"output": str(folder), **config}))
        command = [torch_python, str(RUN), "--config", str(folder / "config.json")]
        world = processes or size_of(config)
        ranks = [start(command, rank, world, port) for port in [free_port()] for rank in range(world)]
        outputs = [rank.communicate(timeout=patience(TIME_LIMIT_S)) for rank in ranks]
        status = max(abs(rank.returncode) for rank in ranks)
        events = [read(folder, rank) for rank in range(world)]
        return Outcome(status, outputs[0][0], "".join(stderr for _, stderr in outputs), events)

    return run


def start(command: list, rank: int, world: int, port: int) -> subprocess.Popen:
    places = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    variables = {**environment(), **({key: str(value) for key, value in places.items()} if world > 1 else {})}
    return subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]
