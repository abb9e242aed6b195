"""The libraries of docker/compat for their tests: compiled as in the images, and called in processes of their own."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.paths import ROOT

FLAGS = re.findall(r"gcc (.*?) -o", (ROOT / "docker/Dockerfile").read_text())[0].split()
CALLER = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
handle = ctypes.c_void_p()
def call(name, *arguments):
    print(name, "->", getattr(library, name)(*arguments), flush=True)
    ctypes.CDLL(None).fflush(None)
def p(value):
    return ctypes.c_void_p(value)
def ints(*values):
    return (ctypes.c_int * len(values))(*values)
"""
"""The beginning of each process: the library is its first argument."""

needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc on this machine")


def compile_library(source: Path, target: Path, *options: str) -> None:
    """Compile a library from C; a warning is an error."""
    command = ["gcc", *FLAGS, *options, "-o", str(target), str(source)]
    subprocess.run([*command, "-ldl", "-lpthread"], check=True)


def by_statement(output: str) -> list[tuple[list[str], str]]:
    """The lines that each statement printed, and the status of it, which follows them after "-- "."""
    parts: list[tuple[list[str], str]] = []
    lines: list[str] = []
    for line in output.splitlines():
        if line.startswith("-- "):
            parts.append((lines, line[3:]))
            lines = []
        else:
            lines.append(line)
    return parts
