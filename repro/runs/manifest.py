"""Records the SHA-256 of every file of a run's folder, and finds whatever was changed, added or removed since.

The record is `manifest-sha256.txt`, which `sha256sum -c` reads too, over the files and `ro-crate-metadata.json`.
What was measured is recorded once and for all; what is derived from it is recorded anew when it is written anew.
"""

from repro.utils.paths import sha256
import hashlib
import json
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path

from repro.runs.ro_crate import METADATA, metadata, recorded_files
from repro.runs.record import RecordError, Run, write_json, write_text

MANIFEST = "manifest-sha256.txt"
DERIVED = re.compile(r"(report|results)\.[^/]+|verdicts\.json|figures/.+|" + re.escape(METADATA))
ATTEMPT = re.compile(r"units/[^/]+/repeat-\d+\.attempt-\d+/")
LINE = re.compile(r"([0-9a-f]{64})  (\S.*)")


@dataclass(frozen=True)
class Verification:
    """What differs from the record; `faults` are flaws of the record itself. All empty: nothing was touched."""

    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    files: int = 0
    digest: str = ""

    @property
    def holds(self) -> bool:
        return not (self.changed or self.removed or self.added or self.faults)

    def lines(self) -> list[str]:
        """A line for each difference, with the file's path."""
        kinds = (("changed", self.changed), ("removed", self.removed), ("added", self.added))
        lines = [*self.faults, *(f"{kind}: {path}" for kind, paths in kinds for path in paths)]
        return [line.encode("utf-8", "backslashreplace").decode() for line in lines]


def record(run: Run) -> None:
    """Write the crate's metadata and the manifest after a run or a rendering.

    Derived files, files of attempts that have no record yet and lines appended to `attempts.jsonl` are taken up; the
    links that glog leaves beside its logs, a second name for each, are removed. Anything else that differs from an
    earlier record keeps its recorded hash, so that `verify` goes on naming it. RecordError if the earlier manifest
    cannot be read.
    """
    run.drop_half_line()
    old = read_manifest(run.folder) if (run.folder / MANIFEST).exists() else {}
    renewable = _renewable(run.folder, old) - {METADATA}
    _remove_second_names(run.folder, renewable)
    new = {path: digest for path in renewable if (digest := sha256(run.folder / path))}
    kept = {path: digest for path, digest in old.items() if path not in new and not DERIVED.fullmatch(path)}
    entries = dict(sorted((new | kept).items()))
    sizes = {path: (digest, _size(run.folder / path)) for path, digest in entries.items()}
    write_json(run.folder / METADATA, metadata(run.description(), run.attempts(), sizes))
    entries[METADATA] = sha256(run.folder / METADATA)
    write_text(run.folder / MANIFEST, manifest_text(entries))


def discard_derived(folder: Path) -> None:
    """Remove what is derived, before it is written anew: a file that is not would tell of an earlier state."""
    for path in files(folder):
        if DERIVED.fullmatch(path):
            (folder / path).unlink()


def verify(folder: Path) -> Verification:
    """Compare a run's folder, wherever it lies, with its record; RecordError if it is no run or has no record."""
    if not (folder / "run.json").is_file():
        raise RecordError(f"{folder}: no run.json there, so it is no run's folder")
    if not (folder / MANIFEST).is_file():
        raise RecordError(f"{folder} has no {MANIFEST}: its run never ended. `make report RUN={folder}` writes one.")
    text = (folder / MANIFEST).read_bytes()
    entries = read_manifest(folder)
    faults = [] if text == manifest_text(entries).encode() else [f"changed: {MANIFEST} (not as it was written)"]
    return replace(
        _differences(folder, entries),
        faults=(*faults, *_crate_faults(folder, entries)),
        files=len(entries),
        digest=hashlib.sha256(text).hexdigest(),
    )


def alterations(folder: Path) -> list[str]:
    """A line for each file that was measured, not derived, and is no longer as recorded; [] without a record.

    Attempts that have no record yet, as a run that was killed leaves them, are no alterations.
    """
    if not (folder / MANIFEST).exists():
        return []
    old = read_manifest(folder)
    renewable = _renewable(folder, old)
    found = _differences(folder, old)
    kinds = {
        name: tuple(path for path in getattr(found, name) if path not in renewable and not DERIVED.fullmatch(path))
        for name in ("changed", "removed", "added")
    }
    return Verification(**kinds).lines()


def _differences(folder: Path, entries: dict[str, str]) -> Verification:
    present = set(files(folder)) - {MANIFEST}
    changed = [path for path in sorted(present & entries.keys()) if sha256(folder / path) != entries[path]]
    removed, added = entries.keys() - present, present - entries.keys()
    return Verification(tuple(changed), tuple(sorted(removed)), tuple(sorted(added)))


def read_manifest(folder: Path) -> dict[str, str]:
    """Path to SHA-256, as recorded; RecordError names the line that is none."""
    entries = {}
    for number, line in enumerate((folder / MANIFEST).read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        found = LINE.fullmatch(line)
        if not found or found[2] in entries:
            raise RecordError(f"{folder / MANIFEST} was changed: line {number} records no file, or one again")
        entries[found[2]] = found[1]
    return entries


def manifest_text(entries: dict[str, str]) -> str:
    """The manifest of these files, sorted by path."""
    return "".join(f"{digest}  {path}\n" for path, digest in sorted(entries.items()))


def files(folder: Path) -> list[str]:
    """Paths of everything in a folder that is no folder, sorted."""
    found = []
    for parent, folders, names in os.walk(folder):
        links = [name for name in folders if (Path(parent) / name).is_symlink()]
        found += [(Path(parent) / name).relative_to(folder).as_posix() for name in (*names, *links)]
    return sorted(found)


def _renewable(folder: Path, old: dict[str, str]) -> set[str]:
    """The files that a record may add or renew."""
    recorded_attempts = {found[0] for path in old if (found := ATTEMPT.match(path))}

    def belongs(path: str) -> bool:
        if path == "attempts.jsonl":
            return path not in old or _starts_with(folder / path, old[path])
        attempt = ATTEMPT.match(path)
        return not old or bool(DERIVED.fullmatch(path)) or (attempt is not None and attempt[0] not in recorded_attempts)

    return {path for path in files(folder) if path != MANIFEST and belongs(path)}


def _remove_second_names(folder: Path, paths: set[str]) -> None:
    for path in paths:
        link = folder / path
        if link.is_symlink() and link.readlink().name == str(link.readlink()) and link.is_file():
            link.unlink()


def _starts_with(path: Path, digest: str) -> bool:
    """Whether the first lines of a file have this SHA-256: whether lines were appended and nothing else."""
    running = hashlib.sha256()
    with open(path, "rb") as file:
        for line in file:
            running.update(line)
            if running.hexdigest() == digest:
                return True
    return False


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _crate_faults(folder: Path, entries: dict[str, str]) -> list[str]:
    """Why rocrate cannot read the metadata, or where they disagree with the manifest."""
    if not (folder / METADATA).is_file():
        return []
    try:
        from rocrate.rocrate import ROCrate

        ROCrate(folder)
        listed = recorded_files(json.loads((folder / METADATA).read_text(encoding="utf-8")))
    except Exception as error:  # rocrate raises whatever the broken JSON-LD makes it stumble on
        return [f"{METADATA} is no valid RO-Crate: {error}"]
    expected = {path: digest for path, digest in entries.items() if path != METADATA}
    return [] if listed == expected else [f"{METADATA} and {MANIFEST} list different files"]
