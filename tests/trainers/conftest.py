"""Runs trainers in processes of their own, with the trainers' interpreter."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from repro.images.attention_operator import LIBRARY, attention_operator
from repro.utils.filelock import exclusive
from repro.utils.paths import sha256_of
from repro.utils.ports import free_port
from tests.support.paths import ROOT
from tests.support.patience import patience

RUN = ROOT / "repro" / "trainers" / "run.py"
PYTHON = Path(os.environ.get("REPRO_TRAINER_PYTHON", ROOT / ".venv-trainer" / "bin" / "python"))
LAUNCHER = next(PYTHON.parent.parent.glob("lib/python3*/site-packages/oneflow/distributed/launch.py"), Path())
"""By its path, as the project starts it: as a module of oneflow it would import all of that first."""
FEW_BLOCKS = Path(__file__).with_name("few_blocks.py")
TIME_LIMIT_S = 280

SHAPES = {
    "gpt": {"seq_length": 16, "vocab_size": 500, "layers": 2, "hidden_size": 32, "attention_heads": 4},
    "bert": {
        "seq_length": 16,
        "max_predictions": 3,
        "vocab_size": 500,
        "layers": 1,
        "hidden_size": 32,
        "attention_heads": 4,
    },
    "resnet50": {"image_size": 64, "classes": 10, "width": 8},
}
GENERATIONS = {"gpt": "E", "bert": "C", "resnet50": "A"}
ADAMW = {"name": "adamw", "lr": 0.02, "betas": [0.9, 0.999], "eps": 1e-3, "weight_decay": 0.01, "clip_norm": 0.1}
"""Clipping that is always active, and an epsilon that counts: wrong gradients or norms show in the losses."""
SGD = {"name": "sgd", "lr": 0.01, "momentum": 0.875, "weight_decay": 3e-5}


@dataclass
class Outcome:
    """What a run left behind; `events` are those of each rank."""

    returncode: int
    stdout: str
    stderr: str
    events: list

    @property
    def rows(self) -> list:
        return [event for event in self.events[0] if event["event"] == "iteration"]

    @property
    def losses(self) -> dict:
        """Losses by iteration, of rank 0."""
        return {event["iteration"]: event["loss"] for event in self.events[0] if "loss" in event}


def configuration(model: str, /, layout=(1, 1, 1), global_batch: int = 8, **changes) -> dict:
    """A small configuration; `changes` replace top-level keys, or entries of a table given as a dict."""
    accumulation = changes.pop("accumulation_steps", 1)
    config = {
        "case": "test",
        "model": model,
        "program": "published",
        "device": "cpu",
        "seed": 12345,
        "layout": dict(zip(("data", "tensor", "pipeline"), layout, strict=True)),
        "micro_batch": global_batch // layout[0] // accumulation,
        "accumulation_steps": accumulation,
        "precision": "fp32",
        "activation_checkpointing": False,
        "optimizer_sharding": 0,
        "dropout": 0.0,
        "iterations": 5,
        "log_interval": 5,
        "log_generation": GENERATIONS[model],
        "shape": dict(SHAPES[model]),
        "optimizer": dict(SGD if model == "resnet50" else ADAMW),
        "schedule": {"kind": "constant"},
        "label_smoothing": 0.1 if model == "resnet50" else 0.0,
        "data": {"kind": "synthetic"},
    }
    for key, value in changes.items():
        if isinstance(value, dict) and key not in ("data", "schedule"):
            config[key].update(value)
        else:
            config[key] = value
    return config


@pytest.fixture(scope="session")
def python() -> str:
    """Interpreter of the trainers' environment."""
    if not PYTHON.exists():
        pytest.fail(f"no trainer environment at {PYTHON}: run `make setup`, or set REPRO_TRAINER_PYTHON", pytrace=False)
    return str(PYTHON)


@pytest.fixture(scope="session")
def probe(python, tmp_path_factory):
    """Callable that runs a script beside these tests in the trainers' environment, and gives the lines it printed."""

    def run(name: str, *arguments: str, ranks: int = 1) -> list[str]:
        folder = tmp_path_factory.mktemp(Path(name).stem)
        command = [python, *launcher(ranks, folder), Path(__file__).with_name(name), *arguments]
        in_order = {**environment(), "PYTHONUNBUFFERED": "1"}
        done = subprocess.run(
            command,
            cwd=folder,
            env=in_order,
            capture_output=True,
            text=True,
            timeout=patience(TIME_LIMIT_S),
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return run


@pytest.fixture
def train(python, tmp_path):
    """Callable that runs a configuration on as many processes as its layout has, and gives an Outcome.

    `program` takes the trainer's place; `variables` are added to those of the processes' environment. Once `until` is in
    what they say, the processes are ended: of several ranks, those that live on wait long for one that has failed.
    """

    def run(
        config: dict, processes: int = 0, program: Path = RUN, until: re.Pattern | None = None, **variables: str
    ) -> Outcome:
        folder = tmp_path / f"run{len(list(tmp_path.glob('run*')))}"
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps({"output": str(folder), **config}))
        world = processes or size_of(config)
        command = [python, *launcher(world, folder), str(program), "--config", str(folder / "config.json")]
        done = finish(command, folder, {**environment(), **variables}, until)
        return Outcome(done.returncode, done.stdout, done.stderr, [read(folder, rank) for rank in range(world)])

    return run


def finish(command: list, folder: Path, variables: dict, until: re.Pattern | None) -> subprocess.CompletedProcess:
    """Run a command to its end, or until it has said `until` on its standard error."""
    with open(folder / "stdout", "w") as stdout, open(folder / "stderr", "w") as stderr:
        process = subprocess.Popen(
            command, cwd=folder, env=variables, stdout=stdout, stderr=stderr, start_new_session=True
        )
    limit = time.monotonic() + patience(TIME_LIMIT_S)
    said = folder / "stderr"
    try:
        while process.poll() is None and not (until and until.search(said.read_text(errors="replace"))):
            time.sleep(0.02)
            assert time.monotonic() < limit, f"not ended in time: {said.read_text(errors='replace')}"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        status = process.wait()
    texts = [(folder / name).read_text(errors="replace") for name in ("stdout", "stderr")]
    return subprocess.CompletedProcess(command, status, *texts)


@pytest.fixture(scope="session")
def library() -> Path:
    """The operators of our own, which the tuned GPT takes."""
    if shutil.which("g++") is None:
        pytest.skip("there is no g++, which compiles the operators")
    return attention_operator()


@pytest.fixture
def train_with_library(train, library):
    """Callable that runs a configuration with operators of our own, and gives an Outcome."""

    def run(config: dict) -> Outcome:
        outcome = train(config, **{LIBRARY: str(library)})
        assert outcome.returncode == 0, outcome.stderr[-4000:]
        return outcome

    return run


@pytest.fixture(scope="session")
def trained(tmp_path_factory) -> Path:
    """Folder of losses by the configuration that had them, which all of pytest's processes share.

    A training is the same each time, and one is enough.
    """
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "trained"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture
def losses(train, trained):
    """Callable that gives the losses of a configuration by iteration, of a run that was whole; ResNet50 has FEW_BLOCKS."""

    def run(config: dict) -> dict:
        folder = trained / sha256_of(json.dumps(config, sort_keys=True).encode())
        with exclusive(folder):
            if not (folder / "losses.json").exists():
                outcome = train(config, program=FEW_BLOCKS if config["model"] == "resnet50" else RUN)
                assert outcome.returncode == 0, outcome.stderr[-4000:]
                (folder / "losses.json").write_text(json.dumps(outcome.losses))
        return {int(iteration): loss for iteration, loss in json.loads((folder / "losses.json").read_text()).items()}

    return run


def census(outcome: Outcome) -> dict:
    """How often each type of operator is in the compiled job."""
    return next(event["operators"] for event in outcome.events[0] if event.get("event") == "census")


def size_of(config: dict) -> int:
    sizes = config["layout"]
    return sizes["data"] * sizes["tensor"] * sizes["pipeline"]


def launcher(world: int, folder: Path) -> list:
    if world == 1:
        return []
    port = free_port()
    options = ["--nproc_per_node", str(world), "--master_port", str(port), "--logdir", str(folder / "log")]
    return [str(LAUNCHER), *options]


def environment() -> dict:
    unwanted = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK", "VIRTUAL_ENV", "PYTHONPATH")
    return {**{key: value for key, value in os.environ.items() if key not in unwanted}, "OMP_NUM_THREADS": "1"}


def read(folder: Path, rank: int) -> list:
    path = folder / f"metrics-rank{rank}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
