"""Opens the files of a run in place: in its folder, or in the ZIP archive it was packed into.

`open_files` returns a run's root. Paths below it are built with `/` and behave the same for both, so readers need not
know which it is. An archive is opened once and read without unpacking.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import tomllib
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any

from repro.utils.errors import ReproError
from repro.utils.paths import sha256

ARCHIVE = ".zip"
SIGNATURE = ".sig"
"""Suffix of a signature file (`repro.runs.signature`)."""
KEPT = "kept.json"
"""In a kept run: how it differs from the run as it was recorded; written by `repro.report.host.keep`."""
PREFLIGHT = "preflight.json"
GPU_FIELDS = ("index", "uuid", "utilization.gpu", "memory.used", "clocks.sm", "temperature.gpu")
"""The columns of `GPU_FILE`, which has no header: number, UUID, utilisation in %, memory in MiB, clock in MHz, °C."""
GPU_FILE = "gpu.csv"

RunPath = Path | zipfile.Path


class RecordError(ReproError):
    """A run cannot be made, read or written; the message says which and what to do."""


def is_archive(path: Path) -> bool:
    """Whether a path names an archive instead of a folder."""
    return path.suffix == ARCHIVE


def open_files(path: Path) -> RunPath:
    """The root of a run's files: the folder itself, or the inside of an archive.

    RecordError if an archive cannot be read, or contains two files of the same name.
    """
    if not is_archive(path):
        return path
    try:
        archive = zipfile.ZipFile(io.BufferedReader(_Positioned(path)))
    except (OSError, zipfile.BadZipFile) as error:
        raise RecordError(f"{path} cannot be read as a ZIP archive: {error}") from error
    names = archive.namelist()
    if twice := sorted({name for name in names if names.count(name) > 1} if len(set(names)) < len(names) else ()):
        raise RecordError(f"{path} holds more than one {', '.join(twice)}: copy the archive again from its source")
    return zipfile.Path(archive)


class _Positioned(io.RawIOBase):
    """A file that keeps its position to itself: processes that were forked while it was open share the system's."""

    def __init__(self, path: Path) -> None:
        self._descriptor, self._at = os.open(path, os.O_RDONLY), 0
        self.name = str(path)

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
        found = os.pread(self._descriptor, len(buffer), self._at)
        buffer[: len(found)] = found
        self._at += len(found)
        return len(found)


def names(root: RunPath) -> list[str]:
    """Paths of all files below the root, relative to it and sorted."""
    if isinstance(root, zipfile.Path):
        every = (name for name in root.root.namelist() if not name.endswith("/"))
        return sorted(name.removeprefix(root.at) for name in every if name.startswith(root.at))
    found = []
    for parent, folders, files in os.walk(root):
        links = [name for name in folders if (Path(parent) / name).is_symlink()]
        found += [(Path(parent) / name).relative_to(root).as_posix() for name in (*files, *links)]
    return sorted(found)


def opened(path: RunPath) -> IO[bytes]:
    """The content of a file, to be read; FileNotFoundError if there is none."""
    return path.open("rb")


def content(path: RunPath) -> bytes:
    """The whole content of a file; FileNotFoundError if there is none."""
    with opened(path) as file:
        return file.read()


def lines(path: RunPath) -> list[str]:
    """The complete lines of a file, without line ends; none if the file does not exist. An incomplete last line is
    dropped.

    UnicodeDecodeError if it is not UTF-8.
    """
    return content(path).decode("utf-8").split("\n")[:-1] if path.is_file() else []


def read_json(path: RunPath) -> Any:
    """The content of a JSON file; RecordError if it is missing or is none."""
    try:
        return json.loads(content(path))
    except (OSError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise RecordError(f"{path} cannot be read: {error}") from error


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
    except (zipfile.BadZipFile, zlib.error):
        return None
    return running.hexdigest()


def gpu_samples(attempt: RunPath) -> list[dict[str, str]]:
    """What nvidia-smi printed every few seconds of an attempt, by `GPU_FIELDS`; none if it was not sampled."""
    file = attempt / GPU_FILE
    if not file.is_file():
        return []
    rows = csv.reader(content(file).decode("utf-8", "replace").splitlines(), skipinitialspace=True)
    return [dict(zip(GPU_FIELDS, row, strict=True)) for row in rows if len(row) == len(GPU_FIELDS)]
