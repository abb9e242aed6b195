"""How much a run may hold, so that one from others cannot fill the memory or the disk, or keep a reader busy for ever.

Each check answers with what is wrong, or with None. The limits are far above what runs have: of all kept runs, the
largest archive has 2.6 MB, 668 files and 15 MB unpacked.
"""

from __future__ import annotations

import stat
import zipfile
from collections.abc import Iterable

FILES = 100_000
DEPTH = 32
"""Folders within folders, and tables and lists within each other in JSON."""
NAME, PATH = 200, 1000
"""The longest name of a file, and the longest path in a run, in characters."""
DIRECTORY_BYTES = 16 * 2**20
"""The largest list of files in an archive: 100,000 of them with names of 100 characters."""
FILE_BYTES = 256 * 2**20
UNPACKED_BYTES = 4 * 2**30
DENSE_BYTES, DENSITY = 64 * 2**20, 100
"""An archive that unpacks to more than the one may not shrink its files to less than a share; kept runs reach 1 in 15."""
JSON_BYTES = 32 * 2**20
RECORD_BYTES = 128 * 2**20
LINES, LINE_BYTES = 1_000_000, 4 * 2**20
"""The most lines of a record, as of an attempt's metrics, and the longest of them."""
VALUES = 1_000_000
"""The most values in a JSON file."""
METHODS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}
"""Compressions that are unpacked piece by piece, in bounded memory."""
ENCRYPTED = 1
"""The bit of a member's flags that says it is encrypted."""


def name_fault(path: str) -> str | None:
    """Why a path, with `/` between its parts, cannot be one of a run."""
    parts = path.split("/")
    if len(path) > PATH or len(parts) > DEPTH or any(len(part) > NAME for part in parts):
        return f"has a path longer than {PATH} characters, or deeper than {DEPTH} folders: {path[:80]!r} …"
    if not path.isprintable() or "\\" in path or any(part in ("", ".", "..") for part in parts):
        return f"has a path that leads elsewhere, or that has characters which no run's path has: {path!r}"
    return None


def archive_fault(members: Iterable[zipfile.ZipInfo], size: int) -> str | None:
    """Why an archive of `size` bytes with these members is not unpacked."""
    members = list(members)
    files = [member for member in members if not member.is_dir()]
    if len(members) > FILES:
        return f"has more than {FILES} files"
    for member in members:
        # a NUL ends the name for whoever lists the archive; what follows it is only in `orig_filename`
        if fault := name_fault(member.orig_filename.removesuffix("/")):
            return fault
        if fault := _member_fault(member):
            return f"{fault}: {member.filename}"
    if twice := _first_twice(member.filename for member in members):
        return f"has more than one {twice}"
    folders = {name[: at + 1] for name in (member.filename for member in members) for at in _slashes(name)}
    if clash := next((member.filename for member in files if f"{member.filename}/" in folders), None):
        return f"has {clash} as a file and as a folder"
    total = sum(member.file_size for member in files)
    if total > UNPACKED_BYTES or (total > DENSE_BYTES and total > DENSITY * size):
        return f"would unpack to {total / 2**20:.0f} MiB from {size / 2**20:.1f}, more than a run does"
    return None


def _member_fault(member: zipfile.ZipInfo) -> str | None:
    kind = stat.S_IFMT(member.external_attr >> 16)
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        return "has a link or a device"
    if member.flag_bits & ENCRYPTED:
        return "has an encrypted file"
    if member.compress_type not in METHODS:
        return f"has a file in compression {member.compress_type}; a run's are stored or deflated"
    if member.file_size > FILE_BYTES:
        return f"has a file of {member.file_size / 2**20:.0f} MiB, more than {FILE_BYTES // 2**20}"
    return None


def _first_twice(names: Iterable[str]) -> str | None:
    seen: set[str] = set()
    return next((name for name in names if name in seen or seen.add(name)), None)  # type: ignore[func-returns-value]


def _slashes(name: str) -> list[int]:
    return [at for at, character in enumerate(name) if character == "/"]


def json_fault(value: object) -> str | None:
    """Why parsed JSON is not looked at further: it is nested too deeply, or has too many values."""
    level, count = [value], 0
    for _ in range(DEPTH):
        inner: list[object] = []
        for element in level:
            inner += element.values() if isinstance(element, dict) else element if isinstance(element, list) else ()
        count += len(inner)
        if count > VALUES:
            return f"has more than {VALUES} values"
        if not inner:
            return None
        level = inner
    return f"is nested more than {DEPTH} deep"
