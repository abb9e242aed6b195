"""The forwarding library, with a stand-in for the newer cuBLAS that prints how it is called."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.compat import CALLER, compile_library, needs_gcc
from tests.support.paths import ROOT
from tests.support.patience import patience

SOURCE = ROOT / "docker/compat/cublas_forward.c"
FAKE = Path(__file__).with_name("fake_cublas.c")
MARK, SUCCESS, NOT_INITIALIZED, INVALID_VALUE, NOT_SUPPORTED = 42, 0, 1, 7, 15
DEFAULT_ALGORITHM = -1
COMPUTE = {0: 68, 1: 70, 2: 64, 4: 68, 5: 70, 10: 72}
DOTS = ["cublasSdot_v2", "cublasDdot_v2", "cublasCdotu_v2", "cublasCdotc_v2", "cublasZdotu_v2", "cublasZdotc_v2"]
GEMMS = ["cublasDgemm_v2", "cublasCgemm_v2", "cublasZgemm_v2"]
REFUSED = re.findall(r"^REFUSE\((\w+)\)", SOURCE.read_text(), re.MULTILINE)

pytestmark = needs_gcc


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A folder with the library, and stand-ins for the newer one: whole, and without one function."""
    folder = tmp_path_factory.mktemp("compat")
    compile_library(SOURCE, folder / "libcublas_forward.so")
    for name, *options in (("libcublas.so.12",), ("partial.so", "-DWITHOUT_GEMM_EX")):
        compile_library(FAKE, folder / name, *options)
    return folder


@pytest.fixture
def call(built):
    """Runs statements in a process with the library; returns what was printed and what standard error had."""

    def run(statements, library="libcublas.so.12", **environment):
        named = {"CUBLAS_FORWARD_LIBRARY": str(built / library)} if library else {}
        done = subprocess.run(
            [sys.executable, "-c", CALLER + statements, str(built / "libcublas_forward.so")],
            env={**os.environ, **named, **environment},
            capture_output=True,
            text=True,
            timeout=patience(),
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines(), done.stderr.splitlines()

    return run


def gemm_ex(data_type, algorithm=99, atype=6):
    return (
        f"call('cublasGemmEx', p(16), 1, 2, 3, 4, 5, p(16), p(16), {atype}, 7, p(16), 8, 9, p(16), p(16), 10, 11, "
        f"{data_type}, {algorithm})"
    )


def strided(data_type, algorithm=99, atype=6):
    return (
        f"L = ctypes.c_longlong\ncall('cublasGemmStridedBatchedEx', p(16), 1, 2, 3, 4, 5, p(16), p(16), {atype}, 7, "
        f"L(2**40), p(16), 8, 9, L(2**41), p(16), p(16), 10, 11, L(2**42), 12, {data_type}, "
        f"{algorithm})"
    )


def test_it_says_once_where_calls_go(call, built):
    _, errors = call("call('cublasDestroy_v2', p(16))\ncall('cublasDestroy_v2', p(16))")
    assert errors == [f"cublas_forward: cuBLAS calls go to {built / 'libcublas.so.12'} (12.13.14)"]


def test_it_says_nothing_before_it_is_called(call):
    assert call("") == ([], [])


def test_handles_and_streams_are_forwarded(call):
    printed, _ = call(
        "call('cublasCreate_v2', ctypes.byref(handle))\nprint(hex(handle.value))\n"
        "call('cublasSetStream_v2', p(16), p(32))\ncall('cublasDestroy_v2', p(16))"
    )
    assert sorted(printed) == sorted(
        [
            "cublasCreate_v2",
            f"cublasCreate_v2 -> {MARK}",
            "0x1234",
            "cublasSetStream_v2 0x10 0x20",
            f"cublasSetStream_v2 -> {MARK}",
            "cublasDestroy_v2 0x10",
            f"cublasDestroy_v2 -> {MARK}",
        ]
    )


@pytest.mark.parametrize(("data_type", "compute"), COMPUTE.items())
def test_a_product_keeps_its_arguments_and_gets_a_compute_type(call, data_type, compute):
    printed, _ = call(gemm_ex(data_type))
    assert (
        f"cublasGemmEx 0x10 1 2 3 4 5 0x10 0x10 6 7 0x10 8 9 0x10 0x10 10 11 "
        f"compute={compute} algorithm={DEFAULT_ALGORITHM}"
    ) in printed
    assert f"cublasGemmEx -> {MARK}" in printed


@pytest.mark.parametrize(("data_type", "compute"), COMPUTE.items())
def test_a_batched_product_keeps_its_arguments_and_64_bit_strides(call, data_type, compute):
    printed, _ = call(strided(data_type))
    assert (
        f"cublasGemmStridedBatchedEx 0x10 1 2 3 4 5 0x10 0x10 6 7 {2**40} 0x10 8 9 {2**41} 0x10 0x10 10 11 {2**42} "
        f"12 compute={compute} algorithm={DEFAULT_ALGORITHM}"
    ) in printed
    assert f"cublasGemmStridedBatchedEx -> {MARK}" in printed


@pytest.mark.parametrize("statement", [gemm_ex(3), strided(3)])
def test_an_unknown_compute_type_is_refused_and_said(call, statement):
    printed, errors = call(statement)
    assert [line.rpartition(" ")[2] for line in printed] == [str(NOT_SUPPORTED)]
    assert errors == ["cublas_forward: a product computed in type 3 is not forwarded"]


@pytest.mark.parametrize("name", DOTS)
def test_dot_products_are_forwarded(call, name):
    printed, _ = call(f"call('{name}', p(16), 3, p(16), 4, p(16), 5, p(16))")
    assert f"{name} 0x10 3 0x10 4 0x10 5 0x10" in printed
    assert f"{name} -> {MARK}" in printed


@pytest.mark.parametrize("name", GEMMS)
def test_plain_products_are_forwarded(call, name):
    printed, _ = call(f"call('{name}', p(16), 1, 2, 3, 4, 5, p(16), p(16), 6, p(16), 7, p(16), p(16), 8)")
    assert f"{name} 0x10 1 2 3 4 5 0x10 0x10 6 0x10 7 0x10 0x10 8" in printed
    assert f"{name} -> {MARK}" in printed


@pytest.mark.parametrize(("asked", "compute"), [("1", 77), ("0", 68), ("", 68)])
@pytest.mark.parametrize("statement", [gemm_ex(0, atype=0), strided(0, atype=0)])
def test_products_of_fp32_take_tf32_if_asked_for(call, statement, asked, compute):
    printed, errors = call(statement, CUBLAS_FORWARD_TF32=asked)
    assert f"compute={compute} algorithm={DEFAULT_ALGORITHM}" in printed[0] + printed[1]
    assert errors[0].endswith(", fp32 products in TF32") == (asked == "1")


@pytest.mark.parametrize(("data_type", "compute"), COMPUTE.items())
def test_products_of_other_types_take_no_tf32(call, data_type, compute):
    for statement in (gemm_ex(data_type, atype=2), strided(data_type, atype=2)):
        printed, _ = call(statement, CUBLAS_FORWARD_TF32="1")
        assert f"compute={compute} algorithm={DEFAULT_ALGORITHM}" in printed[0] + printed[1]


def test_an_fp32_product_is_one_of_any_type(call):
    printed, _ = call("call('cublasSgemm_v2', p(16), 1, 2, 3, 4, 5, p(16), p(16), 6, p(16), 7, p(16), p(16), 8)")
    assert (
        f"cublasGemmEx 0x10 1 2 3 4 5 0x10 0x10 0 6 0x10 0 7 0x10 0x10 0 8 compute=68 algorithm={DEFAULT_ALGORITHM}"
    ) in printed
    assert f"cublasSgemm_v2 -> {MARK}" in printed


def test_math_modes_are_accepted_and_stay_the_default(call):
    printed, errors = call(
        "mode = ctypes.c_int(5)\ncall('cublasSetMathMode', p(16), 1)\n"
        "call('cublasGetMathMode', p(16), ctypes.byref(mode))\nprint(mode.value)\n"
        "call('cublasGetMathMode', p(16), None)"
    )
    assert printed == [
        f"cublasSetMathMode -> {SUCCESS}",
        f"cublasGetMathMode -> {SUCCESS}",
        "0",
        f"cublasGetMathMode -> {INVALID_VALUE}",
    ]
    assert errors == []


def test_an_absent_library_is_an_error_that_names_it(call):
    printed, errors = call("call('cublasCreate_v2', ctypes.byref(handle))\n" + gemm_ex(0), library="absent.so")
    assert printed == [f"cublasCreate_v2 -> {NOT_INITIALIZED}", f"cublasGemmEx -> {NOT_INITIALIZED}"]
    assert len(errors) == 1
    assert "CUBLAS_FORWARD_LIBRARY" in errors[0]
    assert "absent.so" in errors[0]


def test_without_a_name_the_loader_is_asked_and_the_error_says_what_to_do(call, tmp_path):
    printed, errors = call("call('cublasDestroy_v2', p(16))", library=None, LD_LIBRARY_PATH=str(tmp_path))
    if printed != [f"cublasDestroy_v2 -> {NOT_INITIALIZED}"]:
        pytest.skip("this machine has a cuBLAS of its own")
    assert "/opt/cublas" in errors[0]


def test_without_a_name_a_library_on_the_path_is_found(call, built):
    printed, errors = call("call('cublasDestroy_v2', p(16))", library=None, LD_LIBRARY_PATH=str(built))
    assert f"cublasDestroy_v2 -> {MARK}" in printed
    assert "libcublas.so.12" in errors[0]


def test_an_absent_symbol_is_an_error_that_names_it(call):
    printed, errors = call(gemm_ex(0) + "\ncall('cublasDestroy_v2', p(16))", library="partial.so")
    assert f"cublasGemmEx -> {NOT_SUPPORTED}" in printed
    assert f"cublasDestroy_v2 -> {MARK}" in printed
    assert any(re.fullmatch(r"cublas_forward: .*partial\.so has no cublasGemmEx", line) for line in errors)


@pytest.mark.parametrize("name", REFUSED)
def test_a_call_that_is_not_known_is_refused_by_name(call, name):
    printed, errors = call(f"call('{name}', p(16))")
    assert printed == [f"{name} -> {NOT_SUPPORTED}"]
    assert errors == [f"cublas_forward: {name} is not forwarded"]


def test_the_newer_library_does_not_call_itself_through_the_old_names(tmp_path, built):
    """A newer cuBLAS that calls cublasDestroy_v2 must reach its own, although a preloaded one has the name too."""
    source = tmp_path / "inner.c"
    source.write_text(
        '#include <stdio.h>\nint cublasDestroy_v2(void *h) { (void)h; puts("own"); return 0; }\n'
        "int cublasSetStream_v2(void *h, void *s) { (void)s; return cublasDestroy_v2(h); }\n"
    )
    compile_library(source, tmp_path / "inner.so")
    statement = CALLER + "ctypes.CDLL(None).cublasSetStream_v2(p(16), p(32))"
    done = subprocess.run(
        [sys.executable, "-c", statement, str(built / "libcublas_forward.so")],
        capture_output=True,
        text=True,
        env={
            **os.environ,
            "LD_PRELOAD": str(built / "libcublas_forward.so"),
            "CUBLAS_FORWARD_LIBRARY": str(tmp_path / "inner.so"),
        },
    )
    assert done.stdout == "own\n"
