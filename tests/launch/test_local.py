"""This machine as a launcher: what it would start."""

import shlex
from dataclasses import replace

import pytest

from repro.images.stack import Libraries
from repro.launch.base import LaunchOptions
from repro.launch.local import LocalLauncher
from repro.planning.plan import Wanted
from repro.published.cases import load_catalogue
from repro.utils.errors import PlanError
from repro.utils.ports import free_port


def test_a_dry_run_shows_a_command_per_unit_and_starts_nothing(tmp_path, standin):
    launcher = LocalLauncher.of(LaunchOptions(trainer=standin))
    plan = launcher.plan(load_catalogue().select("bert", None), Wanted(scale="smoke"))
    lines = list(launcher.dry_run(plan))
    assert lines[0] == f"# {plan.units[0].name}: 1 ranks"
    assert lines[1] == shlex.join([standin[0], "-u", standin[1], "--config", "<attempt>/config.json"])
    assert "--nproc_per_node 4 --master_addr 127.0.0.1 --master_port '<a free port>'" in lines[3]
    assert len(lines) == 2 * len(plan.units)


def tf32_plan(launcher):
    return launcher.plan(load_catalogue().select("bert", "bert_1n1g_bs96"), Wanted(precision="tf32"))


def test_tf32_is_for_gpus_and_libraries_that_know_it(tmp_path, monkeypatch, standin):
    here = [{"name": "Tesla V100-SXM2-16GB", "driver_version": "535.1", "compute_cap": "7.0"}]
    monkeypatch.setattr("repro.launch.local.usable_gpus", lambda: here)
    monkeypatch.setattr("repro.launch.local.gpu_count", lambda: len(here))
    launcher = LocalLauncher.of(LaunchOptions(trainer=standin))
    with pytest.raises(
        PlanError, match=r"PRECISION=tf32 needs GPUs newer than Turing and .* V100-SXM2-16GB and stack cu102"
    ):
        launcher.stack(tf32_plan(launcher))
    here[:] = [{"name": "NVIDIA H200", "driver_version": "580.1", "compute_cap": "9.0"}]
    older = replace(launcher, options=replace(launcher.options, stack="cu102"))
    with pytest.raises(PlanError, match="here are NVIDIA H200 and stack cu102"):
        older.stack(tf32_plan(older))
    for name in ("cublas", "cudnn"):
        (tmp_path / f"lib{name}.so.12").touch()
    found = Libraries(str(tmp_path), str(tmp_path))
    launcher = replace(launcher, options=replace(launcher.options, libraries=found))
    lines = list(launcher.dry_run(tf32_plan(launcher)))
    assert {"CUBLAS_FORWARD_TF32=1", "CUDNN_FORWARD_TF32=1"} <= set(shlex.split(lines[-1]))
    fp32 = launcher.plan(load_catalogue().select("bert", "bert_1n1g_bs96"), Wanted(precision="fp32"))
    assert not any("TF32" in line for line in launcher.dry_run(fp32))


def test_make_bench_prints_its_commands_on_one_machine_too(task, tmp_path):
    done = task("bench", MODEL="bert", DRY_RUN=1, PORT=free_port())
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("--config") == 3
    assert not (tmp_path / "runs").exists()
