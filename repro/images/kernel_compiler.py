"""Compiles the wheel's PTX for one architecture, on a machine that needs no GPU, and writes the overlay with the result."""

import ctypes
import json
import mmap
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from repro.images.fatbins import PTX, Fatbin, FatbinCode, fatbins, machine_code, replace
from repro.images.kernel_overlay import (
    DESCRIPTION,
    FOLDER,
    OVERLAYS,
    Overlay,
    OverlayError,
    described,
    libraries_of,
    link,
    name_of,
    trainer_site,
    wheel_hashes,
)
from repro.images.pins import load_pins
from repro.images.wheels import unpack
from repro.utils.filelock import exclusive
from repro.utils.paths import CACHE, sha256, sha256_of
from repro.utils.progress import Steps, duration, said_meanwhile

ARCHITECTURES = (80, 86, 87, 89, 90, 100, 101, 103, 120, 121)
"""Those after Turing that the pinned ptxas and nvJitLink compile for."""
COMPILED = CACHE / "cubin"
RELOCATABLE = "__nv_relfatbin"
COMPILE_ONLY = {"--compile-only": "-c"}
"""How the options in a fatbin, which are nvcc's, are called by ptxas."""
CUBIN = 1
"""What nvJitLink calls machine code."""
PTXAS_S_PER_MB = 2.0
"""Processor time of the pinned ptxas: 21 s for 13 of the wheel's 495 pieces, 10.7 of 1012 MB, for sm_90."""


@dataclass(frozen=True)
class Compiler:
    """ptxas and nvJitLink, and what names their results."""

    ptxas: Path
    linker: Path
    version: str
    architecture: int

    @classmethod
    def pinned(cls, architecture: int) -> "Compiler":
        """The pinned ones, downloaded if necessary."""
        pins = load_pins()
        ptxas, linker = unpack(pins, "ptxas") / "ptxas", unpack(pins, "nvJitLink") / "libnvJitLink.so.12"
        ptxas.chmod(0o755)
        versions = (f"{name} {pins.artefact(name).version}" for name in ("ptxas", "nvJitLink"))
        return cls(ptxas, linker, ", ".join(versions), architecture)

    def key(self, stored: bytes, options: str) -> str:
        """What names the result of PTX as it is stored in a fatbin."""
        return sha256_of(f"{self.version}\0sm_{self.architecture}\0{options}\0".encode() + stored)

    def compile(self, text: bytes, options: str, target: Path) -> None:
        """Machine code of PTX into a file, which appears when it is complete."""
        source, partial = target.with_suffix(".ptx"), target.with_suffix(".partial")
        source.write_bytes(text)
        words = [COMPILE_ONLY.get(word, word) for word in options.split()]
        command: list[str | Path] = [self.ptxas, f"-arch=sm_{self.architecture}", *words, "-o", partial, source]
        done = subprocess.run(command, capture_output=True, text=True)
        source.unlink()
        if done.returncode:
            partial.unlink(missing_ok=True)
            raise OverlayError(f"ptxas ended with status {done.returncode}: {done.stderr.strip()[:500]}")
        partial.replace(target)

    def link(self, cubins: list[Path]) -> bytes:
        """One piece of machine code from relocatable ones."""
        library, handle = ctypes.CDLL(str(self.linker)), ctypes.c_void_p()
        options = (ctypes.c_char_p * 1)(f"-arch=sm_{self.architecture}".encode())

        def call(name: str, *arguments: object) -> None:
            function = getattr(library, f"__nvJitLink{name}_12_9")
            if status := function(*arguments):
                raise OverlayError(f"NCCL's code cannot be linked: nvJitLink{name} ended with status {status}")

        call("Create", ctypes.byref(handle), ctypes.c_uint32(1), options)
        for path in cubins:
            content = path.read_bytes()
            call("AddData", handle, CUBIN, content, ctypes.c_size_t(len(content)), path.name.encode())
        size = ctypes.c_size_t()
        call("Complete", handle)
        call("GetLinkedCubinSize", handle, ctypes.byref(size))
        linked = ctypes.create_string_buffer(size.value)
        call("GetLinkedCubin", handle, linked)
        call("Destroy", ctypes.byref(handle))
        return linked.raw


@dataclass(frozen=True)
class Piece:
    """A fatbin of a library with PTX to compile, and where the result is kept."""

    library: Path
    fatbin: Fatbin
    code: FatbinCode
    cubin: Path


def make_overlay(
    compiler: Compiler,
    jobs: int,
    site: Path | None = None,
    overlays: Path = OVERLAYS,
    compiled: Path = COMPILED,
    say: Callable[[str], None] = print,
) -> Overlay:
    """Compile all of the wheel's PTX for an architecture, and write the overlay in place of an earlier one.

    What was compiled is kept in the folder `compiled`, so that a compilation that was stopped goes on.

    Raises
    ------
    OverlayError
        OneFlow is not installed or not as its wheel states, or something cannot be compiled.
    """
    site = site or trainer_site()
    if site is None:
        raise OverlayError("OneFlow is not installed; `make setup` installs it")
    libraries, stated = libraries_of(site), wheel_hashes(site)
    for name, path in libraries.items():
        if sha256(path) != stated[name]:
            raise OverlayError(f"{path} is not as oneflow's wheel states; `make clean`, then `make setup`")
    compiled.mkdir(parents=True, exist_ok=True)
    with exclusive(overlays):
        pieces = [piece for path in libraries.values() for piece in _pieces(path, compiler, compiled)]
        _compile(pieces, compiler, jobs, say)
        return _write(pieces, libraries, stated=stated, compiler=compiler, site=site, overlays=overlays)


def _pieces(path: Path, compiler: Compiler, compiled: Path) -> Iterator[Piece]:
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as data:
        for fatbin in fatbins(data):
            for code in fatbin.used_on(compiler.architecture):
                if code.kind == PTX:
                    stored = data[code.offset : code.offset + code.length]
                    yield Piece(path, fatbin, code, compiled / f"{compiler.key(stored, code.options)}.cubin")


def _compile(pieces: list[Piece], compiler: Compiler, jobs: int, say: Callable[[str], None]) -> None:
    """Compile what is not compiled yet, the largest first; the same PTX once."""
    missing = {piece.cubin: piece for piece in pieces if not piece.cubin.exists()}
    order = sorted(missing.values(), key=lambda piece: (-_size(piece), piece.cubin))
    if not order:
        return
    total = sum(map(_size, order))
    steps = Steps(total / 1e6, "MB of PTX")
    at_once = min(jobs, len(os.sched_getaffinity(0)))
    expected = duration(max(total / 1e6 * PTXAS_S_PER_MB / at_once, _size(order[0]) / 1e6 * PTXAS_S_PER_MB))
    say(
        f"compiling {total / 1e6:.0f} MB of PTX in {len(order)} pieces for sm_{compiler.architecture}, {jobs} at a time: "
        f"about {expected} on {at_once} processors that do nothing else"
    )

    def one(piece: Piece) -> int:
        with open(piece.library, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as data:
            compiler.compile(piece.code.content(data), piece.code.options, piece.cubin)
        return _size(piece)

    with said_meanwhile(steps.now, say, steps.share), ThreadPoolExecutor(jobs) as pool:
        futures = [pool.submit(one, piece) for piece in order]
        try:
            for number, future in enumerate(as_completed(futures), 1):
                steps.done(f"{number} of {len(order)} pieces", future.result() / 1e6)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _size(piece: Piece) -> int:
    return piece.code.size or piece.code.length


def _write(
    pieces: list[Piece],
    libraries: dict[str, Path],
    stated: dict[str, str],
    compiler: Compiler,
    site: Path,
    overlays: Path,
) -> Overlay:
    """Write an overlay beside its place, and then there."""
    partial = overlays / f"sm_{compiler.architecture}-.partial"
    shutil.rmtree(partial, ignore_errors=True)
    (partial / FOLDER).mkdir(parents=True)
    count = left = 0
    digests = {}
    for name, path in libraries.items():
        copy = partial / FOLDER / name
        shutil.copyfile(path, copy)
        own = [piece for piece in pieces if piece.library == path]
        with open(copy, "r+b") as file, mmap.mmap(file.fileno(), 0) as data:
            for fatbin, cubin in _replacements(own, list(fatbins(data)), compiler):
                code = machine_code(cubin, compiler.architecture, fatbin.length - fatbin.header)
                if code:
                    replace(data, fatbin, code)
                count, left = count + bool(code), left + (code is None)
        copy.chmod(0o755)
        digests[name] = sha256(copy)
    content = {
        "architecture": compiler.architecture,
        "compiler": compiler.version,
        "wheel": stated,
        "libraries": digests,
        "compiled": count,
        "left": left,
    }
    (partial / DESCRIPTION).write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")
    text = (partial / DESCRIPTION).read_bytes()
    overlay = Overlay(partial, compiler.architecture, sha256_of(text), count, left)
    link(partial, site)
    target = overlays / name_of(overlay)
    for earlier in overlays.glob(f"sm_{compiler.architecture}-*"):
        if earlier != partial:
            shutil.rmtree(earlier)
    return described(partial.rename(target))[0]


def _replacements(
    own: list[Piece], library_fatbins: list[Fatbin], compiler: Compiler
) -> Iterator[tuple[Fatbin, bytes]]:
    """The fatbins of a library that get new code, and which."""
    for piece in own:
        if piece.fatbin.section != RELOCATABLE:
            yield piece.fatbin, piece.cubin.read_bytes()
    relocatable = list(dict.fromkeys(piece.cubin for piece in own if piece.fatbin.section == RELOCATABLE))
    linked = [fatbin for fatbin in library_fatbins if fatbin.linked]
    if len(linked) > 1:
        raise OverlayError("a library with several links of relocatable code is not supported")
    if relocatable and linked:
        yield linked[0], compiler.link(relocatable)
