"""GPUs that cannot be told, are not there or differ: a run here says so before anything starts."""

import os
import re
from functools import partial

import pytest

from repro.cli.make import run
from repro.images import attention_operator, stack, wheels
from repro.launch.agent import gpus
from repro.launch.base import LaunchOptions
from repro.launch.host_environment import GpuError, usable_gpus, visible_gpus
from repro.launch.local import LocalLauncher
from tests.support.programs import H200, V100, lay_gpu, lay_smi


@pytest.fixture
def bench(tmp_path, monkeypatch, capsys):
    """The status and the words of `make bench DRY_RUN=1` on a machine whose nvidia-smi is in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def call(**settings):
        given = {"MODEL": "gpt", "CASES": "DP_1x1x1*", "DRY_RUN": "1", **settings}
        status = run("bench", given.items())
        return status, capsys.readouterr()

    return call


@pytest.mark.parametrize("printed", ["<html>not found</html>", "NVIDIA H200, 580.1\nNVIDIA H200, 580.1"])
def test_an_nvidia_smi_that_prints_no_gpus_is_no_machine_without_gpus(printed, bench, tmp_path):
    lay_smi(tmp_path, f"#!/bin/sh\necho '{printed}'\n")
    status, said = bench()
    line = re.escape(printed.splitlines()[0])
    assert status == 2 and not said.out
    assert re.fullmatch(
        f"nvidia-smi printed '{line}', which is no GPU: run `nvidia-smi --query-gpu=.* by hand.*\n", said.err
    )


def test_a_driver_without_gpus_is_a_machine_without_gpus(bench, tmp_path):
    lay_smi(tmp_path, "#!/bin/sh\necho 'No devices were found'\nexit 6\n")
    status, said = bench()
    assert status == 0 and "smoke" in said.out and "note:" not in said.err


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (
            "echo 'NVIDIA-SMI has failed because of the driver.'\necho 'Install it.'\nexit 9",
            "NVIDIA-SMI has failed because of",
        ),
        ("echo 'Failed to initialize NVML' >&2\nexit 255", "Failed to initialize NVML"),
        ("exit 15", "status 15"),
        ("sleep 60", "no answer within 1 s"),
    ],
)
def test_a_driver_that_fails_is_said_before_a_run_without_gpus(script, reason, bench, tmp_path, monkeypatch):
    lay_smi(tmp_path, f"#!/bin/sh\n{script}\n")
    monkeypatch.setattr(gpus, "QUERY_S", 1)
    status, said = bench()
    assert status == 0 and "smoke" in said.out
    assert said.err.startswith(f"note: nvidia-smi fails here, so no GPU is used: {reason}"), said.err


@pytest.mark.parametrize(
    ("visible", "reason"),
    [
        ("0,9", "GPU 9 is not here; nvidia-smi shows 2"),
        ("0,0", "GPU 0 is named twice"),
        ("GPU-1,GPU-1", "GPU GPU-1 is named twice"),
        ("GPU-7", "GPU GPU-7 is not here"),
        ("GPU-", "GPU GPU- is not here"),
        ("0,,1", "GPU '' is not here"),
        ("all", "GPU all is not here"),
        ("00", "GPU 00 is not here"),
    ],
)
def test_a_gpu_that_is_not_there_or_named_twice_is_refused(visible, reason, bench, tmp_path, monkeypatch):
    lay_gpu(tmp_path, V100, V100)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    status, said = bench()
    assert (status, said.out) == (2, "") and said.err.startswith(f"CUDA_VISIBLE_DEVICES={visible}: {reason}"), said.err
    assert "from 0 to 1 or its UUID" in said.err


@pytest.mark.parametrize(
    ("visible", "count"),
    [
        (None, 2),
        ("1", 1),
        ("1, 0", 2),
        ("GPU-2,GPU-1", 2),
        ("MIG-GPU-1/1/0,MIG-GPU-1/2/0", 2),
        ("", 0),
        ("-1", 0),
        ("1,-1,0", 1),
    ],
)
def test_gpus_are_counted_as_cuda_counts_them(visible, count, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    lay_gpu(tmp_path, V100, V100)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert len(visible_gpus()) == count


@pytest.mark.parametrize("text", ["x", "0", "-1", "1.5", "4,2", ""])
def test_threads_are_a_number(text, bench, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", text)
    status, said = bench()
    assert (status, said.out) == (2, "")
    assert said.err == f"OMP_NUM_THREADS={text}: it is a whole number from 1 to 9999; leave it out for 1\n"


def test_a_run_that_goes_on_needs_its_gpus_too(bench, tmp_path, monkeypatch):
    lay_gpu(tmp_path, V100)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "9")
    with pytest.raises(GpuError, match="GPU 9 is not here; nvidia-smi shows 1"):
        LocalLauncher.of(LaunchOptions()).open("make bench RUN=x").__enter__()


def test_gpus_of_several_models_are_remarked(bench, tmp_path, monkeypatch):
    lay_gpu(tmp_path, V100, H200, V100)
    status, said = bench()
    assert status == 0 and said.err.startswith(f"note: GPUs of several models: 2 x {V100}, 1 x {H200}. The slowest ")
    assert said.err.count("\n") == 1
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-3,GPU-1")
    assert bench()[1].err == ""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-2")
    assert [gpu["name"] for gpu in usable_gpus()] == [H200], "whose libraries decide"


def test_a_dry_run_only_says_what_would_be_downloaded_and_compiled(bench, tmp_path, monkeypatch):
    lay_gpu(tmp_path, H200)
    for compiler in ("gcc", "g++"):
        (tmp_path / compiler).write_text(f"#!/bin/sh\ntouch {tmp_path}/compiled\nexit 1\n")
        (tmp_path / compiler).chmod(0o755)
    monkeypatch.setattr(stack, "find_cudnn", lambda libraries: stack._fetched("cuDNN"))
    monkeypatch.setattr(stack, "find_cublas", lambda libraries: stack._fetched("cuBLAS"))
    monkeypatch.setattr(stack, "library_name", "lib{}-new.so".format)
    monkeypatch.setattr(attention_operator, "digest", lambda needed: "new")
    monkeypatch.setattr(wheels, "_download", lambda *given: pytest.fail("downloaded"))
    monkeypatch.setattr(wheels, "unpack", partial(wheels.unpack, folder=tmp_path / "wheels"))
    status, said = bench()
    *steps, unit, command = said.out.splitlines()
    assert status == 0, said.err
    assert [re.sub(r"^# before the first run: | \S*/.*", "", step) for step in steps] == [
        "download and unpack nvidia_cublas_cu12-12.4.5.8-py3-none-manylinux2014_x86_64.whl into",
        "download and unpack nvidia_cudnn_cu12-9.6.0.74-py3-none-manylinux_2_27_x86_64.whl into",
        "compile",
        "compile",
        "compile",
        "try to load",
    ]
    assert unit.startswith("# DP_1x1x1") and "CUBLAS_FORWARD_LIBRARY=" in command and "cublas_forward-new.so" in command
    assert not (tmp_path / "compiled").exists()
