"""PyTorch baselines in a run: the interpreter is checked first, then the stand-in stands for both programs."""

import csv
import json
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from repro.images.runtime import IMAGE_PYTHON
from repro.launch.attempt import Limits
from repro.launch.local_attempt import local_attempts
from repro.planning import baselines
from repro.planning.baselines import PROBE, SCRIPT, PinnedImage, baseline_program, recorded_command, variants_of
from repro.planning.plan import Wanted, make_plan
from repro.planning.schedule import Block, drawn
from repro.published.cases import load_catalogue
from repro.runs.description import BaselineProgram
from repro.targets import PINNED_BASELINES
from repro.utils.errors import PlanError
from tests.support.paths import STANDIN, TRAINER_PYTHON
from tests.support.programs import V100, lay_gpu
from tests.support.runs import attempts, only_run

COMMAND = shlex.join([str(TRAINER_PYTHON), str(STANDIN)])


def program(folder: Path, name: str, script: str) -> str:
    """An executable that does what the script says."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def interpreter(folder: Path, gpus: int, **more) -> str:
    """What answers the probe as an interpreter with PyTorch does."""
    facts = json.dumps({"torch": "2.9.1", "cuda": "12.8", "gpus": gpus, **more})
    return program(folder, "python", f"echo 'a warning'; echo '{facts}'")


def test_an_interpreter_with_pytorch_is_taken(tmp_path):
    python = interpreter(tmp_path, 2)
    found = baseline_program(python, (), None, 2)
    assert found.command == (python, str(SCRIPT))
    assert found.versions["torch"] == "2.9.1"
    assert found.variants == ("pytorch", "pytorch-unfused", "pytorch-tf32")
    assert recorded_command(BaselineProgram.from_json(json.loads(json.dumps(found.as_json())))) == found.command
    for command in (["sh", "-c", "id"], [found.command[0], "/tmp/other.py"], [found.command[0]], []):
        with pytest.raises(PlanError, match="not the program of this checkout"):
            recorded_command(replace(found, command=tuple(command)))
    Path(python).unlink()
    with pytest.raises(PlanError, match="no longer there"):
        recorded_command(found)


def test_none_is_no_baseline_whatever_interpreter_is_named():
    assert baseline_program("/no/python", (), "none", 1) is None
    assert variants_of(("none",)) == ()
    with pytest.raises(PlanError, match="no none; there are pytorch"):
        variants_of(("none", "pytorch"))


def test_the_pinned_interpreters_are_taken_where_none_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(baselines, "BASELINES", {name: tmp_path / f".venv-{name}" for name in PINNED_BASELINES})
    facts = {"megatron_core": "0.16.1", "fused_attention": True, "compiles": True}
    for name, more in (("baseline", facts), ("baseline-cu102", {**facts, "fused_attention": False})):
        (tmp_path / f".venv-{name}" / "bin").mkdir(parents=True)
        interpreter(tmp_path / f".venv-{name}" / "bin", 1, **more)
    today = baseline_program(None, (), "megatron,pytorch-compiled", 1)
    assert today.command[0] == str(tmp_path / ".venv-baseline/bin/python")
    assert (today.lock, today.variants) == ("docker/baseline.lock", ("megatron", "pytorch-compiled"))
    era = baseline_program("cu102", (), None, 1)
    assert era.command[0] == str(tmp_path / ".venv-baseline-cu102/bin/python")
    assert (era.lock, era.variants) == ("docker/baseline-cu102.lock", ("pytorch-unfused",))
    with pytest.raises(
        PlanError, match=r"environment baseline-cu102: PyTorch 2.9.1 has no fused attention, which pytorch"
    ):
        baseline_program("cu102", (), "pytorch", 1)
    with pytest.raises(PlanError, match=r"sees 1 of the 2 GPUs here; its CUDA 12.8 has to suit the driver\. Drivers"):
        baseline_program(None, (), "pytorch", 2)


def test_where_ranks_run_in_images_the_pinned_environments_are_images_too(tmp_path):
    """The words in front of the interpreter answer for what is in the image."""
    facts = {"megatron_core": "0.16.1", "fused_attention": True, "compiles": True}
    words = (interpreter(tmp_path, 1, **facts), "run", "an-image")
    theirs = baseline_program(None, (), "pytorch,megatron", 1, image=lambda: PinnedImage("sha256:1", words))
    assert theirs.command == (IMAGE_PYTHON, str(SCRIPT))
    assert (theirs.image, theirs.lock) == ("sha256:1", "docker/baseline.lock")
    assert recorded_command(BaselineProgram.from_json(json.loads(json.dumps(theirs.as_json())))) == theirs.command
    own = baseline_program(words[0], (), "pytorch", 1, image=lambda: pytest.fail("another was named"))
    assert (own.command[0], own.image) == (words[0], "")
    with pytest.raises(PlanError, match=r"the image of the baselines: PyTorch 2\.9\.1 sees 1 of the 4 GPUs"):
        baseline_program(None, (), "pytorch", 4, image=lambda: PinnedImage("sha256:1", words))


@pytest.mark.parametrize(
    ("facts", "names", "message"),
    [
        ({"python": [3, 9]}, "pytorch", "it has Python 3.9, and the baselines need 3.10 or newer"),
        ({"megatron_core": None}, "pytorch,megatron", "Megatron-Core is not installed, which megatron needs"),
        (
            {"megatron_core": "0.16.1", "compiles": False},
            "megatron-unfused,pytorch,pytorch-compiled",
            "megatron-unfused, pytorch-compiled compiles kernels, which needs a C compiler and Python.h",
        ),
    ],
)
def test_what_an_environment_lacks_for_a_variant_is_named_before_anything_starts(tmp_path, facts, names, message):
    python = interpreter(tmp_path, 1, **facts)
    with pytest.raises(PlanError, match=re.escape(f"BASELINE_PYTHON={python}: {message}")):
        baseline_program(python, (), names, 1)
    usable = interpreter(tmp_path, 1, **facts | {"python": [3, 10]})
    assert baseline_program(usable, (), "pytorch", 1).lock == ""


def test_without_gpus_torch_compile_needs_a_compiler_of_another_language(tmp_path):
    python = interpreter(tmp_path, 0, megatron_core=None, compiles_for_cpu=False)
    message = (
        "pytorch-compiled compiles for the CPU, which needs g++ and a path to PyTorch without blanks: install g++, or set "
        "PyTorch up in another folder"
    )
    with pytest.raises(PlanError, match=re.escape(message)):
        baseline_program(python, (), "pytorch-compiled", 0)
    assert baseline_program(python, (), "pytorch", 0).variants == ("pytorch",)
    with_gpu = interpreter(tmp_path, 1, megatron_core=None, compiles_for_cpu=False)
    with pytest.raises(PlanError, match="compiles for the CPU"):
        baseline_program(with_gpu, (), "pytorch-compiled", 0)
    assert baseline_program(with_gpu, (), "pytorch-compiled", 1).variants == ("pytorch-compiled",)


@pytest.mark.parametrize("answer", ["", "x", "{}", "[]", "1"])
def test_what_is_no_python_with_pytorch_is_named(tmp_path, answer):
    named = program(tmp_path, "python", f"echo '{answer}'")
    with pytest.raises(
        PlanError, match=r"python cannot run the baselines: it answers as no Python with PyTorch does\."
    ):
        baseline_program(named, (), "pytorch", 0)


@pytest.mark.parametrize("name", ["torch", "a torch"])
def test_the_probe_answers_in_an_interpreter_with_pytorch(tmp_path, name):
    """Modules of these names in place of PyTorch and NumPy, since the tests' Python has none; and a g++ that does nothing.

    PyTorch gives the linker a folder with a blank in its path as two.
    """
    program(tmp_path, "g++", "true")
    tmp_path = tmp_path / name
    tmp_path.mkdir()
    (tmp_path / "numpy.py").touch()
    torch = (
        "class version: cuda = '12.8'\n__version__ = '2.9.1'\nclass cuda:\n    device_count = staticmethod(lambda: 3)\n"
    )
    (tmp_path / "torch.py").write_text(torch + "class nn:\n    class functional: pass\ncompile = print\n")
    done = subprocess.run(
        [sys.executable, "-c", PROBE],
        env={"PYTHONPATH": str(tmp_path), "PATH": str(tmp_path.parent)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "python": list(sys.version_info[:2]),
        "torch": "2.9.1",
        "cuda": "12.8",
        "gpus": 3,
        "megatron_core": None,
        "fused_attention": False,
        "compiles": False,
        "compiles_for_cpu": name == "torch",
    }


def test_beside_tf32_the_baseline_is_in_tf32_too():
    assert baseline_program(None, ("x",), None, 0, "tf32").variants == ("pytorch-tf32",)
    assert baseline_program(None, ("x",), "pytorch", 0, "tf32").variants == ("pytorch",)
    assert baseline_program(None, ("x",), None, 0, "amp").variants == ("pytorch", "pytorch-unfused", "pytorch-tf32")


def test_the_wanted_variants_are_kept_in_order(tmp_path):
    assert baseline_program(None, ("x",), "pytorch-tf32, pytorch", 0).variants == ("pytorch-tf32", "pytorch")


def test_without_an_interpreter_there_are_no_baselines():
    assert baseline_program(None, (), None, 4) is None


@pytest.mark.parametrize(
    ("python", "names", "gpus", "message"),
    [
        ("/nowhere/python", None, 0, "BASELINE_PYTHON=/nowhere/python: no such program"),
        ("bare", None, 0, "cannot run the baselines: ModuleNotFoundError: No module named 'torch'"),
        ("blind", None, 4, "sees 1 of the 4 GPUs here"),
        ("blind", "pytorch,jax", 0, "BASELINES=pytorch,jax: no jax; there are pytorch, pytorch-unfused"),
        (None, "pytorch", 0, "BASELINES needs the environment that docker/baseline.lock pins, not installed here"),
        ("cu102", None, 0, "BASELINES needs the environment that docker/baseline-cu102.lock pins, not installed here"),
    ],
)
def test_what_cannot_run_baselines_is_named(tmp_path, monkeypatch, python, names, gpus, message):
    monkeypatch.setattr(baselines, "BASELINES", {name: tmp_path / f".venv-{name}" for name in PINNED_BASELINES})
    if python == "bare":
        python = program(tmp_path, "bare", "echo 'ModuleNotFoundError: No module named '\"'torch'\" >&2; exit 1")
    elif python == "blind":
        python = interpreter(tmp_path, 1)
    with pytest.raises(PlanError, match=re.escape(message)):
        baseline_program(python, (), names, gpus)


def test_baselines_share_nccls_settings_and_nothing_else_of_oneflows_stack(tmp_path):
    plan = make_plan(load_catalogue().select("bert", "bert_1n1g_bs96"), 1, Wanted(baselines=("pytorch",)))
    stack = {"LD_PRELOAD": "/x.so", "CUDA_CACHE_PATH": "/cache", "NCCL_NVLS_ENABLE": "0"}
    attempt_of = local_attempts(
        Limits(), None, ("/env/bin/python", "run.py"), ("/usr/bin/python3", "baseline.py"), stack
    )
    ours, baseline = (attempt_of(unit, tmp_path) for unit in plan.units)
    assert ours.environment == stack
    assert baseline.environment == {"NCCL_NVLS_ENABLE": "0"}
    assert (baseline.trainer, baseline.is_baseline) == (("/usr/bin/python3", "baseline.py"), True)


def test_a_wrong_interpreter_is_refused_before_anything_starts(refused):
    said = refused("bench", MODEL="bert", BASELINE_PYTHON="/nowhere/python")
    assert "BASELINE_PYTHON=/nowhere/python: no such program" in said


def test_a_run_with_baselines_and_shrunk_layouts_to_its_reports(task, tmp_path):
    """The stand-in stands for both programs, and a script for nvidia-smi shows two GPUs."""
    lay_gpu(tmp_path / "bin", V100, V100)
    path = f"{tmp_path / 'bin'}:/usr/bin:/bin"
    done = task(
        "bench", MODEL="gpt", CASES="DP_1x1x1*,DP_8x1x1*", MAX_GPUS=2, REPEATS=2, BASELINE_COMMAND=COMMAND, PATH=path
    )
    assert done.returncode == 0, done.stderr
    folder = only_run(tmp_path)
    ours = ["DP_1x1x1_2_1536x16", "DP_8x1x1_16_1536x16.as_2x1x1"]
    order = [(attempt["unit"], attempt["repeat"]) for attempt in attempts(folder)]
    once = [name for unit in ours for name in (unit, f"{unit}.pytorch", f"{unit}.pytorch-unfused")]
    expected = [
        (name, repeat)
        for repeat in (1, 2)
        for unit, beside in ((once[0], once[:3]), (once[3], once[3:]))
        for name in drawn(beside, Block(unit, repeat), folder.name)
    ]
    assert order == expected, "drift hits both frameworks alike"
    rows = {row["unit"]: row for row in csv.DictReader((folder / "results.csv").open())}
    assert [rows[name]["framework"] for name in once] == ["oneflow", "pytorch", "pytorch"] * 2
    assert [rows[name]["baseline_of"] for name in once] == ["", ours[0], ours[0], "", ours[1], ours[1]]
    assert rows[ours[1]]["derived_from"] == "DP_8x1x1_16_1536x16"
    verdicts = json.loads((folder / "verdicts.json").read_text())["verdicts"]
    assert [verdict["unit"] for verdict in verdicts] == ours[:1]
    said = {
        "en": "`pytorch-unfused`: computes the same as the published program",
        "zh": "`pytorch-unfused`：计算与原程序相同",
    }
    for language in ("en", "zh"):
        text = (folder / f"report.{language}.md").read_text()
        assert said[language] in text
        equal = "1.000 … 1.000 (37.5%)"
        assert f"| {ours[1]} | pytorch | 400.00 | 400.00 | 1.000 | 1.000 | {equal} | 100 | 100 |" in text
        assert f"| {ours[1]} | {ours[0]} | 2 | 400.00 | 2.00 | 100.0% | 100.0% | {equal} |" in text
        assert f"| {ours[1]} | DP_8x1x1_16_1536x16 | 2x1x1 | amp | 100 | 4 | 400.00 | 10.00 | 100 |" in text


def test_a_run_with_baselines_is_resumed(task, tmp_path):
    settings = {"MODEL": "bert", "CASES": "bert_1n1g_bs96", "REPEATS": 1, "DATA": "synthetic"}
    assert task("bench", **settings, BASELINE_COMMAND=COMMAND, STANDIN="exit=3@0").returncode == 1
    folder = only_run(tmp_path)
    assert "not the program of this checkout" in task("bench", RUN=folder.name).stderr
    assert task("bench", RUN=folder.name, BASELINE_COMMAND=COMMAND).returncode == 0
    found = attempts(folder)
    assert [attempt["status"] for attempt in found] == ["failed"] * 3 + ["ok"] * 3
    text = (folder / "report.en.md").read_text()
    assert "| Baselines whose losses match OneFlow's | 2 / 2 |" in text
