"""The kit for one host without a network: this checkout with both environments and their interpreters, in parts.

What is packed is what is installed here, each file held to the SHA-256 that its wheel states. GPU code for other
architectures is overwritten with zeros, which compress to nothing. A part is an archive, split into pieces; optional
parts may stay behind. `setup.sh`, which needs a shell and sha256sum, names what is damaged or missing.
"""

import base64
import contextlib
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from repro import bootstrap
from repro.images.build import LAYOUT
from repro.images.fatbins import leave_out
from repro.images.kernel_overlay import FOLDER as LIBRARIES
from repro.images.kernel_overlay import Overlay, overlay_for
from repro.images.oci_layout import packed
from repro.images.pins import load_pins
from repro.images.stack import COMPAT, KIT, StackError, build_forward, needs_newer_libraries
from repro.utils.errors import FAILED, ReproError
from repro.utils.i18n import LANGUAGES
from repro.utils.paths import ROOT, sha256

TEMPLATES = Path(__file__).with_name("templates")
SUMS = "SHA256SUMS"
NOTE = "kit.json"
OPTIONAL = ("libraries", "images")
PYTHONS = ".kit/python"
MIB = 2**20
MOST_PIECES = 1000
"""As many as the names of pieces sort in their order: setup.sh joins them by a pattern."""
XZ = ("xz", "--threads=4", "--stdout")
"""With a fixed number of threads, for it decides how the stream is cut into blocks."""
LEFT_OUT = ("/test/", "/tests/", "/oneflow/include/")
"""Files of the environments that no run reads, by a piece of their path."""
LEFT_OUT_OF_PYTHON = re.compile(
    r"/(test|idlelib|tkinter|turtledemo|lib2to3|ensurepip|config-[^/]*|site-packages|dist-packages|__pycache__)/"
    r"|/lib-dynload/(_tkinter|nis|_test|_ctypes_test|_xxtestfuzz|xx)[^/]*$|\.a$"
)
FAB = '#!/bin/sh\nexec "$(dirname "$(readlink -f "$0")")/python" -m fabric "$@"\n'
GLIBC = re.compile(r"^(ld-linux.*|lib(c|m|dl|pthread|rt|util|resolv|nsl|mvec|anl|crypt|gcc_s|stdc\+\+))\.so")
NEEDED = re.compile(r"^\s*(\S+) => (/\S+)", re.MULTILINE)


class KitError(ReproError):
    """A kit cannot be made; the message says why and what to do."""

    status = FAILED


@dataclass(frozen=True)
class Entry:
    """A file or link of an archive: its name there, and its content, of a file here or given."""

    name: str
    source: Path | None = None
    content: bytes = b""
    link: str = ""
    executable: bool = False


@dataclass
class Made:
    """What a kit became: bytes of each part, and of GPU code left out per library.

    The libraries of `overlay`, if there is one for the kit's only architecture, are in it in place of the wheel's.
    """

    folder: Path
    architectures: tuple[int, ...]
    overlay: Overlay | None = None
    parts: dict[str, int] = field(default_factory=dict)
    zeroed: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def digest(self) -> str | None:
        """The SHA-256 of the checksums, which vouches for every piece."""
        return sha256(self.folder / SUMS)


class Pieces(io.RawIOBase):
    """A stream that is written into files `NAME.000`, `NAME.001`, … of at most `size` bytes."""

    def __init__(self, folder: Path, name: str, size: int) -> None:
        self.folder, self.name, self.size = folder, name, size
        self.files: list[Path] = []
        self.total = self.left = 0
        self.file: BinaryIO | None = None

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        view = memoryview(data).cast("B")
        while view:
            if not self.left:
                self._next()
            piece, view = view[: self.left], view[self.left :]
            assert self.file
            self.file.write(piece)
            self.left -= len(piece)
            self.total += len(piece)
        return len(data)

    def _next(self) -> None:
        self._end()
        if len(self.files) == MOST_PIECES:
            raise KitError(f"{self.name} would have more than {MOST_PIECES} pieces; PART_MIB=<more> makes them larger")
        self.files.append(self.folder / f"{self.name}.{len(self.files):03}")
        self.file, self.left = open(self.files[-1], "wb"), self.size  # noqa: SIM115

    def _end(self) -> None:
        if self.file:
            self.file.close()

    def close(self) -> None:
        self._end()
        super().close()


def make_kit(
    folder: Path,
    architectures: Sequence[int],
    part_mib: int,
    libraries: Sequence[Path] = (),
    images: bool = False,
    level: int = 1,
) -> Made:
    """Write a kit into a folder that must not exist yet.

    Parameters
    ----------
    architectures : of the host's GPUs, such as 90; code for others is left out.
    part_mib : the largest size of a piece in MiB.
    libraries : folders with a newer cuBLAS and cuDNN to take along.
    images : whether to add what `make image` built last.
    level : of the compression, 0 to 9.

    Raises
    ------
    KitError
        An environment is incomplete, an installed file is not as its wheel states, or the checkout has no commit.
    """
    if folder.exists():
        raise KitError(f"{folder} exists already; remove it or name another folder with KIT=")
    if changed := _changed():
        raise KitError(f"a kit holds the last commit, and these files differ from it: {', '.join(changed)}")
    if images and not LAYOUT.exists():
        raise KitError("there are no images to take along; `make image` first")
    partial = folder.absolute().with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    chosen = tuple(sorted(set(architectures)))
    made = Made(partial, chosen, overlay_for(chosen[0]) if len(chosen) == 1 else None)
    size = part_mib * MIB
    pythons = {environment: _version(environment) for environment in (bootstrap.CONTROLLER, bootstrap.TRAINER)}
    with tempfile.TemporaryDirectory(dir=_scratch()) as scratch:
        temporary = Path(scratch)
        _pack(made, "base.tar.gz", _base(temporary, pythons, made), size, 6)
        _pack(made, "environments.tar.xz", _environments(temporary, pythons, made), size, level)
        if libraries:
            _pack(made, "libraries.tar.xz", _libraries(temporary, libraries, made), size, level)
    if images:
        with Pieces(partial, "images.tar", size) as pieces:
            for data in packed(LAYOUT):
                pieces.write(data)
        made.parts["images"] = pieces.total
    _describe(made, pythons)
    made.folder = partial.rename(folder)
    return made


def _changed() -> list[str]:
    """The files of the checkout that differ from its last commit, which is what a kit holds."""
    command = ["git", "-C", str(ROOT), "diff", "--name-only", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True).stdout.split()


def _scratch() -> str:
    """A folder on a disk: the trainers' libraries take 2 GB, and /tmp may be in memory."""
    return "/var/tmp"


def _version(environment: Path) -> str:
    """The Python of an environment, such as "3.10"; KitError unless it is complete."""
    if not bootstrap.is_ready(environment):
        raise KitError(f"{environment.name} is not complete; `make setup` completes it")
    program = "import sys; print('%d.%d' % sys.version_info[:2])"
    return bootstrap.answer([environment / "bin" / "python", "-c", program]) or ""


# What the parts hold


def _base(scratch: Path, pythons: dict[Path, str], made: Made) -> Iterator[Entry]:
    """The checkout at its commit, both interpreters, and the compiled forwarders."""
    yield from _checkout(scratch)
    for environment in pythons:
        yield from _python(environment, pythons[environment])
    if made.architectures and needs_newer_libraries(made.architectures):
        for source in sorted(COMPAT.glob("*_forward.c")):
            try:
                library = build_forward(source.stem)
            except StackError as error:
                made.notes.append(f"the host needs gcc: {error}")
                break
            yield Entry(f".cache/compat/{library.name}", library)


def _checkout(scratch: Path) -> Iterator[Entry]:
    """The last commit with its git folder, so that a run there can say which code it ran."""
    clone = scratch / "checkout"
    command = ["git", "clone", "--quiet", "--depth=1", f"file://{ROOT}", str(clone)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise KitError(f"git cannot pack the code: {done.stderr.strip()}")
    subprocess.run(["git", "-C", str(clone), "remote", "remove", "origin"], check=True)
    for own in ("hooks", "logs"):
        shutil.rmtree(clone / ".git" / own, ignore_errors=True)
    yield from _files(clone, ".")


def _files(folder: Path, prefix: str) -> Iterator[Entry]:
    for path in sorted(folder.rglob("*")):
        name = (PurePosixPath(prefix) / path.relative_to(folder).as_posix()).as_posix()
        if path.is_symlink():
            yield Entry(name, link=os.readlink(path))
        elif path.is_file():
            yield Entry(name, path, executable=os.access(path, os.X_OK))


def _python(environment: Path, version: str) -> Iterator[Entry]:
    """The interpreter that an environment was made from, with its standard library and the libraries of its modules."""
    program = "import sys; print(sys.base_prefix)"
    base = Path(bootstrap.answer([environment / "bin" / "python", "-c", program]) or "/nonexistent")
    top = f"{PYTHONS}/{version}"
    binary, library = base / "bin" / f"python{version}", base / "lib" / f"python{version}"
    if not binary.exists() or not (library / "os.py").exists():
        raise KitError(f"{base} has no bin/python{version} with its lib/python{version}; it cannot be taken along")
    own = [path for path in sorted((base / "lib").glob(f"libpython{version}.so*")) if not path.is_symlink()]
    modules = [*_files(library, f"{top}/lib/python{version}")]
    modules = [each for each in modules if not LEFT_OUT_OF_PYTHON.search("/" + each.name)]
    programs = [Entry(f"{top}/bin/python{version}", binary.resolve(), executable=True)]
    programs += [Entry(f"{top}/lib/{path.name}", path, executable=True) for path in own]
    shared = [each for each in (*programs, *modules) if each.source and _is_elf(each.source)]
    for entry in (*programs, *modules):
        if entry in shared and entry.source:
            depth = "/".join([".."] * (len(PurePosixPath(entry.name).relative_to(top).parts) - 1)) or "."
            content = relocated(entry.source.read_bytes(), str(base / "lib"), f"$ORIGIN/{depth}/lib")
            yield Entry(entry.name, content=content, executable=entry.executable)
        else:
            yield entry
    yield from (Entry(f"{top}/lib/{path.name}", path) for path in _libraries_of(shared, base))


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


def _libraries_of(programs: Iterable[Entry], base: Path) -> list[Path]:
    """What programs load besides glibc and their own interpreter, from where the loader finds it here."""
    found: dict[str, Path] = {}
    sources = [str(each.source) for each in programs]
    done = subprocess.run(["ldd", *sources], capture_output=True, text=True)
    for name, path in NEEDED.findall(done.stdout):
        if not GLIBC.match(name) and not Path(path).is_relative_to(base):
            found[name] = Path(path)
    return [path.parent / name for name, path in sorted(found.items())]


def _controller_packages(scratch: Path) -> set[str]:
    """The locked packages of the controller without any group."""
    text = bootstrap.controller_requirements(bootstrap.find_uv(), scratch, ()).read_text()
    return {_normal(name) for name in re.findall(r"^([A-Za-z0-9._-]+)==", text, re.MULTILINE)}


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _environment(environment: Path, version: str, names: set[str] | None) -> Iterator[Entry]:
    """The installed packages with these names, all without, each file as its wheel states; the environment around them."""
    name = environment.name
    site = environment / "lib" / f"python{version}" / "site-packages"
    marker = bootstrap.fingerprint(environment) + ("\ngroups: \n" if environment == bootstrap.CONTROLLER else "\n")
    for entry in sorted(_installed(site, names), key=lambda each: each.name):
        yield Entry(f"{name}/lib/python{version}/site-packages/{entry.name}", entry.source)
    yield Entry(f"{name}/bin/python", link=f"../../{PYTHONS}/{version}/bin/python{version}")
    yield Entry(f"{name}/bin/python3", link="python")
    yield Entry(f"{name}/ready", content=marker.encode())


def _installed(site: Path, names: set[str] | None) -> Iterator[Entry]:
    for distribution in metadata.distributions(path=[str(site)]):
        if names is not None and _normal(distribution.name) not in names:
            continue
        for file in distribution.files or ():
            inside = PurePosixPath(*file.parts)
            if ".." in inside.parts or inside.suffix == ".pyc" or any(part in f"/{inside}" for part in LEFT_OUT):
                continue
            path = site / inside
            if file.hash and file.hash.value != _record_hash(path):
                raise KitError(f"{path} is not as {distribution.name}'s wheel states; `make clean`, then `make setup`")
            yield Entry(inside.as_posix(), path)


def _record_hash(path: Path) -> str:
    """SHA-256 as a wheel's RECORD has it; empty for a missing file."""
    try:
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").digest()
    except OSError:
        return ""
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def _environments(scratch: Path, pythons: dict[Path, str], made: Made) -> Iterator[Entry]:
    """Both environments, of the trainers' the libraries without GPU code for other architectures."""
    controller, trainer = bootstrap.CONTROLLER, bootstrap.TRAINER
    yield from _environment(controller, pythons[controller], _controller_packages(scratch))
    yield Entry(f"{controller.name}/bin/fab", content=FAB.encode(), executable=True)
    for entry in _environment(trainer, pythons[trainer], None):
        yield _only_ours(_compiled(entry, made), scratch, made)


def _compiled(entry: Entry, made: Made) -> Entry:
    """The overlay's copy of a library, if it has one; any other file as it is."""
    path = PurePosixPath(entry.name)
    if made.overlay is None or path.parent.name != LIBRARIES:
        return entry
    own = made.overlay.folder / LIBRARIES / path.name
    return entry if own.is_symlink() or not own.is_file() else replace(entry, source=own)


def _libraries(scratch: Path, folders: Sequence[Path], made: Made) -> Iterator[Entry]:
    """A newer cuBLAS and cuDNN, likewise."""
    paths = {path for folder in folders for name in ("cublas", "cudnn") for path in folder.glob(f"lib{name}*.so.*")}
    for path in sorted(paths):
        name = f"{KIT.name}/lib/{path.name}"
        if path.is_symlink():
            yield Entry(name, link=path.resolve().name)
        else:
            yield _only_ours(Entry(name, path), scratch, made)


def _only_ours(entry: Entry, scratch: Path, made: Made) -> Entry:
    """A library without GPU code for other architectures, as a copy; any other file as it is."""
    if entry.source is None or ".so" not in entry.source.name or not made.architectures:
        return entry
    copy = scratch / "library"
    shutil.copyfile(entry.source, copy)
    zeroed = leave_out(copy, made.architectures)
    if zeroed:
        made.zeroed[entry.name] = zeroed
    return Entry(entry.name, copy if zeroed else entry.source, executable=entry.executable)


# How they are written


def _pack(made: Made, name: str, entries: Iterable[Entry], size: int, level: int) -> None:
    """Write an archive in pieces: the same bytes for the same entries."""
    with (
        Pieces(made.folder, name, size) as pieces,
        _compressed(pieces, name, level) as out,
        tarfile.open(fileobj=out, mode="w|", format=tarfile.GNU_FORMAT) as archive,
    ):
        for entry in entries:
            _add(archive, entry)
    made.parts[name.partition(".")[0]] = pieces.total


def _add(archive: tarfile.TarFile, entry: Entry) -> None:
    member = tarfile.TarInfo(entry.name)
    member.mtime = load_pins().source_date_epoch
    member.mode = 0o755 if entry.executable else 0o644
    if entry.link:
        member.type, member.linkname = tarfile.SYMTYPE, entry.link
        archive.addfile(member)
    elif entry.source:
        member.size = entry.source.stat().st_size
        with open(entry.source, "rb") as content:
            archive.addfile(member, content)
    else:
        member.size = len(entry.content)
        archive.addfile(member, io.BytesIO(entry.content))


@contextlib.contextmanager
def _compressed(pieces: Pieces, name: str, level: int) -> Iterator[Any]:
    """A stream that is compressed into pieces: by gzip, which every host has, or by xz."""
    if name.endswith(".gz"):
        with gzip.GzipFile(filename="", mode="wb", compresslevel=level or 1, fileobj=pieces, mtime=0) as out:
            yield out
        return
    if shutil.which(XZ[0]) is None:
        raise KitError("xz is needed to make a kit: `apt-get install xz-utils`")
    process = subprocess.Popen([*XZ, f"-{level}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    source, target = process.stdin, process.stdout
    assert source and target

    def copy() -> None:
        try:
            shutil.copyfileobj(target, pieces)
        except BaseException:
            process.kill()  # what it would still write fits nowhere, and whoever feeds it would wait
            raise

    with ThreadPoolExecutor(1) as pool:
        copied = pool.submit(copy)
        try:
            yield source
            source.close()
        except BaseException as error:
            process.kill()
            with contextlib.suppress(OSError):
                source.close()
            if isinstance(error, BrokenPipeError):
                copied.result()
            raise
        finally:
            process.wait()
        copied.result()
    if process.returncode:
        raise KitError(f"xz ended with status {process.returncode}")


def _describe(made: Made, pythons: dict[Path, str]) -> None:
    """The files beside the pieces: setup.sh, READMEs, kit.json, and the checksums of all."""
    shutil.copy(TEMPLATES / "kit-setup.sh", made.folder / "setup.sh")
    for lock in ("uv.lock", "docker/trainer.lock", "docker/pins.toml"):
        shutil.copy(ROOT / lock, made.folder / Path(lock).name)
    content = {
        "commit": subprocess.run(
            ["git", "-C", str(ROOT), "rev-parse", "HEAD"], capture_output=True, text=True, check=True
        ).stdout.strip(),
        "architectures": list(made.architectures),
        "overlay": made.overlay.record() if made.overlay else None,
        "pythons": {environment.name: version for environment, version in pythons.items()},
        "glibc": os.confstr("CS_GNU_LIBC_VERSION"),
        "parts_bytes": made.parts,
        "left_out_bytes": made.zeroed,
        "left_out_files": list(LEFT_OUT),
        "notes": made.notes,
    }
    (made.folder / NOTE).write_text(json.dumps(content, indent=1) + "\n")
    architectures = " ".join(map(str, made.architectures))
    (made.folder / "kit.conf").write_text(
        f"optional='{' '.join(OPTIONAL)}'\narchitectures='{architectures}'\n"
        f"controller_python='{pythons[bootstrap.CONTROLLER]}'\ntrainer_python='{pythons[bootstrap.TRAINER]}'\n"
    )
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), undefined=jinja2.StrictUndefined, keep_trailing_newline=True
    )
    for language in LANGUAGES:
        name = "README.md" if language == "en" else f"README.{language}.md"
        text = environment.get_template(f"kit.{language}.md.j2").render(**content, sums=SUMS)
        (made.folder / name).write_text(text, encoding="utf-8")
    files = sorted(path for path in made.folder.iterdir() if path.name != SUMS)
    (made.folder / SUMS).write_text("".join(f"{sha256(path)}  {path.name}\n" for path in files))


def summary(made: Made) -> Iterator[str]:
    """The sizes and the digest of a kit, one line each."""
    for name, size in made.parts.items():
        pieces = sum(1 for path in made.folder.glob(f"{name}.*"))
        yield f"{made.folder}/{name}.*: {size / 1e6:.0f} MB in {pieces} pieces{' (optional)' if name in OPTIONAL else ''}"
    left_out = sum(made.zeroed.values())
    yield f"{left_out / 1e6:.0f} MB of GPU code for other architectures left out"
    if made.overlay:
        yield made.overlay.text()
    yield from made.notes
    yield f"SHA-256 of {SUMS}: {made.digest}"
