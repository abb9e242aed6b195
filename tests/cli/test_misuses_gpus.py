"""GPUs that cannot be told, are not there or differ: a run here says so before anything starts."""

import os
import re

import pytest

from repro.cli.make import run
from tests.support.programs import lay_smi


@pytest.fixture
def bench(tmp_path, monkeypatch, capsys):
    """The status and the words of `make bench DRY_RUN=1` on a machine whose nvidia-smi is in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

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
    lay_smi(tmp_path, "#!/bin/sh\necho 'No devices were found'\n")
    status, said = bench()
    assert status == 0 and "smoke" in said.out
