"""Packs a run's folder into one archive to hand over: the same folder always gives the same bytes."""

import gzip
import hashlib
import tarfile
from dataclasses import dataclass
from pathlib import Path

from repro.runs.manifest import MANIFEST, files, read_manifest, verify
from repro.runs.record import RecordError, Run, disk_error


@dataclass(frozen=True)
class Bundle:
    """An archive, and the SHA-256 of its bytes."""

    path: Path
    digest: str


def bundle(run: Run) -> Bundle:
    """Write `<run>.tar.gz` beside the run's folder.

    RecordError if the folder is not as recorded, or if what was packed is not: nothing is written then.
    """
    found = verify(run.folder)
    if not found.holds:
        raise RecordError("\n".join((f"{run.folder} is not as it was recorded; nothing was packed:", *found.lines())))
    target = run.folder.parent / f"{run.id}.tar.gz"
    partial = target.with_name(target.name + ".partial")
    try:
        _pack(run, partial)
        _check(partial, run)
        partial.replace(target)
    except OSError as error:
        raise disk_error(error, target) from error
    finally:
        partial.unlink(missing_ok=True)
    with open(target, "rb") as file:
        return Bundle(target, hashlib.file_digest(file, "sha256").hexdigest())


def _pack(run: Run, target: Path) -> None:
    """Names sorted, and nothing in it of who packed where and when: the time is that of the run."""
    created = int(run.description()["created"])
    with (
        open(target, "wb") as file,
        gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=created) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for path in files(run.folder):
            member = tarfile.TarInfo(f"{run.id}/{path}")
            member.size, member.mtime, member.mode = (run.folder / path).stat().st_size, created, 0o644
            with open(run.folder / path, "rb") as content:
                archive.addfile(member, content)


def _check(archive: Path, run: Run) -> None:
    """What lies in the archive has to be what the manifest in it says."""
    packed = {}
    with tarfile.open(archive) as opened:
        for member in opened:
            content = hashlib.file_digest(opened.extractfile(member), "sha256")
            packed[member.name.partition("/")[2]] = content.hexdigest()
    packed.pop(MANIFEST, None)
    if packed != read_manifest(run.folder):
        raise RecordError(f"{run.folder} changed while it was packed: pack it again once nothing writes into it")
