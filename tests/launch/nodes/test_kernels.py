"""Operators are compared on each node before ranks start there: once for its GPU, driver and libraries."""

import json
import os
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from repro.cli.options import RunOptions
from repro.cli.session import Session
from repro.cli.settings import Invocation
from repro.cluster.inventory import ClusterError
from repro.launch.kernels import PROGRAM, KernelError
from repro.launch.nodes import kernels as on_nodes
from repro.launch.nodes.code_upload import UploadedCode
from repro.launch.nodes.target import ClusterTarget
from repro.launch.ssh.launcher import SshLauncher
from repro.planning.plan import Wanted, make_plan
from repro.published.cases import load_catalogue
from repro.runs.description import PlannedRun
from repro.runs.record import Run
from tests.support.paths import TRAINER_PYTHON
from tests.support.processes import processes_of
from tests.support.programs import lay_gpu, standins
from tests.support.ssh_server import SshServer


@pytest.fixture
def gpu(tmp_path, monkeypatch):
    """Puts a GPU into this machine, as far as nvidia-smi tells."""
    monkeypatch.setenv("PATH", f"{tmp_path}/tools:{os.environ['PATH']}")
    return partial(lay_gpu, tmp_path / "tools")


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """One node of one V100 with the trainer environment as its venv."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    monkeypatch.delenv("REPRO_TRAINER_COMMAND", raising=False)
    monkeypatch.setattr(on_nodes, "CACHE", tmp_path / "cache")
    work = tmp_path / "work"
    work.mkdir()
    (work / "venv").symlink_to(TRAINER_PYTHON.parent.parent)
    server = SshServer(tmp_path)
    python = os.path.realpath("/usr/bin/python3")
    yield server.cluster(runtime_name="venv", work=str(work), gpu="Tesla V100-SXM2-16GB", python=python)
    server.stop()


@pytest.fixture
def compared(tmp_path, monkeypatch):
    """A stand-in for the program that compares, and what it noted of each of its calls."""
    calls = tmp_path / "calls"
    monkeypatch.setenv("KERNELS_STANDIN_CALLS", str(calls))
    return lambda: [json.loads(line) for line in calls.read_text().splitlines()] if calls.exists() else []


@pytest.fixture
def bench(cluster, tmp_path):
    """`make bench` of all cases of a model that fit on one GPU; the run."""

    def run(model="resnet50", **changes):
        changed = replace(cluster, **changes)
        code = UploadedCode(standins(tmp_path / "programs"), changed.stack == "cu102-modern")
        launcher = SshLauncher(ClusterTarget(changed, code, changed.port))
        plan = make_plan(load_catalogue().select(model, None), 1, Wanted(scale="published", repeats=1))
        session = Session(invocation=Invocation("bench", {}), options=RunOptions(runs=tmp_path / "runs"))
        try:
            session.run_on_cluster(None, launcher, lambda: PlannedRun(plan=plan))
        finally:
            found = sorted((tmp_path / "runs").glob("*/run.json"))
        return Run(found[-1].parent)

    return run


def test_a_node_is_compared_once_and_a_run_records_it(bench, gpu, compared):
    gpu("Tesla V100-SXM2-16GB")
    recorded = bench().description().environment.kernels
    assert (recorded["operators"], recorded["wrong"], recorded["nodes"]) == (1, [], ["node0"])
    assert len(compared()) == 1
    bench()
    assert len(compared()) == 1, "kept"
    gpu("Tesla V100-SXM2-16GB", driver="550.1")
    bench()
    assert len(compared()) == 2, "another driver is another comparison"


def test_a_model_that_nodes_compute_wrongly_is_never_started(bench, gpu, compared, tmp_path, monkeypatch):
    gpu("Tesla V100-SXM2-16GB")
    monkeypatch.setenv("KERNELS_STANDIN", "wrong")
    with pytest.raises(
        KernelError,
        match=r"(?s)resnet50, PROGRAM=published: 1 of its .* node0: convolution 64 to 64, 1x1.*make provision",
    ):
        bench()
    assert not (tmp_path / "runs").exists()
    run = bench(None)
    plan = run.description().plan
    assert {unit.model for unit in plan.units} == {"bert", "gpt"}
    assert any("its operators compute wrongly" in skipped.reason.message for skipped in plan.skipped)


def test_what_cannot_be_compared_is_never_started(cluster, gpu, tmp_path):
    """The real program, and no GPU behind nvidia-smi."""
    gpu("Tesla V100-SXM2-16GB")
    plan = make_plan(load_catalogue().select("gpt", "DP_1x1x1*"), 1, Wanted(scale="published", repeats=1))
    session = Session(invocation=Invocation("bench", {}), options=RunOptions(runs=tmp_path / "runs"))
    launcher = SshLauncher(ClusterTarget(cluster, UploadedCode(), cluster.port))
    with pytest.raises(KernelError, match="node0: the operators cannot be compared with the CPU: rank 0 on node0"):
        session.run_on_cluster(None, launcher, lambda: PlannedRun(plan=plan))
    assert not (tmp_path / "runs").exists()
    assert not processes_of(f"{cluster.work}/runs")


def test_a_node_without_a_gpu_is_named(bench, compared):
    with pytest.raises(KernelError, match="node0: nvidia-smi shows no GPU"):
        bench()
    assert compared() == []


def test_tf32_is_refused_on_a_gpu_that_has_none(cluster):
    facts = {"node0": {"gpus": [{"name": "Tesla T4", "driver_version": "580.1", "compute_cap": "7.5"}]}}
    modern = replace(cluster, stack="cu102-modern")
    with pytest.raises(KernelError, match=r"node0: PRECISION=tf32 needs GPUs newer than Turing .* here are Tesla T4"):
        on_nodes.compared_on_nodes(modern, facts, {"bert": ("tf32",)}, None)


def test_the_published_libraries_are_refused_on_a_newer_gpu(bench, gpu, compared):
    gpu("NVIDIA H200")
    with pytest.raises(
        ClusterError, match=r"node0: cuDNN 7\.6\.5 of stack cu102 computes wrong convolutions on NVIDIA H200"
    ):
        bench(gpu="NVIDIA H200")
    assert compared() == []


def test_a_venv_on_a_newer_gpu_computes_through_the_newer_libraries(bench, gpu, compared, cluster):
    gpu("NVIDIA H200")
    newer = {"gpu": "NVIDIA H200", "stack": "cu102-modern"}
    with pytest.raises(ClusterError, match=r"there is no cuDNN in .*work/cudnn, which these GPUs need"):
        bench(**newer)
    for name in ("cublas", "cudnn"):
        Path(cluster.work, name).mkdir()
        Path(cluster.work, name, f"lib{name}.so.9").touch()
    run = bench(**newer)
    (call,) = compared()
    assert [Path(path).name.partition("-")[0] for path in call["loaded"]] == ["libcublas_forward", "libcudnn_forward"]
    assert call["folders"] == [f"{cluster.work}/cublas", f"{cluster.work}/cudnn"]
    commands = [json.loads(path.read_text()) for path in run.folder.glob("units/*/*/command.json")]
    assert commands
    for command in commands:
        (preload,) = [word for word in command["node0"] if word.startswith("LD_PRELOAD=")]
        assert preload == f"LD_PRELOAD={':'.join(call['loaded'])}"
    Path(cluster.work, "cudnn/libcudnn.so.9").write_text("another")
    bench(**newer)
    assert len(compared()) == 2, "another library is another comparison"


def test_a_venv_without_a_compiler_is_refused_before_it_is_used(cluster, gpu, monkeypatch):
    from repro.launch.nodes.libraries import library_problems

    facts = {"gpus": [{"name": "NVIDIA H200", "driver_version": "580.1", "compute_cap": "9.0"}], "compiler": False}
    modern = replace(cluster, stack="cu102-modern", gpu="NVIDIA H200")
    (problem,) = library_problems(modern, {**facts, "libraries": ["cublas", "cudnn"]}, "`make provision`")
    assert problem.startswith("there is no gcc")
    in_images = replace(modern, runtime_name="docker")
    assert library_problems(in_images, {**facts, "libraries": ["cublas", "cudnn"]}, "") == []


def test_the_real_program_goes_to_nodes_with_the_trainer():
    """What stands in for it here has its name."""
    assert PROGRAM.name == "kernels.py"
    assert f"repro/trainers/{PROGRAM.name}" in UploadedCode().files
