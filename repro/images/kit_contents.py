"""What the parts of a kit hold: the checkout, both environments with their interpreters, and newer libraries.

Each installed file is held to the SHA-256 that its wheel states. GPU code for other architectures is overwritten with
zeros, which compress to nothing.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path, PurePosixPath

from repro import bootstrap
from repro.images.attention_operator import MISSING, OperatorError, attention_operator
from repro.images.fatbins import leave_out
from repro.images.kernel_overlay import FOLDER as LIBRARIES
from repro.images.kernel_overlay import Overlay
from repro.images.kit_pieces import ArchiveEntry
from repro.images.offline_folder import OfflineError
from repro.images.stack import COMPAT, KIT, TRACER, StackError, build_forward, needs_newer_libraries
from repro.targets import groups_of
from repro.utils.paths import CACHE, ROOT

PYTHONS = ".kit/python"
LEFT_OUT = ("/test/", "/tests/", "/oneflow/include/")
"""Files of the trainers' packages that no run reads, by a piece of their path."""
LEFT_OUT_OF_CONTROLLER = ("/tests/",)
"""Likewise of the controller's; `/test/` would be one of Ansible's folders of plugins."""
ANY_FOLDER = b"""#!/bin/sh
'''exec' "$(dirname "$(readlink -f "$0")")/python" "$0" "$@"
' '''
"""
"""Begins a Python program that runs by the interpreter beside it, wherever that is."""
BEGINNING = re.compile(rb"#!/bin/sh\n'''exec' .*\n' '''\n|#!.*python[\d.]*\n")
"""How programs of an environment begin: with the path of its interpreter, for the kernel or for a shell."""
LEFT_OUT_OF_PYTHON = re.compile(
    r"/(test|idlelib|tkinter|turtledemo|lib2to3|ensurepip|config-[^/]*|site-packages|dist-packages|__pycache__)/"
    r"|/lib-dynload/(_tkinter|nis|_test|_ctypes_test|_xxtestfuzz|xx)[^/]*$|\.a$"
)
GLIBC = re.compile(r"^(ld-linux.*|lib(c|m|dl|pthread|rt|util|resolv|nsl|mvec|anl|crypt|gcc_s|stdc\+\+))\.so")
NEEDED = re.compile(r"^\s*(\S+) => (/\S+)", re.MULTILINE)
BRANCH = "kit"
"""The branch of the packed checkout."""


@dataclass
class Contents:
    """What a kit is to hold, and what became of it: bytes of GPU code left out per library, and notes for its reader.

    `architectures` are those of the host's GPUs. The libraries of `overlay`, if there is one for the only architecture,
    are in it in place of the wheel's. `datasets` are folders of the cache. `commit` is that of the packed checkout.
    """

    architectures: tuple[int, ...]
    overlay: Overlay | None = None
    datasets: Sequence[Path] = ()
    zeroed: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    commit: str = ""


def base(scratch: Path, pythons: dict[Path, str], contents: Contents) -> Iterator[ArchiveEntry]:
    """The checkout at its commit, both interpreters, and the libraries that are compiled from it."""
    yield from checkout(scratch, contents)
    for environment in (bootstrap.CONTROLLER, bootstrap.TRAINER):
        yield from _python(environment, pythons[environment])
    newer = bool(contents.architectures) and needs_newer_libraries(contents.architectures)
    for source in [TRACER, *(sorted(path.stem for path in COMPAT.glob("*_forward.c")) if newer else ())]:
        try:
            library = build_forward(source)
        except StackError as error:
            contents.notes.append(f"the host needs gcc: {error}")
            break
        yield ArchiveEntry(f".cache/compat/{library.name}", library)
    if newer:
        try:
            library = attention_operator()
            yield ArchiveEntry(f".cache/attention/{library.name}", library)
        except OperatorError as error:
            contents.notes.append(MISSING.format(error))


def checkout(scratch: Path, contents: Contents, root: Path = ROOT) -> Iterator[ArchiveEntry]:
    """The last commit with its git folder, so that a run there can say which code it ran.

    It is on a branch whatever the checkout is on: git wants a folder of references, and only files are packed.
    """
    clone = scratch / "checkout"
    command = ["git", "clone", "--quiet", "--depth=1", f"file://{root}", str(clone)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise OfflineError(f"git cannot pack the code: {done.stderr.strip()}")
    git = ["git", "-C", str(clone)]
    subprocess.run([*git, "remote", "remove", "origin"], check=True)
    subprocess.run([*git, "checkout", "--quiet", "-B", BRANCH], check=True)
    contents.commit = subprocess.run(
        [*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()
    for own in ("hooks", "logs"):
        shutil.rmtree(clone / ".git" / own, ignore_errors=True)
    yield from _files(clone, ".")


def _files(folder: Path, prefix: str, left_out: re.Pattern[str] | None = None) -> Iterator[ArchiveEntry]:
    """What is in a folder, in order, but for what `left_out` finds in its name; folders' names end with a slash there."""
    for path in sorted(folder.iterdir()):
        name = (PurePosixPath(prefix) / path.name).as_posix()
        is_folder = path.is_dir() and not path.is_symlink()
        if left_out and left_out.search(f"/{name}/" if is_folder else f"/{name}"):
            continue
        if is_folder:
            yield from _files(path, name, left_out)
        elif path.is_symlink():
            yield ArchiveEntry(name, link=os.readlink(path))
        elif path.is_file():
            yield ArchiveEntry(name, path, executable=os.access(path, os.X_OK))


def _python(environment: Path, version: str) -> Iterator[ArchiveEntry]:
    """The interpreter that an environment was made from, with its standard library and the libraries of its modules."""
    base = _base_of(environment)
    top = f"{PYTHONS}/{version}"
    binary, library = base / "bin" / f"python{version}", base / "lib" / f"python{version}"
    if not binary.exists() or not (library / "os.py").exists():
        raise OfflineError(f"{base} has no bin/python{version} with its lib/python{version}; it cannot be taken along")
    own = [path for path in sorted((base / "lib").glob(f"libpython{version}.so*")) if not path.is_symlink()]
    modules = [*_files(library, f"{top}/lib/python{version}", LEFT_OUT_OF_PYTHON)]
    programs = [ArchiveEntry(f"{top}/bin/python{version}", binary.resolve(), executable=True)]
    programs += [ArchiveEntry(f"{top}/lib/{path.name}", path, executable=True) for path in own]
    shared = [entry for entry in (*programs, *modules) if entry.source and _is_elf(entry.source)]
    for entry in (*programs, *modules):
        if entry in shared and entry.source:
            depth = "/".join([".."] * (len(PurePosixPath(entry.name).relative_to(top).parts) - 1)) or "."
            content = relocated(entry.source.read_bytes(), str(base / "lib"), f"$ORIGIN/{depth}/lib")
            yield ArchiveEntry(entry.name, content=content, executable=entry.executable)
        else:
            yield entry
    yield from (ArchiveEntry(f"{top}/lib/{path.name}", path) for path in _libraries_of(shared, base))


def _base_of(environment: Path) -> Path:
    """The prefix of the interpreter that an environment was made from."""
    program = "import sys; print(sys.base_prefix)"
    return Path(bootstrap.answer([environment / "bin" / "python", "-c", program]) or "/nonexistent")


def _is_elf(path: Path) -> bool:
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def relocated(content: bytes, folder: str, relative: str) -> bytes:
    """A program whose search path for libraries is `folder` with `relative` in its place, which is padded with zeros."""
    old = folder.encode() + b"\0"
    new = relative.encode()
    if len(new) > len(folder) or old not in content:
        return content
    return content.replace(b"\0" + old, b"\0" + new.ljust(len(old), b"\0"))


def _libraries_of(programs: Iterable[ArchiveEntry], base: Path) -> list[Path]:
    """What programs load besides glibc and their own interpreter, from where the loader finds it here."""
    loaded: dict[str, Path] = {}
    sources = [str(program.source) for program in programs]
    done = subprocess.run(["ldd", *sources], capture_output=True, text=True)
    for name, path in NEEDED.findall(done.stdout):
        if not GLIBC.match(name) and not Path(path).is_relative_to(base):
            loaded[name] = Path(path)
    return [path.parent / name for name, path in sorted(loaded.items())]


def _controller_packages(scratch: Path, groups: Iterable[str] = ()) -> set[str]:
    """The locked packages of the controller with these groups."""
    text = bootstrap.controller_requirements(bootstrap.find_uv(), scratch, groups).read_text()
    return {_normal(name) for name in re.findall(r"^([A-Za-z0-9._-]+)==", text, re.MULTILINE)}


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _environment(
    environment: Path, version: str, names: set[str] | None, left_out: Sequence[str] = LEFT_OUT
) -> Iterator[ArchiveEntry]:
    """The installed packages with these names, all without, each file as its wheel states; links to the interpreter."""
    name = environment.name
    yield from _packages(environment, version, names, left_out)
    yield ArchiveEntry(f"{name}/bin/python", link=f"../../{PYTHONS}/{version}/bin/python{version}")
    yield ArchiveEntry(f"{name}/bin/python3", link="python")


def _marker(environment: Path, groups: Iterable[str]) -> ArchiveEntry:
    """What says that the environment is complete, with these groups."""
    return ArchiveEntry(f"{environment.name}/ready", content=bootstrap.marker(environment, groups).encode())


def _packages(
    environment: Path, version: str, names: set[str] | None, left_out: Sequence[str]
) -> Iterator[ArchiveEntry]:
    """The files in site-packages of these packages, or of all, but for those with a piece of `left_out` in their path."""
    inside = f"lib/python{version}/site-packages"
    entries = _installed(environment / inside, names, left_out)
    for entry in sorted(entries, key=lambda entry: entry.name):
        yield replace(entry, name=f"{environment.name}/{inside}/{entry.name}")


def _installed(site: Path, names: set[str] | None, left_out: Sequence[str] = LEFT_OUT) -> Iterator[ArchiveEntry]:
    for distribution in _distributions(site, names):
        for file in distribution.files or ():
            inside = PurePosixPath(*file.parts)
            if ".." in inside.parts or inside.suffix == ".pyc" or any(part in f"/{inside}" for part in left_out):
                continue
            path = _as_stated(site, distribution, file)
            yield ArchiveEntry(inside.as_posix(), path, executable=os.access(path, os.X_OK))


def _programs(environment: Path, version: str, names: set[str]) -> Iterator[ArchiveEntry]:
    """The programs of these packages; those in Python run by the interpreter beside them."""
    site = environment / "lib" / f"python{version}" / "site-packages"
    pairs = ((distribution, file) for distribution in _distributions(site, names) for file in distribution.files or ())
    for distribution, file in sorted(pairs, key=lambda pair: pair[1].name):
        if ".." in file.parts and file.parts[-2] == "bin":
            content = _as_stated(site, distribution, file).read_bytes()
            content = BEGINNING.sub(lambda match: ANY_FOLDER, content, count=1) if content[:2] == b"#!" else content
            yield ArchiveEntry(f"{environment.name}/bin/{file.name}", content=content, executable=True)


def _distributions(site: Path, names: set[str] | None) -> Iterator[metadata.Distribution]:
    for distribution in metadata.distributions(path=[str(site)]):
        if names is None or _normal(distribution.name) in names:
            yield distribution


def _as_stated(site: Path, distribution: metadata.Distribution, file: metadata.PackagePath) -> Path:
    """Where a file of a package is; OfflineError if it has not the SHA-256 that the wheel states, if that states one."""
    path = site / file
    if file.hash and file.hash.value != _record_hash(path):
        raise OfflineError(f"{path} is not as {distribution.name}'s wheel states; `make clean`, then `make setup`")
    return path


def _record_hash(path: Path) -> str:
    """SHA-256 as a wheel's RECORD has it; empty for a missing file."""
    try:
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").digest()
    except OSError:
        return ""
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def environments(scratch: Path, pythons: dict[Path, str], contents: Contents) -> Iterator[ArchiveEntry]:
    """Both environments, of the trainers' the libraries without GPU code for other architectures; the data sets."""
    controller, trainer, groups = bootstrap.CONTROLLER, bootstrap.TRAINER, groups_of("kit")
    names = _controller_packages(scratch, groups)
    yield from _environment(controller, pythons[controller], names, LEFT_OUT_OF_CONTROLLER)
    yield from _programs(controller, pythons[controller], {"ansible-core", "fabric"})
    yield _marker(controller, groups)
    for entry in _environment(trainer, pythons[trainer], None):
        yield _only_ours(_compiled(entry, contents), scratch, contents)
    yield _marker(trainer, ())
    for folder in contents.datasets:
        yield from _files(folder, f".cache/{folder.relative_to(CACHE).as_posix()}")


def baselines(scratch: Path, pythons: dict[Path, str], contents: Contents) -> Iterator[ArchiveEntry]:
    """The pinned environment of the baselines likewise, with its interpreter unless the kit has that already.

    The headers of the interpreter are for the kernels that PyTorch compiles while it runs.
    """
    environment = bootstrap.BASELINE
    version = pythons[environment]
    if version not in (pythons[bootstrap.CONTROLLER], pythons[bootstrap.TRAINER]):
        yield from _python(environment, version)
    yield from _files(
        _base_of(environment) / "include" / f"python{version}", f"{PYTHONS}/{version}/include/python{version}"
    )
    for entry in _environment(environment, version, None, left_out=()):
        yield _only_ours(entry, scratch, contents)
    yield _marker(environment, ())


def tests(scratch: Path, pythons: dict[Path, str]) -> Iterator[ArchiveEntry]:
    """What `make test` needs besides of the controller's packages, with their programs."""
    controller, groups = bootstrap.CONTROLLER, groups_of("test")
    names = _controller_packages(scratch, groups) - _controller_packages(scratch, groups_of("kit"))
    yield from _packages(controller, pythons[controller], names, ())
    yield from _programs(controller, pythons[controller], names)
    yield _marker(controller, groups)


def _compiled(entry: ArchiveEntry, contents: Contents) -> ArchiveEntry:
    """The overlay's copy of a library, if it has one; any other file as it is."""
    path = PurePosixPath(entry.name)
    if contents.overlay is None or path.parent.name != LIBRARIES:
        return entry
    own = contents.overlay.folder / LIBRARIES / path.name
    return entry if own.is_symlink() or not own.is_file() else replace(entry, source=own)


def libraries(scratch: Path, folders: Sequence[Path], contents: Contents) -> Iterator[ArchiveEntry]:
    """A newer cuBLAS and cuDNN, likewise."""
    paths = {path for folder in folders for name in ("cublas", "cudnn") for path in folder.glob(f"lib{name}*.so.*")}
    for path in sorted(paths):
        name = f"{KIT.name}/lib/{path.name}"
        if path.is_symlink():
            yield ArchiveEntry(name, link=path.resolve().name)
        else:
            yield _only_ours(ArchiveEntry(name, path), scratch, contents)


def _only_ours(entry: ArchiveEntry, scratch: Path, contents: Contents) -> ArchiveEntry:
    """A library without GPU code for other architectures, as a copy; any other file as it is."""
    if entry.source is None or ".so" not in entry.source.name or not contents.architectures:
        return entry
    copy = scratch / "library"
    shutil.copyfile(entry.source, copy)
    zeroed = leave_out(copy, contents.architectures)
    if zeroed:
        contents.zeroed[entry.name] = zeroed
    return ArchiveEntry(entry.name, copy if zeroed else entry.source, executable=entry.executable)
