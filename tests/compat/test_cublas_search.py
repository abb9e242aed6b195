"""The search for the fastest kernel of a product, with a stand-in for cuBLAS that has a clock of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.compat import CALLER, by_statement, compile_library, needs_gcc
from tests.support.paths import ROOT
from tests.support.patience import patience

SOURCE = ROOT / "docker/compat/cublas_forward.c"
FAKE = Path(__file__).with_name("fake_search.c")
FP32, FP16 = 0, 2
HELPERS = """
zero, one = ctypes.byref(ctypes.c_float(0)), ctypes.byref(ctypes.c_float(1))
def say(text):
    print("--", text, flush=True)
def product(m, beta=zero, type=0, data_type=0, c=64, handle=16):
    status = library.cublasGemmEx(p(handle), 0, 1, m, 4, 5, one, p(64), type, m, p(64), type, 4, beta, p(c), type, m,
                                  data_type, 99)
    say(status)
def batched(m):
    L = ctypes.c_longlong
    say(library.cublasGemmStridedBatchedEx(p(16), 0, 1, m, 4, 5, one, p(64), 0, m, L(1), p(64), 0, 4, L(1), zero, p(64),
                                           0, m, L(1), 3, 0, 99))
"""

pytestmark = needs_gcc


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A folder with the library, and a stand-in that is cuBLAS and driver at once."""
    folder = tmp_path_factory.mktemp("search")
    compile_library(SOURCE, folder / "libcublas_forward.so")
    compile_library(FAKE, folder / "libcublas.so.12")
    (folder / "libcuda.so.1").symlink_to("libcublas.so.12")
    return folder


@pytest.fixture
def run(built):
    """Runs statements in a process with the library; returns what each printed, and standard error."""

    def run(statements, costs="2,0.5,0.8", **environment):
        done = subprocess.run(
            [sys.executable, "-u", "-c", CALLER + HELPERS + statements, str(built / "libcublas_forward.so")],
            env={
                **os.environ,
                "CUBLAS_FORWARD_LIBRARY": str(built / "libcublas.so.12"),
                "LD_LIBRARY_PATH": str(built),
                "COSTS": costs,
                **environment,
            },
            capture_output=True,
            text=True,
            timeout=patience(),
        )
        assert done.returncode == 0, done.stderr
        return by_statement(done.stdout), done.stderr.splitlines()

    return run


def test_the_fastest_proposal_is_kept(run):
    parts, _ = run("product(3)\nproduct(3)")
    assert {"own 3", "proposal 0, beta 0", "proposal 1, beta 0", "proposal 2, beta 0"} == set(parts[0][0])
    assert parts[0][0][-1] == "proposal 1, beta 0"
    assert parts[1] == (["proposal 1, beta 0"], "0")


def test_each_shape_has_a_search_of_its_own(run):
    parts, _ = run("product(3)\nproduct(6)\nbatched(3)\nbatched(3)")
    assert "own 6" in parts[1][0]
    assert "own batched 3" in parts[2][0]
    assert parts[3][0] == ["proposal 1, beta 0"]


@pytest.mark.parametrize("costs", ["2,1,0.99", "-1,-1", "2"])
def test_cublas_keeps_what_no_proposal_does_at_least_two_per_cent_faster(run, costs):
    parts, _ = run("product(3)\nproduct(3)", costs=costs)
    assert parts[0][0][-1] == "own 3"
    assert parts[1] == (["own 3"], "0")


def test_a_proposal_that_fails_is_passed_over(run):
    parts, _ = run("product(3)\nproduct(3)", costs="-1,0.7")
    assert parts[1] == (["proposal 1, beta 0"], "0")


def test_a_product_that_adds_to_its_output_is_timed_elsewhere(run):
    parts, _ = run("product(3, beta=one)\nproduct(3, beta=one)\nproduct(3)")
    *searched, last = parts[0][0]
    assert len(searched) > 3
    assert all(line.endswith(" elsewhere") for line in searched)
    assert last == "proposal 1, beta 1"
    assert parts[1] == (["proposal 1, beta 1"], "0")
    assert not any(line.endswith("elsewhere") for line in parts[2][0])


@pytest.mark.parametrize("how", ["type=2, data_type=2", "type=2, data_type=0, c=66", "type=0, data_type=0, c=8"])
def test_what_is_not_computed_in_fp32_or_not_aligned_is_cublas_own(run, how):
    assert run(f"product(3, {how})")[0] == [(["own 3"], "0")]


def test_half_precision_is_searched_too(run):
    assert run("product(3, type=2)\nproduct(3, type=2)")[0][1] == (["proposal 1, beta 0"], "0")


def test_tf32_is_proposed_and_compared_in_tf32(run):
    parts, errors = run("product(3)\nproduct(3)\nbatched(3)", CUBLAS_FORWARD_TF32="1", CUBLAS_FORWARD_LOG="1")
    assert {"own 3 in TF32", "proposal 1, beta 0 in TF32"} < set(parts[0][0])
    assert all(line.endswith(" in TF32") for lines, _ in parts for line in lines)
    assert parts[1] == (["proposal 1, beta 0 in TF32"], "0")
    assert errors[1].startswith("cublas_forward: tf32 NT 3 4 5 x1")
    assert "own batched 3 in TF32" in parts[2][0]


def test_half_precision_stays_what_it_is_beside_tf32(run):
    parts, _ = run("product(3, type=2)\nproduct(3, type=2)", CUBLAS_FORWARD_TF32="1")
    assert parts[1] == (["proposal 1, beta 0"], "0")


def test_the_search_can_be_turned_off(run):
    assert run("product(3)", CUBLAS_FORWARD_SEARCH="0")[0] == [(["own 3"], "0")]


def test_what_was_found_is_printed_on_demand(run):
    _, errors = run("product(3)\nproduct(3)", CUBLAS_FORWARD_LOG="1")
    assert errors[1:] == ["cublas_forward: fp32 NT 3 4 5 x1: 1.0000 ms, fastest of 3 proposals 0.5000 ms"]
    assert len(run("product(3)")[1]) == 1
