"""Opens the files of a run in place: in its folder, or in the ZIP archive it was packed into.

`open_files` returns a run's root. Paths below it are built with `/` and behave the same for both, so readers need not
know which it is. An archive is opened once and read without unpacking.

A run may come from others. Nothing outside its folder is reached through links or names, nothing but plain files is
read, and no more of it than `repro.runs.limits` allows; `reading` turns what is damaged into one sentence.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import stat
import struct
import tomllib
import traceback
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from repro.runs import limits
from repro.utils.errors import ReproError
from repro.utils.paths import PACKAGE, sha256
from repro.utils.printable import one_line

PIECE = 2**20
ARCHIVE = ".zip"
SIGNATURE = ".sig"
"""Suffix of a signature file (`repro.runs.signature`)."""
KEPT = "kept.json"
"""In a kept run: how it differs from the run as it was recorded; written by `repro.report.host.keep`."""
PREFLIGHT = "preflight.json"
GPU_FIELDS = ("index", "uuid", "utilization.gpu", "memory.used", "clocks.sm", "temperature.gpu")
"""The columns of `GPU_FILE`, which has no header: number, UUID, utilisation in %, memory in MiB, clock in MHz, °C."""
GPU_FILE = "gpu.csv"
FINGERPRINTS = "fingerprints.json"
"""In the folder of an attempt under Slurm: what its nodes were."""
GPU_EVERY_S = 5
"""How long nvidia-smi waits between two samples, in s; the first one is at the start of an attempt."""

RunPath = Path | zipfile.Path


class RecordError(ReproError):
    """A run cannot be made, read or written; the message says which and what to do."""


def is_archive(path: Path) -> bool:
    """Whether a path names an archive instead of a folder."""
    return path.suffix == ARCHIVE


def open_files(path: Path) -> RunPath:
    """The root of a run's files: the folder itself, or the inside of an archive.

    RecordError if an archive cannot be read or exceeds `repro.runs.limits`, and if a folder has links that lead out of
    theirs, files that are none, or names that no run has.
    """
    if not is_archive(path):
        check_plain(path)
        return path
    try:
        file = _Positioned(path.resolve(), limits.DIRECTORY_BYTES)
        archive = zipfile.ZipFile(io.BufferedReader(file))
    except (OSError, ValueError, NotImplementedError, struct.error, zipfile.BadZipFile) as error:
        raise RecordError(f"{path} cannot be read as a ZIP archive: {error}; copy it again from its source") from error
    file.budget = None
    if fault := limits.archive_fault(archive.infolist(), os.path.getsize(path)):
        raise RecordError(f"{path} {fault}; it was not unpacked. Copy it again from its source")
    return zipfile.Path(archive)


def check_plain(folder: Path) -> None:
    """RecordError unless a folder, if it is there, holds plain files and folders, with names that a run may have.

    A link to another name in the same folder is allowed, as glog leaves beside its logs.
    """
    pending, count = [(folder, "")], 0
    while pending:
        parent, prefix = pending.pop()
        try:
            entries = list(os.scandir(parent))
        except (FileNotFoundError, NotADirectoryError):
            continue
        for entry in entries:
            count += 1
            path = prefix + entry.name
            fault = limits.name_fault(path) or _entry_fault(entry)
            if fault or count > limits.FILES:
                raise RecordError(f"{folder} {fault or f'has more than {limits.FILES} files'}; it was not read")
            if entry.is_dir(follow_symlinks=False):
                pending.append((Path(entry.path), f"{path}/"))


def _entry_fault(entry: os.DirEntry[str]) -> str | None:
    if entry.is_symlink():
        return None if _sibling(Path(entry.path)) else f"has a link that leads elsewhere: {entry.name}"
    plain = entry.is_dir(follow_symlinks=False) or entry.is_file(follow_symlinks=False)
    return None if plain else f"has a device, a pipe or a socket: {entry.name}"


def _sibling(link: Path) -> Path | None:
    """What a link leads to if that is a file of the same folder and no link itself, or is gone; None if it is not."""
    target = os.readlink(link)
    beside = link.with_name(target) if "/" not in target and target not in ("", ".", "..") else None
    return beside if beside and not beside.is_symlink() and not beside.is_dir() else None


class _Positioned(io.RawIOBase):
    """A file that keeps its position to itself: processes that were forked while it was open share the system's."""

    def __init__(self, path: Path, budget: int | None = None) -> None:
        """`budget` is how many bytes may be read before it is an OSError; None for any number."""
        self._descriptor, self._at = _plain(path), 0
        self.name, self.budget = str(path), budget

    def close(self) -> None:
        if not self.closed:
            os.close(self._descriptor)
        super().close()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        size = os.fstat(self._descriptor).st_size
        self._at = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: size}[whence] + offset
        return self._at

    def readinto(self, buffer, /) -> int:  # type: ignore[no-untyped-def]
        data = os.pread(self._descriptor, len(buffer), self._at)
        if self.budget is not None:
            self.budget -= len(data)
            if self.budget < 0:
                raise OSError(f"its list of files has more than {limits.DIRECTORY_BYTES // 2**20} MiB")
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


def names(root: RunPath) -> list[str]:
    """Paths of all files below the root, relative to it and sorted."""
    if isinstance(root, zipfile.Path):
        every = (name for name in root.root.namelist() if not name.endswith("/"))
        return sorted(name.removeprefix(root.at) for name in every if name.startswith(root.at))
    paths = []
    for parent, folders, files in os.walk(root):
        links = [name for name in folders if (Path(parent) / name).is_symlink()]
        paths += [(Path(parent) / name).relative_to(root).as_posix() for name in (*files, *links)]
    return sorted(paths)


def opened(path: RunPath) -> IO[bytes]:
    """The content of a plain file, to be read; FileNotFoundError if there is none.

    RecordError for anything but a file, or a link to one beside it, and for a file that is too large.
    """
    return os.fdopen(_plain(path), "rb") if isinstance(path, Path) else path.open("rb")


def _plain(path: Path) -> int:
    """The descriptor of a plain file."""
    at = _sibling(path) if path.is_symlink() else path
    if at is None:
        raise RecordError(f"{path} is a link that leads elsewhere; it was not read")
    descriptor = os.open(at, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe would wait
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise RecordError(f"{path} is no plain file; it was not read")


def content(path: RunPath, limit: int = limits.FILE_BYTES) -> bytes:
    """The whole content of a file, of at most `limit` bytes; FileNotFoundError if there is none."""
    data = bytearray()
    with opened(path) as file:
        while len(data) <= limit and (
            piece := file.read(PIECE)
        ):  # of a whole limit, Python would take the memory first
            data += piece
    if len(data) > limit:
        raise RecordError(f"{path} has more than {limit // 2**20} MiB, and is not read as a whole")
    return bytes(data)


def lined(path: RunPath, limit: int = limits.FILE_BYTES) -> bytes:
    """The whole content of a file of lines; RecordError if it has more of them than a run writes."""
    data = content(path, limit)
    if data.count(b"\n") > limits.LINES:
        raise RecordError(f"{path} has more than {limits.LINES} lines")
    return data


def lines(path: RunPath) -> list[str]:
    """The complete lines of a file, without line ends; none if the file does not exist. An incomplete last line is
    dropped.

    UnicodeDecodeError if it is not UTF-8; RecordError if it has more lines, or longer ones, than a run records.
    """
    if not path.is_file():
        return []
    every = lined(path, limits.RECORD_BYTES).decode("utf-8").split("\n")[:-1]
    if longest := next((number for number, line in enumerate(every, 1) if len(line) > limits.LINE_BYTES), None):
        raise RecordError(f"{path}: line {longest} has more than {limits.LINE_BYTES // 2**20} MiB")
    return every


def read_json(path: RunPath) -> Any:
    """The content of a JSON file; RecordError if it is missing, is none, or exceeds `repro.runs.limits`."""
    try:
        value = json.loads(content(path, limits.JSON_BYTES))
    except (OSError, ValueError, RecursionError, zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise RecordError(f"{path} cannot be read: {error}") from error
    if fault := limits.json_fault(value):
        raise RecordError(f"{path} {fault}, and is not read")
    return value


DAMAGED = (
    *(ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError, MemoryError, EOFError),
    *(NotImplementedError, csv.Error, zipfile.BadZipFile, zlib.error),
)
"""What reading a run raises whose files are not as a run writes them."""


@contextmanager
def reading(run: Path) -> Iterator[None]:
    """Turn what is raised while a run from anywhere is interpreted into a RecordError that names the run and the place."""
    try:
        yield
    except DAMAGED as error:
        frames = traceback.extract_tb(error.__traceback__)
        own = next((frame for frame in reversed(frames) if frame.filename.startswith(str(PACKAGE))), frames[-1])
        place = f"{Path(own.filename).name}:{own.lineno}"
        raise RecordError(
            f"{run} is damaged, or is no run of this project: {type(error).__name__}: {one_line(str(error))} ({place})"
        ) from error


def read_toml(path: Path) -> dict:
    """The content of a TOML file next to kept runs, empty if it does not exist; RecordError if it is not TOML in UTF-8."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RecordError(f"{path}: not TOML in UTF-8: {error}") from error


def digest(path: RunPath) -> str | None:
    """The SHA-256 of a plain file in hexadecimal; None if it is missing, a link, or damaged in its archive."""
    if isinstance(path, Path):
        return sha256(path)
    if not path.is_file():
        return None
    running = hashlib.sha256()
    try:
        with opened(path) as file:
            while block := file.read(2**20):
                running.update(block)
    except (zipfile.BadZipFile, zlib.error, EOFError):
        return None
    return running.hexdigest()


def gpu_samples(attempt: RunPath) -> list[dict[str, str]]:
    """What nvidia-smi printed every few seconds of an attempt, by `GPU_FIELDS`; none if it was not sampled."""
    file = attempt / GPU_FILE
    if not file.is_file():
        return []
    rows = csv.reader(content(file).decode("utf-8", "replace").splitlines(), skipinitialspace=True)
    return [dict(zip(GPU_FIELDS, row, strict=True)) for row in rows if len(row) == len(GPU_FIELDS)]
