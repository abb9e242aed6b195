"""The library that writes down when kernels ran, with a stand-in for CUPTI that hands over a few records."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.compat import compile_library, needs_gcc
from tests.support.paths import ROOT
from tests.support.patience import patience

SOURCE = ROOT / "docker/compat/kernel_trace.c"
FAKE = Path(__file__).with_name("fake_cupti.c")
CALLER = """
import ctypes, os, sys
print(os.getpid(), ctypes.CDLL(sys.argv[1]).InitializeInjection())
"""
RECORDS = [
    (1000, 2500, 3, 7, "void foo::bar<float>(float*)"),
    (2600, 2700, 3, 9, "Memcpy device to host"),
    (3000, 3100, 3, 8, "plain_kernel"),
    (3200, 3300, 3, 9, "Memset"),
    (4000, 4400, 3, 7, "void foo::bar<float>(float*)"),
]

pytestmark = needs_gcc


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compat")
    for source, name in ((SOURCE, "libkernel_trace.so"), (FAKE, "libcupti_of_a_test.so")):
        compile_library(source, folder / name)
    return folder


@pytest.fixture
def traced(built, tmp_path):
    """Runs a process that calls the library as the driver does; its lines by file name, and standard error."""

    def run(**environment):
        kept = {name: value for name, value in os.environ.items() if name != "RANK"}
        cupti = str(built / "libcupti_of_a_test.so")
        named = {"KERNEL_TRACE_FILE": str(tmp_path / "trace"), "KERNEL_TRACE_CUPTI": cupti}
        command = [sys.executable, "-c", CALLER, built / "libkernel_trace.so"]
        done = subprocess.run(
            command, env=kept | named | environment, capture_output=True, text=True, timeout=patience()
        )
        pid, status = done.stdout.split()
        assert (done.returncode, status) == (0, "1"), done.stderr
        files = {path.name.replace(pid, "PID"): path.read_text().splitlines() for path in tmp_path.glob("trace*")}
        return files, done.stderr

    return run


def test_records_are_written_with_their_names_and_clock(traced, built):
    before = time.time_ns()
    files, _ = traced(RANK="0")
    lines = files["trace.PID"]
    assert lines[0] == f"trace 1 130001 {built / 'libcupti_of_a_test.so'}"
    word, cupti, wall = lines[1].split()
    assert (word, cupti) == ("clock", "123456789")
    assert before <= int(wall) <= time.time_ns()
    names = {line.split(" ", 2)[1]: line.split(" ", 2)[2] for line in lines if line.startswith("name ")}
    assert len(names) == len([line for line in lines if line.startswith("name ")]) == 4
    numbers = [line.split() for line in lines if line[0].isdigit()]
    found = [(*map(int, (start, end, device, stream)), names[name]) for start, end, device, stream, name in numbers]
    assert found == RECORDS


def test_records_that_cupti_lost_are_counted(traced):
    files, _ = traced(FAKE_CUPTI_DROPS="1")
    assert files["trace.PID"][-1] == "dropped 5"


def test_other_ranks_and_programs_without_a_file_are_left_alone(traced):
    assert traced(RANK="1") == ({}, "")
    assert traced(KERNEL_TRACE_FILE="") == ({}, "")


def test_without_cupti_the_program_goes_on_and_the_reason_is_said(traced):
    files, errors = traced(KERNEL_TRACE_CUPTI="/missing.so")
    assert not files
    assert "kernel_trace: CUPTI cannot be opened: /missing.so" in errors
    files, errors = traced(FAKE_CUPTI_REFUSES="1")
    assert not files
    assert errors == "kernel_trace: CUPTI refuses to trace, with status 35; there is no trace of this process\n"
