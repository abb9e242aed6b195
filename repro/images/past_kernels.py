"""Compiles the kernels of 2020 (`docker/past/kernels.cu`) for one architecture, on any machine, with the pinned NVRTC."""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from repro.images.pins import load_pins
from repro.images.wheels import unpack
from repro.utils.errors import FAILED, ReproError
from repro.utils.paths import CACHE, ROOT, sha256_of

SOURCE = ROOT / "docker" / "past" / "kernels.cu"
COMPILER = "NVRTC"
FOLDER = CACHE / "past"
OPTIONS = "--std=c++14"
OLDEST, NEWEST = 50, 90
"""The architectures that this NVRTC has machine code for; newer GPUs compile its PTX at the start."""


class PastKernelError(ReproError):
    """The kernels cannot be compiled; the message has the compiler's."""

    status = FAILED


def past_kernels(architecture: int, folder: Path = FOLDER) -> Path:
    """The kernels compiled for an architecture such as 70: once for each state of their source.

    Raises
    ------
    CompileError
        The source is wrong, or the architecture too old.
    PinError
        The compiler cannot be fetched, and the kernels were not compiled before.
    """
    if architecture < OLDEST:
        raise PastKernelError(
            f"the kernels of 2020 are compiled for architectures from {OLDEST} on, not for {architecture}"
        )
    source, pins = SOURCE.read_bytes(), load_pins()
    target = f"sm_{architecture}" if architecture <= NEWEST else f"compute_{NEWEST}"
    version = pins.artefact(COMPILER).version
    compiled = folder / f"{target}-{sha256_of(f'{version} {OPTIONS} '.encode() + source)[:12]}.bin"
    if not compiled.exists():
        compiler = unpack(pins, COMPILER)
        with ThreadPoolExecutor(1) as thread:
            code = thread.submit(_compile, compiler, source, target).result()
        folder.mkdir(parents=True, exist_ok=True)
        partial = compiled.with_suffix(".partial")
        partial.write_bytes(code)
        partial.replace(compiled)
    return compiled


def _compile(compiler: Path, source: bytes, target: str) -> bytes:
    """Machine code, or for a virtual architecture PTX.

    NVRTC leaves its thread in the locale "C", in which Python would read and write files as ASCII: `past_kernels` gives
    it a thread of its own.
    """
    ctypes.CDLL(str(compiler / "libnvrtc-builtins.so.11.8"), ctypes.RTLD_GLOBAL)
    library, program = ctypes.CDLL(str(compiler / "libnvrtc.so.11.2")), ctypes.c_void_p()
    options = [f"--gpu-architecture={target}".encode(), OPTIONS.encode()]
    library.nvrtcCreateProgram(ctypes.byref(program), source, SOURCE.name.encode(), 0, None, None)
    try:
        if library.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options)):
            text = _taken(library, program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
            raise PastKernelError(f"{SOURCE.relative_to(ROOT)} cannot be compiled for {target}:\n{text.strip()[:2000]}")
        return _taken(library, program, "CUBIN" if target.startswith("sm_") else "PTX")
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _taken(library: ctypes.CDLL, program: ctypes.c_void_p, what: str) -> bytes:
    """One of the results of a compilation."""
    size = ctypes.c_size_t()
    getattr(library, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
    content = ctypes.create_string_buffer(size.value)
    getattr(library, f"nvrtcGet{what}")(program, content)
    return content.raw
