"""The library with the operators of our own: compiled once for a OneFlow, and named only where it can be had."""

import os
from pathlib import Path

import pytest

from repro.images import attention_operator as module
from repro.images.attention_operator import (
    LIBRARY,
    OperatorError,
    attention_environment,
    attention_operator,
    try_out,
)

LIBRARIES = ("liboneflow-1.so", "libof_protoobj-2.so", "libprotobuf-3.so.3.9")
COMPILER = """#!/bin/sh
echo "$@" >>"$0.calls"
while [ $# -gt 0 ]; do [ "$1" = -o ] && touch "$2"; shift; done
"""


@pytest.fixture
def python(tmp_path):
    """The interpreter of an environment whose OneFlow has libraries and headers, all empty."""
    site = tmp_path / "env" / "lib" / "python3.10" / "site-packages"
    (site / "oneflow" / "include").mkdir(parents=True)
    (site / "oneflow.libs").mkdir()
    for name in LIBRARIES:
        (site / "oneflow.libs" / name).touch()
    return tmp_path / "env" / "bin" / "python"


@pytest.fixture
def compiler(tmp_path, monkeypatch):
    """A g++ that makes an empty file and notes its arguments, in front on the path."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "g++").write_text(COMPILER)
    (folder / "g++").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder / "g++.calls"


def test_it_is_compiled_once_for_a_oneflow_and_a_state_of_the_sources(python, compiler, tmp_path, monkeypatch):
    first = attention_operator(python, tmp_path / "cache")
    assert attention_operator(python, tmp_path / "cache") == first
    assert len(compiler.read_text().splitlines()) == 1
    sources = tmp_path / "sources"
    sources.mkdir()
    (sources / "attention_operator.cpp").write_text("other")
    monkeypatch.setattr(module, "SOURCES", (sources,))
    other = attention_operator(python, tmp_path / "cache")
    assert other != first
    (python.parent.parent / "lib/python3.10/site-packages/oneflow.libs/liboneflow-1.so").rename(
        python.parent.parent / "lib/python3.10/site-packages/oneflow.libs/liboneflow-9.so"
    )
    assert attention_operator(python, tmp_path / "cache") not in (first, other)


def test_it_takes_no_system_headers_of_the_wheel(python, compiler, tmp_path):
    attention_operator(python, tmp_path / "cache")
    (command,) = compiler.read_text().splitlines()
    assert f"-I{python.parent.parent}/lib/python3.10/site-packages/oneflow/include " not in command
    assert "-D_GLIBCXX_USE_CXX11_ABI=0" in command


def test_it_has_all_operators(python, compiler, tmp_path):
    attention_operator(python, tmp_path / "cache")
    compiled = {Path(each).name for each in compiler.read_text().split() if each.endswith(".cpp")}
    assert compiled == {"attention_operator.cpp", "flat_operator.cpp"}


@pytest.mark.parametrize("missing", ["g++", "headers", "oneflow"])
def test_without_what_it_takes_the_reason_is_noted(python, compiler, tmp_path, monkeypatch, missing):
    site = python.parent.parent / "lib/python3.10/site-packages"
    if missing == "g++":
        monkeypatch.setenv("PATH", str(tmp_path))
    elif missing == "headers":
        (site / "oneflow" / "include").rmdir()
    else:
        for name in LIBRARIES:
            (site / "oneflow.libs" / name).unlink()
        (site / "oneflow.libs").rmdir()
    said = {"g++": "no g\\+\\+", "headers": "headers of OneFlow are not", "oneflow": "no OneFlow belongs to"}[missing]
    with pytest.raises(OperatorError, match=said):
        attention_operator(python, tmp_path / "cache")


def test_a_compiler_that_fails_leaves_nothing_behind(python, compiler, tmp_path):
    compiler.with_name("g++").write_text("#!/bin/sh\necho 'no such type' >&2\nexit 1\n")
    with pytest.raises(OperatorError, match="no such type"):
        attention_operator(python, tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_the_trainers_are_told_of_it_only_where_there_is_one(monkeypatch, tmp_path):
    notes: list[str] = []
    monkeypatch.setattr(module, "attention_operator", lambda: tmp_path / "libattention.so")
    monkeypatch.setattr(module, "try_out", lambda library: None)
    assert attention_environment(notes) == {LIBRARY: str(tmp_path / "libattention.so")}

    def refuse():
        raise OperatorError("there is no g++ to compile it with")

    monkeypatch.setattr(module, "attention_operator", refuse)
    assert attention_environment(notes) == {}
    assert notes == [
        "for the tuned GPT, attention fused by cuDNN, and flat parameters",
        "no fused attention and no flat parameters for the tuned GPT: there is no g++ to compile it with",
    ]


def test_a_library_that_cannot_be_loaded_is_not_named(tmp_path):
    """Where it can be loaded it is tried once since the machine's start; where it cannot, or elsewhere, again."""
    library, python = tmp_path / "libattention.so", tmp_path / "python"
    library.touch()
    python.write_text("#!/bin/sh\necho 'Traceback' >&2\necho 'OSError: GLIBCXX_3.4.32 not found' >&2\nexit 1\n")
    python.chmod(0o755)
    for _ in range(2):
        with pytest.raises(
            OperatorError, match=r"libattention\.so cannot be loaded: OSError: GLIBCXX_3\.4\.32 not found"
        ):
            try_out(library, python)
    python.write_text('#!/bin/sh\necho >>"$0.calls"\n')
    try_out(library, python)
    try_out(library, python)
    assert len(Path(f"{python}.calls").read_text().splitlines()) == 1
    (marker,) = tmp_path.glob("*.loaded")
    marker.write_text("a machine of this name, started at another time")
    try_out(library, python)
    assert len(Path(f"{python}.calls").read_text().splitlines()) == 2


def test_a_kernel_that_does_not_name_its_start_is_known_by_its_machines_name(tmp_path, monkeypatch):
    library, python = tmp_path / "libattention.so", tmp_path / "python"
    library.touch()
    python.write_text('#!/bin/sh\necho >>"$0.calls"\n')
    python.chmod(0o755)
    monkeypatch.setattr(module, "BOOT", tmp_path / "none")
    try_out(library, python)
    try_out(library, python)
    assert len(Path(f"{python}.calls").read_text().splitlines()) == 1
