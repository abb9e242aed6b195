"""The OneFlow operators of the tuned GPT, compiled for the trainers' OneFlow: fused attention, and flat parameters."""

from __future__ import annotations

import platform
import shutil
import subprocess
import tempfile
from itertools import chain
from pathlib import Path

from repro.utils.dry_run import only_said
from repro.utils.errors import ReproError
from repro.utils.paths import CACHE, ROOT, TRAINER_PYTHON, sha256_of

SOURCES = (ROOT / "docker" / "attention", ROOT / "docker" / "sharding")
HEADERS = ROOT / "docker" / "attention" / "headers"
"""In place of headers that the wheel's own ask for and that it lacks."""
LIBRARY = "ATTENTION_OPERATOR"
"""The environment variable that names the library to the trainers (`repro/trainers/tuning/attention.py`)."""
TAKEN = ("oneflow", "google", "absl", "half.hpp")
"""What is taken of the wheel's headers, beside which lie those of the system that it was built on."""
MISSING = "no fused attention and no flat parameters for the tuned GPT: {}"
"""The note of a stack or a kit without the library, with the reason."""
LOAD = "import sys, oneflow; oneflow.utils.load_library(sys.argv[1])"
LOAD_S = 120
BOOT = Path("/proc/sys/kernel/random/boot_id")
"""Where Linux names each start of a machine: two machines may share a name, and a cache may go from one to the other."""


class OperatorError(ReproError):
    """The operators cannot be compiled or loaded here; the message says why."""


def attention_operator(python: Path = TRAINER_PYTHON, folder: Path = CACHE / "attention") -> Path:
    """The compiled library, made once for a OneFlow and a state of the sources; in a dry run it need not be there.

    Raises
    ------
    CompileError
        There is no OneFlow or g++ here, or the wheel's headers are not there, and the library was not compiled before.
    """
    libraries = next(python.parent.parent.glob("lib/python3*/site-packages/oneflow.libs"), None)
    if libraries is None:
        raise OperatorError(f"no OneFlow belongs to {python}")
    needed = [only(libraries, name) for name in ("liboneflow-*.so", "libof_protoobj-*.so", "libprotobuf-*.so*")]
    library = folder / f"libattention-{digest(needed)}.so"
    if library.exists():
        return library
    compiler, headers = shutil.which("g++"), libraries.with_name("oneflow") / "include"
    if compiler is None:
        raise OperatorError("there is no g++ to compile it with")
    if not headers.is_dir():
        raise OperatorError(f"the headers of OneFlow are not in {headers}")
    if only_said(f"compile {' and '.join(map(str, SOURCES))} into {library}"):
        return library
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        made = Path(scratch) / library.name
        included = Path(scratch) / "include"
        included.mkdir()
        for name in TAKEN:
            (included / name).symlink_to(headers / name)
        command = compile_command(compiler, included, headers / "glog-build", needed, made)
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise OperatorError(f"g++ failed: {done.stderr.strip()[:500]}")
        made.replace(library)
    return library


def only(folder: Path, pattern: str) -> Path:
    matches = sorted(folder.glob(pattern))
    if len(matches) != 1:
        raise OperatorError(f"{folder} has {len(matches)} files {pattern}, not one")
    return matches[0]


def digest(needed: list[Path]) -> str:
    """What tells a library apart: the sources, and which build of OneFlow it is for."""
    sources = [
        (path.relative_to(folder.parent).as_posix().encode(), path.read_bytes())
        for folder in SOURCES
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    ]
    return sha256_of(b"\0".join([*chain(*sources), *(path.name.encode() for path in needed)]))[:12]


def compile_command(compiler: str, included: Path, glog: Path, needed: list[Path], target: Path) -> list[str]:
    """The wheel is of the old ABI of libstdc++, and has a glog to link in; OneFlow's libraries are loaded already."""
    options = ["-std=c++17", "-O2", "-fPIC", "-shared", "-fpermissive", "-w"]
    definitions = ["-D_GLIBCXX_USE_CXX11_ABI=0", "-DHALF_ENABLE_CPP11_USER_LITERALS=0"]
    folders = [f"-I{HEADERS}", f"-I{included}", f"-I{glog}"]
    linked = [str(glog / "libglog.a"), "-Wl,--exclude-libs,ALL", "-Wl,--allow-shlib-undefined", "-ldl"]
    sources = [str(path) for folder in SOURCES for path in sorted(folder.glob("*.cpp"))]
    return [compiler, *options, *definitions, *folders, *sources, "-o", str(target), *map(str, needed), *linked]


def try_out(library: Path, python: Path = TRAINER_PYTHON) -> None:
    """Load the library as trainers do, once since a machine's start.

    CompileError if it cannot be loaded, as with an older libstdc++.
    """
    start = BOOT.read_text().strip() if BOOT.exists() else ""
    marker, here = library.with_suffix(".loaded"), f"{platform.node()} {start}"
    if marker.exists() and marker.read_text() == here:
        return
    if only_said(f"try to load {library}"):
        return
    command = [str(python), "-c", LOAD, str(library)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LOAD_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise OperatorError(f"{library.name} could not be loaded: {error}") from error
    if done.returncode:
        raise OperatorError(f"{library.name} cannot be loaded: {(done.stderr.strip().splitlines() or ['?'])[-1][:300]}")
    marker.write_text(here)


def attention_environment(notes: list[str]) -> dict[str, str]:
    """The variable for the trainers, or none where the operators cannot be had; a note says which it is."""
    try:
        library = attention_operator()
        try_out(library)
    except OperatorError as error:
        notes.append(MISSING.format(error))
        return {}
    notes.append("for the tuned GPT, attention fused by cuDNN, and flat parameters")
    return {LIBRARY: str(library)}
