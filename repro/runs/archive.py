"""Packs runs into ZIP archives: the same files always give the same bytes.

`archive` packs a whole run to hand over, with its reports, a manifest and an RO-Crate; `repro.report.host.keep` packs
the small one that is committed. `repro.runs.files` reads both in place.
"""

import hashlib
import shutil
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from repro.runs.files import ARCHIVE, RecordError, is_archive, open_files, opened
from repro.runs.manifest import MANIFEST, manifest_text, read_manifest, verify
from repro.runs.record import Run, disk_error
from repro.runs.ro_crate import METADATA, metadata
from repro.utils.paths import sha256_of
from repro.utils.writing import new_file

DATE = (1980, 1, 1, 0, 0, 0)
PERMISSIONS = 0o644
UNIX = 3


@dataclass(frozen=True)
class Archive:
    """An archive, and the SHA-256 of its bytes."""

    path: Path
    digest: str


def archive(run: Run, target: Path | None = None) -> Archive:
    """Pack a run's folder with an RO-Crate into `target`, by default `<run>.zip` next to the folder.

    RecordError, without writing anything, if the folder or the packed files differ from the record, or without rocrate.
    """
    verification = verify(run.files)
    if not verification.holds:
        raise RecordError(
            "\n".join((f"{run.folder} is not as it was recorded; nothing was packed:", *verification.lines()))
        )
    target = target or run.folder.parent / f"{run.id}{ARCHIVE}"
    entries = {path: digest for path, digest in read_manifest(run.folder).items() if path != METADATA}
    sizes = {path: (digest, (run.folder / path).stat().st_size) for path, digest in sorted(entries.items())}
    crate = metadata(run.description(), run.attempts(), sizes)
    manifest = manifest_text({**entries, METADATA: sha256_of(crate)}).encode()
    content: dict[str, Path | bytes] = {path: run.folder / path for path in entries}
    return write_archive(target, {**content, METADATA: crate, MANIFEST: manifest})


def write_archive(target: Path, content: Mapping[str, Path | bytes]) -> Archive:
    """Write an archive of files, from elsewhere or given as bytes, by their paths in it; whole or not at all.

    Paths are sorted; dates and permissions are always the same. That of a run must agree with its manifest: RecordError
    if a file changed while it was packed.
    """
    if not is_archive(target):
        raise RecordError(f"{target}: the name of an archive ends in {ARCHIVE}")
    partial = target.with_name(f".partial-{target.name}")
    try:
        partial.unlink(missing_ok=True)
        with new_file(partial) as file, zipfile.ZipFile(file, "w") as packed:
            for path, source in sorted(content.items()):
                _add(packed, path, source)
        if "run.json" in content and not (verification := verify(open_files(partial))).holds:
            raise RecordError(
                "\n".join(
                    (f"the run changed while it was packed into {target.name}; pack it again:", *verification.lines())
                )
            )
        partial.replace(target)
        with open(target, "rb") as file:
            return Archive(target, hashlib.file_digest(file, "sha256").hexdigest())
    except OSError as error:
        raise disk_error(error, target) from error
    finally:
        partial.unlink(missing_ok=True)


def _add(packed: zipfile.ZipFile, path: str, source: Path | bytes) -> None:
    member = zipfile.ZipInfo(path, DATE)
    member.compress_type, member.create_system = zipfile.ZIP_DEFLATED, UNIX
    member.external_attr = PERMISSIONS << 16
    if isinstance(source, bytes):
        packed.writestr(member, source, compresslevel=9)
        return
    member.file_size = source.stat().st_size
    with opened(source) as read, packed.open(member, "w") as written:
        shutil.copyfileobj(read, written)
