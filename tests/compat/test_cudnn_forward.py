"""The library that forwards cuDNN, with a stand-in for the newer cuDNN that prints how it is called."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from repro.analysis.process_info import readable
from tests.support.compat import CALLER, compile_library, needs_gcc
from tests.support.paths import ROOT, TRAINER_PYTHON
from tests.support.patience import patience

SOURCE = ROOT / "docker/compat/cudnn_forward.c"
FAKE = Path(__file__).with_name("fake_cudnn.c")

pytestmark = needs_gcc


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compat")
    compile_library(SOURCE, folder / "libcudnn_forward.so")
    compile_library(FAKE, folder / "libcudnn.so.9")
    return folder


@pytest.fixture
def call(built):
    """Runs statements in a process with the library; returns the sorted lines printed, and standard error."""

    def run(statements, **environment):
        named = {"CUDNN_FORWARD_LIBRARY": str(built / "libcudnn.so.9"), **environment}
        command = [sys.executable, "-c", CALLER + statements, str(built / "libcudnn_forward.so")]
        done = subprocess.run(command, env={**os.environ, **named}, capture_output=True, text=True, timeout=patience())
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines(), done.stderr

    return run


def test_every_function_that_oneflow_calls_is_there(built):
    wheel = next(TRAINER_PYTHON.parent.parent.glob("lib/python3*/site-packages/oneflow.libs/liboneflow-*.so"))
    symbols = subprocess.run(["nm", "-D", "--undefined-only", wheel], capture_output=True, text=True, check=True).stdout
    called = set(re.findall(r" U (cudnn\w+)@libcudnn", symbols))
    own = subprocess.run(["nm", "-D", "--defined-only", built / "libcudnn_forward.so"], capture_output=True, text=True)
    assert len(called) > 50
    assert called <= set(re.findall(r" T (cudnn\w+)", own.stdout))


def test_a_jump_keeps_all_parameters(call):
    lines, _ = call("call('cudnnPoolingForward', *(p(16 * i) for i in range(1, 9)))")
    assert lines[-1] == "cudnnPoolingForward -> 42" or lines[0] == "cudnnPoolingForward -> 42"
    assert "pool 0x10 0x20 0x30 0x40 0x50 0x60 0x70 0x80" in lines


def test_it_says_once_where_calls_go(call, built):
    """Each stream of a process creates a handle of its own."""
    lines, errors = call("for _ in range(3):\n    call('cudnnCreate', ctypes.byref(handle))")
    assert sum(line == "cudnnCreate -> 0" for line in lines) == 3
    printed = [line for line in errors.splitlines() if "calls go to" in line]
    assert printed == [f"cudnn_forward: cuDNN calls go to {built / 'libcudnn.so.9'} (91002)"]


def test_fp32_takes_no_tensor_cores(call):
    """A new descriptor, and one that is set to the old default, get FMA_MATH; another wish is passed on."""
    lines, _ = call("call('cudnnSetConvolution2dDescriptor', p(16), 1, 2, 3, 4, 5, 6, 1, 0)")
    assert {"2d 0x10 1 2 3 4 5 6 1 0", "math 0x10 3", "cudnnSetConvolution2dDescriptor -> 0"} == set(lines)
    lines, _ = call("call('cudnnSetConvolutionMathType', p(16), 0)\ncall('cudnnSetConvolutionMathType', p(32), 1)")
    assert {"math 0x10 3", "math 0x20 1"} <= set(lines)


@pytest.mark.parametrize(("asked", "math"), [("1", 0), ("0", 3), ("", 3)])
def test_fp32_takes_tf32_if_asked_for(call, asked, math):
    """Descriptors then keep the default of newer versions, which takes it; FMA_MATH is passed on as another wish."""
    new = "call('cudnnSetConvolution2dDescriptor', p(16), 1, 2, 3, 4, 5, 6, 1, 0)"
    lines, _ = call(f"{new}\ncall('cudnnSetConvolutionMathType', p(32), 0)", CUDNN_FORWARD_TF32=asked)
    assert {f"math 0x10 {math}", f"math 0x20 {math}"} <= set(lines)
    lines, errors = call(
        "call('cudnnSetConvolutionMathType', p(32), 3)\ncall('cudnnCreate', ctypes.byref(handle))",
        CUDNN_FORWARD_TF32=asked,
    )
    assert "math 0x20 3" in lines
    assert errors.rstrip().endswith(", fp32 convolutions in TF32") == (asked == "1")


def test_a_refused_descriptor_stays_refused(call):
    lines, _ = call("call('cudnnSetConvolutionNdDescriptor', p(16), 1, ints(7), ints(8), ints(9), 1, 0)")
    assert {"nd 0x10 1 7 8 9 1 0", "cudnnSetConvolutionNdDescriptor -> 3000"} == set(lines)


def test_a_function_or_library_that_is_missing_is_said(call):
    lines, errors = call("call('cudnnAddTensor')")
    assert lines == ["cudnnAddTensor -> 1"]
    assert "has no cudnnAddTensor" in errors
    lines, errors = call("call('cudnnCreate', ctypes.byref(handle))", CUDNN_FORWARD_LIBRARY="/missing.so")
    assert lines == ["cudnnCreate -> 1"]
    assert "name the file in CUDNN_FORWARD_LIBRARY" in errors


@pytest.mark.parametrize(("forwarded", "number"), [(True, 91002), (False, 7605)])
def test_a_trainer_and_the_probe_tell_the_library_that_is_called(built, tmp_path, forwarded, number):
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"} | {"PYTHONPATH": ROOT}
    if forwarded:
        environment |= {
            "LD_PRELOAD": str(built / "libcudnn_forward.so"),
            "CUDNN_FORWARD_LIBRARY": str(built / "libcudnn.so.9"),
        }
    code = "from repro.trainers.versions import versions; print(versions('cuda')['cudnn'])"
    options = {"env": environment, "cwd": tmp_path, "capture_output": True, "text": True}
    done = subprocess.run([TRAINER_PYTHON, "-c", code], **options)
    assert done.stdout.splitlines()[-1:] == [str(number)], done.stderr
    probe = subprocess.run([TRAINER_PYTHON, ROOT / "docker/inside/probe.py"], **options)
    libraries = json.loads(probe.stdout)["libraries"]
    assert libraries["cuDNN called"]["version"] == readable({"cudnn": number})["cudnn"]
    assert libraries["cuDNN in the wheel"]["version"] == "7.6.5"
    assert (libraries["cuDNN called"]["source"] == str(built / "libcudnn.so.9")) == forwarded
