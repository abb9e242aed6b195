"""Runs baselines in processes of their own, with an interpreter that has PyTorch."""

import json
import os
import subprocess

import pytest

from repro.utils.ports import free_port
from tests.support.paths import ROOT
from tests.support.patience import patience
from tests.trainers.conftest import TIME_LIMIT_S as TIME_LIMIT_S
from tests.trainers.conftest import Outcome, environment, read, size_of
from tests.trainers.conftest import python as python
from tests.trainers.conftest import train as train

RUN = ROOT / "repro" / "baselines" / "run.py"
ON_CPU = ROOT / "tests" / "baselines" / "cpu_in_place_of_gpus.py"
"""What runs Megatron-Core without GPUs."""
PINNED = ROOT / ".venv-baseline" / "bin" / "python"
PINNED_CU102 = ROOT / ".venv-baseline-cu102" / "bin" / "python"
"""The interpreters of the environments that `repro.bootstrap` sets up."""

COSINE = {"kind": "cosine", "warmup_iterations": 2, "decay_iterations": 5, "min_lr": 0.001}


def losses(run, config: dict) -> dict:
    """Losses by iteration of a configuration that `run` has to bring to its end."""
    outcome = run(config)
    assert outcome.returncode == 0, outcome.stderr[-4000:]
    return outcome.losses


@pytest.fixture(scope="session")
def torch_python() -> str:
    """Interpreter with PyTorch: the one that REPRO_BASELINE_PYTHON names, or the pinned one."""
    return interpreter("torch")


@pytest.fixture(scope="session")
def megatron_python() -> str:
    """Interpreter that also has Megatron-Core."""
    return interpreter("torch, megatron.core")


@pytest.fixture(scope="session")
def old_torch_python() -> str:
    """Interpreter of `docker/baseline-cu102.lock`."""
    return interpreter("torch", str(PINNED_CU102), "baseline-cu102")


def interpreter(modules: str, python: str = "", environment: str = "baseline") -> str:
    """An interpreter that imports these; without one a test is skipped, and says how it is installed: it takes 7 GB."""
    python = python or os.environ.get("REPRO_BASELINE_PYTHON") or str(PINNED)
    try:
        command = [python, "-c", f"import numpy, {modules}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=patience(TIME_LIMIT_S))
    except OSError as error:
        reason = f"{python} cannot be started: {error.strerror}; `python3 -m repro.bootstrap {environment}` makes it"
    else:
        if not done.returncode:
            return python
        reason = f"{python}: {done.stderr.strip().splitlines()[-1]}"
    pytest.skip(reason)


@pytest.fixture
def baseline(torch_python, tmp_path):
    """Callable that runs a configuration on as many processes as its layout has, and gives an Outcome."""
    return runner([torch_python, str(RUN)], tmp_path)


@pytest.fixture
def old_baseline(old_torch_python, tmp_path):
    """Likewise, with the PyTorch of 2022."""
    return runner([old_torch_python, str(RUN)], tmp_path)


@pytest.fixture
def megatron(megatron_python, tmp_path):
    """Likewise, with Megatron-Core on the CPU; dropout cannot be drawn there."""
    run = runner([megatron_python, str(ON_CPU)], tmp_path)
    return lambda config, **table: run({**config, "baseline": {"megatron": True, **table}})


def runner(program: list, tmp_path):
    def run(config: dict, processes: int = 0) -> Outcome:
        folder = tmp_path / f"baseline{len(list(tmp_path.glob('baseline*')))}"
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps({"output": str(folder), **config}))
        command = [*program, "--config", str(folder / "config.json")]
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
