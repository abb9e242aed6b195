"""How the parts of a kit are written: archives that are the same bytes for the same files, split into pieces."""

from __future__ import annotations

import contextlib
import gzip
import io
import shutil
import subprocess
import tarfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from repro.images.offline_folder import OfflineError
from repro.images.pins import load_pins
from repro.utils.progress import said_meanwhile

MB = 1e6
CHUNK = 2**20
MOST_PIECES = 1000
"""As many as the names of pieces sort in their order: setup.sh joins them by a pattern."""
XZ = ("xz", "--threads=4", "--stdout")
"""With a fixed number of threads, for it decides how the stream is cut into blocks."""


@dataclass(frozen=True)
class ArchiveEntry:
    """A file or link of an archive: its name there, and its content, of a file here or given."""

    name: str
    source: Path | None = None
    content: bytes = b""
    link: str = ""
    executable: bool = False


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
            raise OfflineError(
                f"{self.name} would have more than {MOST_PIECES} pieces; PART_MIB=<more> makes them larger"
            )
        self.files.append(self.folder / f"{self.name}.{len(self.files):03}")
        self.file, self.left = open(self.files[-1], "wb"), self.size  # noqa: SIM115

    def _end(self) -> None:
        if self.file:
            self.file.close()

    def close(self) -> None:
        self._end()
        super().close()


def pack(
    folder: Path, name: str, entries: Iterable[ArchiveEntry], size: int, level: int, expected_mb: float = 0
) -> int:
    """Write an archive into a folder in pieces of `size` bytes, and return all their bytes: the same for the same entries.

    `expected_mb` is about how many MB the entries have; how far it is, and how much time is left, is said by it.
    """
    with (
        Pieces(folder, name, size) as pieces,
        _compressed(pieces, name, level) as out,
        _Counted(out) as counted,
        tarfile.TarFile(fileobj=counted, mode="w", format=tarfile.GNU_FORMAT, copybufsize=CHUNK) as archive,
    ):
        now, epoch = ["its first file"], load_pins().source_date_epoch

        def far() -> str:
            of = f" of about {expected_mb:.0f}" if expected_mb else ""
            return f"{name}: {counted.bytes / MB:.0f}{of} MB packed, {pieces.total / MB:.0f} MB written; now {now[-1]}"

        def share() -> float:
            return counted.bytes / MB / expected_mb if expected_mb else 0

        with said_meanwhile(far, share=share):
            for entry in entries:
                now[:] = [entry.name]
                _add(archive, entry, epoch)
            now[:] = ["the rest is compressed"]
    return pieces.total


class _Counted:
    """A stream that counts the bytes written to it."""

    def __init__(self, out: Any) -> None:
        self._out, self.bytes = out, 0

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *raised: object) -> None:
        """Nothing: who made the stream closes it."""

    def tell(self) -> int:
        return self.bytes

    def write(self, data: bytes) -> int:
        self.bytes += len(data)
        return self._out.write(data)


def _add(archive: tarfile.TarFile, entry: ArchiveEntry, epoch: int) -> None:
    member = tarfile.TarInfo(entry.name)
    member.mtime = epoch
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
        raise OfflineError("xz is needed to make a kit: `apt-get install xz-utils`")
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
        raise OfflineError(f"xz ended with status {process.returncode}")
